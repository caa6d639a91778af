import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createPasswordHasher } from '../../src/accounts/passwords/passwords.ts';
import { emailOf, seedAccounts } from '../../test/kit/accounts/seed-accounts.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { type ProgramOptions, type Scope, startProgram, temporaryFolder } from '../../test/kit/running-program.ts';
import type { Rounds } from '../report/take-turns.ts';

export interface LoginBench {
  /** By how the program was started: logins per second over HTTP, one entry for each round. */
  readonly logins: ReadonlyMap<string, readonly number[]>;
  /** Argon2id with the same parameters on all cores, and nothing around it. */
  readonly raw: readonly number[];
  /** How long `/healthz` took while people logged in, in milliseconds. */
  readonly healthMs: readonly number[];
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BUILD_LIMIT_MS = 300_000;
export const PASSWORD = 'copper kettle 47 over the pass';
const USERS = 1000;
const CORES = availableParallelism();
/** Enough that a core never waits for the next one to come in. */
const IN_FLIGHT = 4 * CORES;
/** Often enough for a percentile, and seldom enough that the asking itself takes no share that could be seen. */
const PROBE_EVERY_MS = 200;
const MAX_IDLE_MS = 1000;
const CLOSING_BRACE = 0x7d;
const OK = Buffer.from('HTTP/1.1 200 ');

/** How users start the program, which decides its flags and its thread pool. */
const STARTS: Readonly<Record<string, ProgramOptions>> = {
  '`npm start`': { starter: ['npm', 'start', '--silent', '--'], command: [] },
  'the built program': { starter: ['dist/trestle.cjs'] },
  '`npx trestle`': { starter: ['npx', '--no-install', 'trestle'] },
};

/** Logins at the program as users start it, in turn with raw argon2id in this process. */
export async function benchLogins({ warmUpMs, rounds, roundMs }: Rounds): Promise<LoginBench> {
  const scope = createScope();
  try {
    await promisify(execFile)('npm', ['run', '--silent', 'build'], { cwd: ROOT, timeout: BUILD_LIMIT_MS });
    const passwordHash = await createPasswordHasher({ concurrency: 1 }).hash(PASSWORD);
    const programs = await Promise.all(
      Object.entries(STARTS).map(async ([name, options]) => {
        const folder = await temporaryFolder(scope);
        await seedAccounts({ folder, users: USERS, passwordHash });
        const { port } = await startProgram(scope, { ...options, args: ['accounts'], dataDirectory: folder });
        const lanes = Array.from({ length: IN_FLIGHT }, () => openLane(scope, port));
        return { name, lanes, health: openLane(scope, port), rates: [] as number[] };
      }),
    );
    const result = { raw: [] as number[], healthMs: [] as number[] };
    let next = 0;
    const logInBy = (lanes: readonly Lane[]) => async (lane: number) => {
      next += 1;
      const body = JSON.stringify({ identifier: emailOf(next % USERS), password: PASSWORD });
      await lanes[lane]?.(requestText('POST /api/auth/login', body));
    };
    const hash = await rawVerifier(passwordHash);
    await perSecond(hash, CORES, warmUpMs / 2);
    for (const { lanes } of programs) await perSecond(logInBy(lanes), IN_FLIGHT, warmUpMs / 2);
    for (let round = 0; round < rounds; round += 1) {
      result.raw.push(await perSecond(hash, CORES, roundMs));
      for (const { lanes, health: probe, rates } of programs) {
        const [rate, health] = await Promise.all([
          perSecond(logInBy(lanes), IN_FLIGHT, roundMs),
          probeHealth(probe, roundMs),
        ]);
        rates.push(rate);
        result.healthMs.push(...health);
      }
    }
    return { ...result, logins: new Map(programs.map(({ name, rates }) => [name, rates])) };
  } finally {
    await scope.end();
  }
}

export async function rawVerifier(passwordHash: string): Promise<() => Promise<void>> {
  const { verify } = await import('@node-rs/argon2');
  return async () => {
    if (!(await verify(passwordHash, PASSWORD))) throw new Error('not the password');
  };
}

/** Counts what ends within the time, by the time that the last one took. */
export async function perSecond(work: (lane: number) => Promise<void>, inFlight: number, ms: number): Promise<number> {
  const started = performance.now();
  let count = 0;
  const one = async (_: unknown, lane: number): Promise<void> => {
    while (performance.now() - started < ms) {
      await work(lane);
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  return (count * 1000) / (performance.now() - started);
}

async function probeHealth(health: Lane, ms: number): Promise<readonly number[]> {
  const started = performance.now();
  const took: number[] = [];
  while (performance.now() - started < ms) {
    const asked = performance.now();
    await health(requestText('GET /healthz', ''));
    took.push(performance.now() - asked);
    await sleep(PROBE_EVERY_MS);
  }
  return took;
}

/** Sends a request on a connection of its own, and waits for its response. */
type Lane = (request: string) => Promise<void>;

/** A plain socket: the client shares the cores with the program, and an HTTP client takes three percent of them. */
function openLane(scope: Scope, port: number): Lane {
  let socket: Socket | undefined;
  let usedAt = 0;
  scope.after(() => socket?.destroy());
  return async (request) => {
    // While the others are measured the program may close a connection that is not used.
    if (performance.now() - usedAt > MAX_IDLE_MS) {
      socket?.destroy();
      socket = undefined;
    }
    if (socket === undefined) {
      socket = connect(port, '127.0.0.1');
      await once(socket, 'connect');
      socket.setNoDelay();
    }
    socket.write(request);
    let [chunk] = (await once(socket, 'data')) as [Buffer];
    if (!chunk.subarray(0, OK.length).equals(OK)) throw new Error(`refused: ${chunk.toString('utf8')}`);
    // The one response under way ends with the last character of its JSON.
    while (chunk.at(-1) !== CLOSING_BRACE) [chunk] = (await once(socket, 'data')) as [Buffer];
    usedAt = performance.now();
  };
}

function requestText(line: string, body: string): string {
  const head = `${line} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nContent-Type: application/json`;
  return `${head}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}
