import { execFile } from 'node:child_process';
import { Agent, get, request } from 'node:http';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createPasswordHasher } from '../../src/accounts/passwords/passwords.ts';
import { emailOf, seedAccounts } from '../../test/kit/accounts/seed-accounts.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { type ProgramOptions, startProgram, temporaryFolder } from '../../test/kit/running-program.ts';
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
const PASSWORD = 'copper kettle 47 over the pass';
const USERS = 1000;
const CORES = availableParallelism();
/** Enough that a core never waits for the next one to come in. */
const IN_FLIGHT = 4 * CORES;
/** Often enough for a percentile, and seldom enough that the asking itself takes no share that could be seen. */
const PROBE_EVERY_MS = 50;

/** How users start the program, which decides its flags and its thread pool. */
const STARTS: Readonly<Record<string, ProgramOptions>> = {
  '`npm start`': { starter: ['npm', 'start', '--silent', '--'], command: [] },
  'the built program': { starter: ['dist/trestle.cjs'] },
  '`npx trestle`': { starter: ['npx', '--no-install', 'trestle'] },
};

/** Logins at the program as users start it, in turn with raw argon2id in this process. */
export async function benchLogins({ warmUpMs, rounds, roundMs }: Rounds): Promise<LoginBench> {
  const scope = createScope();
  const agent = new Agent({ keepAlive: true, maxSockets: IN_FLIGHT + 1 });
  scope.after(() => agent.destroy());
  try {
    await promisify(execFile)('npm', ['run', '--silent', 'build'], { cwd: ROOT, timeout: BUILD_LIMIT_MS });
    const passwordHash = await createPasswordHasher({ concurrency: 1 }).hash(PASSWORD);
    const programs = await Promise.all(
      Object.entries(STARTS).map(async ([name, options]) => {
        const folder = await temporaryFolder(scope);
        await seedAccounts({ folder, users: USERS, passwordHash });
        const { url } = await startProgram(scope, { ...options, args: ['accounts'], dataDirectory: folder });
        return { name, url, rates: [] as number[] };
      }),
    );
    const result = { raw: [] as number[], healthMs: [] as number[] };
    let next = 0;
    const logInAt = (url: string) => () => {
      next += 1;
      return login(agent, url, emailOf(next % USERS));
    };
    const hash = await rawVerifier(passwordHash);
    await perSecond(hash, CORES, warmUpMs / 2);
    for (const { url } of programs) await perSecond(logInAt(url), IN_FLIGHT, warmUpMs / 2);
    for (let round = 0; round < rounds; round += 1) {
      result.raw.push(await perSecond(hash, CORES, roundMs));
      for (const { url, rates } of programs) {
        const [rate, health] = await Promise.all([
          perSecond(logInAt(url), IN_FLIGHT, roundMs),
          probeHealth(agent, url, roundMs),
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

async function rawVerifier(passwordHash: string): Promise<() => Promise<void>> {
  const { verify } = await import('@node-rs/argon2');
  return async () => {
    if (!(await verify(passwordHash, PASSWORD))) throw new Error('not the password');
  };
}

/** Counts what ends within the time, by the time that the last one took. */
async function perSecond(work: () => Promise<void>, inFlight: number, ms: number): Promise<number> {
  const started = performance.now();
  let count = 0;
  const one = async (): Promise<void> => {
    while (performance.now() - started < ms) {
      await work();
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  return (count * 1000) / (performance.now() - started);
}

async function probeHealth(agent: Agent, url: string, ms: number): Promise<readonly number[]> {
  const started = performance.now();
  const took: number[] = [];
  while (performance.now() - started < ms) {
    const asked = performance.now();
    await new Promise<void>((resolve, reject) => {
      get(`${url}/healthz`, { agent }, (answer) => answer.resume().once('end', resolve)).once('error', reject);
    });
    took.push(performance.now() - asked);
    await sleep(PROBE_EVERY_MS);
  }
  return took;
}

function login(agent: Agent, url: string, identifier: string): Promise<void> {
  const body = JSON.stringify({ identifier, password: PASSWORD });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/api/auth/login`, { agent, method: 'POST', headers }, (answer) => {
      answer.resume().once('end', () => {
        if (answer.statusCode === 200) resolve();
        else reject(new Error(`a login was refused: ${answer.statusCode}`));
      });
    });
    sent.once('error', reject);
    sent.end(body);
  });
}
