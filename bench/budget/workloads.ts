import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createPasswordHasher } from '../../src/accounts/passwords/passwords.ts';
import { emailOf, seedAccounts, sessionTokenOf } from '../../test/kit/accounts/seed-accounts.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../test/kit/running-program.ts';
import { PASSWORD, perSecond, rawVerifier } from '../accounts/login.bench.ts';
import { askFor, startBareServer } from '../accounts/session-check.bench.ts';
import { type DriveTurn, driveDirectly, driveThroughBridge, type SeenTurn } from '../bridge/agent-drivers.ts';
import { startScriptedBridge } from '../bridge/scripted-bridge.ts';
import { configurationFor, issueKey } from '../completions/completions-server.ts';
import { startRawProxy } from '../completions/raw-proxy.ts';
import { bodyFor, PATH } from '../completions/suite.ts';
import { BODY as SUBMIT, UNLIMITED_JOBS } from '../jobs/submits.bench.ts';
import { runRound } from '../report/take-turns.ts';
import { INSPECTED } from './inspect-program.ts';

/** Makes as many calls as fit into the time, and returns how many were answered. */
export type Load = (ms: number) => Promise<number>;

/** A program under a load, and the bound, which works in this process. */
export interface Workload {
  readonly program: RunningProgram;
  readonly ours: Load;
  readonly bound?: {
    readonly name: string;
    readonly load: Load;
    /** The bound is a server, so that its areas can be compared with ours. */
    readonly isServer?: true;
  };
}

const CONNECTIONS = 32;
const USERS = 1000;
const UPDATES = 5000;
const COMPLETIONS_CLIENT = new URL('../completions/completions-client.ts', import.meta.url);
const SESSION_CLIENT = new URL('../accounts/session-client.ts', import.meta.url);

/** A load from a client in a process of its own: rounds of one message each. */
function loadFrom(scope: Scope, clientModule: URL, round: object): Load {
  const client = fork(clientModule);
  scope.after(() => client.kill());
  return async (ms) => {
    const { answers, refusals = 0 } = await runRound(client, { ...round, ms });
    // A refusal costs less than a call: better no figure than a wrong one.
    if (refusals > 0) throw new Error(`${refusals} of ${answers + refusals} calls were refused`);
    return answers;
  };
}

function postLoad(scope: Scope, port: number, path: string, body: string, headers = {}, connections = CONNECTIONS) {
  return loadFrom(scope, COMPLETIONS_CLIENT, { port, path, headers, body, connections });
}

/** A JSON call through `/v1/chat/completions`, beside the raw proxy on the same upstream. */
export function startChat(scope: Scope): Promise<Workload> {
  return startCompletions(scope, {});
}

/** The same as a stream of 200 chunks. */
export function startStream(scope: Scope): Promise<Workload> {
  return startCompletions(scope, { stream: true });
}

async function startCompletions(scope: Scope, extra: object): Promise<Workload> {
  const upstream = fork(new URL('../completions/scripted-model-api.ts', import.meta.url));
  scope.after(() => upstream.kill());
  const [upstreamPort] = (await once(upstream, 'message')) as [number];
  const config = join(await temporaryFolder(scope), 'trestle.yaml');
  await writeFile(config, configurationFor(upstreamPort), { mode: 0o600 });
  const program = await startProgram(scope, { args: ['completions', '--config', config], environment: INSPECTED });
  const raw = await startRawProxy(upstreamPort);
  scope.after(() => raw.close());
  return {
    program,
    ours: postLoad(scope, program.port, PATH, bodyFor('bench/small', extra), await issueKey(program.url)),
    bound: { name: 'the raw proxy', load: postLoad(scope, raw.port, PATH, bodyFor('small', extra)), isServer: true },
  };
}

/** `GET /api/auth/session` by bearer token, beside a bare route that sends as many bytes. */
export async function startSessionCheck(scope: Scope): Promise<Workload> {
  const folder = await temporaryFolder(scope);
  await seedAccounts({ folder, users: USERS });
  const program = await startProgram(scope, { args: ['accounts'], dataDirectory: folder, environment: INSPECTED });
  const tokens = Array.from({ length: USERS - 1 }, (_, index) => sessionTokenOf(index));
  const load = { connections: CONNECTIONS, tokens };
  const bare = await startBareServer(await (await askFor(program, tokens[0] ?? '')).text(), load);
  scope.after(() => bare.close());
  return {
    program,
    ours: loadFrom(scope, SESSION_CLIENT, { ...load, port: program.port }),
    bound: { name: 'a bare Fastify route', load: loadFrom(scope, SESSION_CLIENT, bare.round), isServer: true },
  };
}

/** A login by password, beside argon2id with the same parameters and nothing around it. */
export async function startLogin(scope: Scope): Promise<Workload> {
  const folder = await temporaryFolder(scope);
  const passwordHash = await createPasswordHasher({ concurrency: 1 }).hash(PASSWORD);
  await seedAccounts({ folder, users: USERS, passwordHash });
  const program = await startProgram(scope, { args: ['accounts'], dataDirectory: folder, environment: INSPECTED });
  const body = JSON.stringify({ identifier: emailOf(1), password: PASSWORD });
  const verify = await rawVerifier(passwordHash);
  const cores = availableParallelism();
  return {
    program,
    ours: postLoad(scope, program.port, '/api/auth/login', body, {}, 4 * cores),
    bound: {
      name: 'raw argon2id',
      load: async (ms) => Math.round(((await perSecond(verify, cores, ms)) * ms) / 1000),
    },
  };
}

/** `app.jobs.submit` over HTTP. The jobs that run wait for ever. */
export async function startSubmit(scope: Scope): Promise<Workload> {
  const program = await startScriptedBridge(scope, { ...INSPECTED, ...UNLIMITED_JOBS });
  return { program, ours: postLoad(scope, program.port, '/acp/rpc', SUBMIT, {}, 2 * CONNECTIONS) };
}

/** An update of an agent, to a client on a WebSocket, beside the same agent driven through the SDK of the protocol. */
export function startUpdate(scope: Scope): Promise<Workload> {
  return startDriven(scope, `flood ${UPDATES}`, ({ pieces }) => pieces);
}

/** A whole short turn of the same agent, one at a time. */
export function startTurn(scope: Scope): Promise<Workload> {
  return startDriven(scope, 'echo hello', () => 1);
}

async function startDriven(scope: Scope, prompt: string, countOf: (seen: SeenTurn) => number): Promise<Workload> {
  const program = await startScriptedBridge(scope, INSPECTED);
  const { drive: through } = await driveThroughBridge(scope, program);
  const direct = await driveDirectly(scope);
  const repeat =
    (drive: DriveTurn): Load =>
    async (ms) => {
      const started = performance.now();
      let count = 0;
      while (performance.now() - started < ms) count += countOf(await drive(prompt));
      return count;
    };
  return { program, ours: repeat(through), bound: { name: 'the SDK', load: repeat(direct) } };
}
