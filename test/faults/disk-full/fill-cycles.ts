import { execFile } from 'node:child_process';
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { postRpc } from '../../kit/bridge/bridge-client.ts';
import { type RunningProgram, startProgram } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { createJobSubmits } from '../jobs/job-operations.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';

const run = promisify(execFile);

/** The write-ahead log alone takes four before it is emptied for the first time. */
const DISK = '8m';
const CLIENTS = 4;
const MIN_SUBMITS = 10;
const MAX_SUBMITS = 60;
/** The write-ahead log has room within itself for a while: each client tries until it was refused this often. */
const REFUSALS = 5;
const MAX_TRIES = 200;
const RECOVERY_LIMIT_MS = 30_000;
const LOOK_LIMIT_MS = 10_000;
const BLOCK = Buffer.alloc(4096);

/** Fills the disk of a bridge under load, looks whether it still reads, makes room, looks whether it goes on. */
export const fillCycles: FaultSuite = async ({ cycles, seed, say }) => {
  const violations: string[] = [];
  const told: Parameters<typeof figuresOf>[0][number][] = [];
  for (let cycle = 1; cycle <= cycles; cycle += 1) {
    const result = await fillOnce(seededRandom(seed + cycle), `${seed}-${cycle}`);
    const problems = checkOperations(result.operations, result.stores);
    violations.push(...problems.map((problem) => `cycle ${cycle}: ${problem}`));
    await result.log.settle(problems, say);
    const [store] = result.stores;
    if (store !== undefined) told.push({ operations: result.operations, store });
    say(`${cycle} of ${cycles} cycles`);
  }
  return { violations, figures: figuresOf(told) };
};

async function fillOnce(random: () => number, name: string) {
  const log = openOperationLog<Operation>(`disk-full-${name}`);
  const folder = await mkdtemp(join(tmpdir(), 'trestle-faults-'));
  const programs: RunningProgram[] = [];
  const { storedJobs, submitJob } = createJobSubmits();
  const keys: string[] = [];

  async function start(): Promise<RunningProgram> {
    const options = { args: ['bridge', '--log-level', 'silent'], dataDirectory: folder };
    const program = await startProgram({ after: () => undefined }, options);
    programs.push(program);
    return program;
  }
  const submit = async (url: string): Promise<boolean> => {
    const key = `key-${keys.length}`;
    keys.push(key);
    const operation = await submitJob(url, key);
    log.note(operation);
    return operation.outcome === 'ok';
  };
  const atOnce = (work: () => Promise<unknown>) => Promise.all(Array.from({ length: CLIENTS }, work));
  const noteExit = ({ child }: RunningProgram): void => {
    const code = child.exitCode ?? child.signalCode;
    if (code !== null) log.note({ kind: 'exit', code: String(code) });
  };

  await run('mount', ['-t', 'tmpfs', '-o', `size=${DISK}`, 'trestle', folder]);
  try {
    const program = await start();
    const before = MIN_SUBMITS + random() * (MAX_SUBMITS - MIN_SUBMITS);
    await atOnce(async () => {
      while (keys.length < before) await submit(program.url);
    });
    const filler = join(folder, 'filler');
    await fill(filler);
    log.note({ kind: 'disk', state: 'full', at: performance.now() });
    await atOnce(async () => {
      for (let [tried, refused] = [0, 0]; refused < REFUSALS && tried < MAX_TRIES; tried += 1) {
        if (!(await submit(program.url))) refused += 1;
        // Whatever the program has let go of meanwhile.
        await fill(filler);
      }
    });
    await look(program.url, log.note);
    noteExit(program);
    await rm(filler);
    log.note({ kind: 'disk', state: 'free', at: performance.now() });
    const limit = performance.now() + RECOVERY_LIMIT_MS;
    while (!(await submit(program.url)) && performance.now() < limit) await sleep(50);
    await atOnce(() => submit(program.url));
    noteExit(program);
    const stores = [await storedJobs(program.url, keys)];
    await program.stop('SIGKILL');
    const again = await start();
    stores.push(await storedJobs(again.url, keys));
    await again.stop();
    return { operations: await log.close(), stores, log };
  } finally {
    for (const program of programs) await program.stop('SIGKILL');
    await run('umount', ['--lazy', folder]);
    await rm(folder, { recursive: true, force: true });
  }
}

/** Takes what room is left, to the last block. */
async function fill(file: string): Promise<void> {
  const handle = await open(file, 'a');
  try {
    for (;;) await handle.write(BLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    await handle.close();
  }
}

async function look(url: string, note: (operation: Operation) => void): Promise<void> {
  const rpc = (method: string, params: object) => async () => {
    const { json } = await postRpc(url, { jsonrpc: '2.0', id: 1, method, params });
    if (json.result === undefined) throw new Error(JSON.stringify(json.error));
  };
  const looks: Readonly<Record<string, () => Promise<unknown>>> = {
    '/healthz': async () => {
      const response = await fetch(`${url}/healthz`, { signal: AbortSignal.timeout(LOOK_LIMIT_MS) });
      await response.text();
      if (!response.ok) throw new Error(`it answered ${response.status}`);
    },
    'app.jobs.list': rpc('app.jobs.list', { limit: 10 }),
    'app.jobs.stats': rpc('app.jobs.stats', {}),
    'acp.capabilities': rpc('acp.capabilities', {}),
  };
  for (const [what, ask] of Object.entries(looks)) {
    try {
      await ask();
      note({ kind: 'look', what, outcome: 'ok' });
    } catch (error) {
      note({ kind: 'look', what, outcome: 'fail', problem: String(error) });
    }
  }
}
