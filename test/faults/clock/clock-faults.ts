import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createScope } from '../../kit/create-scope.ts';
import { startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, figuresOf, type Operation } from './check-operations.ts';
import { followJobs } from './jobs-under-jumps.ts';
import { followPerson } from './person-under-jumps.ts';

const SHIFTED_CLOCK = new URL('shifted-clock.ts', import.meta.url).href;
const AGENT = fileURLToPath(new URL('../../kit/scripted-acp-agent.ts', import.meta.url));
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Longer than the program takes to see another clock. */
const SEEN_MS = 200;
const MAX_LAG_MS = 1500;
/** Two run, so that whatever comes after them waits. */
const RUNNING = 2;

interface Jump {
  readonly name: string;
  /** By how much the clock is off, one after the other; then it is right again. */
  readonly shifts: readonly number[];
  readonly everyMs: number;
}

const JUMPS: readonly Jump[] = [
  { name: '90 days ahead', shifts: [90 * DAY_MS], everyMs: 16_000 },
  { name: 'an hour back', shifts: [-HOUR_MS], everyMs: 16_000 },
  { name: '90 days ahead and back again', shifts: [90 * DAY_MS, 0], everyMs: 2000 },
  { name: 'ten seconds ahead again and again', shifts: [1, 2, 3, 4, 5, 6].map((n) => n * 10_000), everyMs: 1000 },
];

/** Sets the wall clock of a running program, while jobs run and wait and while people log in. */
export const clockFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const random = seededRandom(seed);
  const log = openOperationLog<Operation>('clock');
  const scope = createScope();
  try {
    const folder = await temporaryFolder(scope);
    const clockFile = join(folder, 'clock');
    let shiftMs = 0;
    const setClock = async (shift: number): Promise<void> => {
      shiftMs = shift;
      await writeFile(clockFile, String(shift));
      log.note({ kind: 'jump', shiftMs: shift });
      await sleep(SEEN_MS);
    };
    await writeFile(clockFile, '0');
    const config = join(folder, 'trestle.yaml');
    await writeFile(config, JSON.stringify(configuration()));
    const program = await startProgram(scope, {
      args: ['--config', config, '--log-level', 'silent'],
      dataDirectory: join(folder, 'data'),
      environment: { NODE_OPTIONS: `--import ${SHIFTED_CLOCK}`, CLOCK_SHIFT_FILE: clockFile },
    });
    for (let cycle = 1; cycle <= cycles && program.child.exitCode === null; cycle += 1) {
      const { name, shifts, everyMs } = JUMPS[(cycle - 1) % JUMPS.length] as Jump;
      const jump = async () => {
        const id = `p${seed}x${cycle}`;
        const person = await followPerson({ url: program.url, name: id, note: log.note, shift: () => shiftMs });
        await sleep(random() * MAX_LAG_MS);
        for (const shift of shifts) {
          await setClock(shift);
          await person.afterJump();
          await sleep(shift === shifts.at(-1) ? 0 : everyMs);
        }
        await person.afterReplayTime();
        return person;
      };
      const [, person] = await Promise.all([followJobs(program.url, `cycle ${cycle}, ${name}`, log.note), jump()]);
      const health = await fetch(`${program.url}/healthz`).catch(() => undefined);
      log.note({ kind: 'health', outcome: health?.ok === true ? 'ok' : 'fail' });
      await setClock(0);
      await person.afterJump();
      say(`${cycle} of ${cycles} cycles: ${name}`);
    }
    const code = program.child.exitCode ?? program.child.signalCode;
    if (code !== null) log.note({ kind: 'exit', code: String(code) });
    return await log.report({ check: checkOperations, figures: figuresOf, say });
  } finally {
    await scope.end();
  }
};

function configuration(): object {
  const agent = { id: 'scripted', label: 'Scripted', category: 'native', command: process.execPath, args: [AGENT] };
  return {
    trusted_proxies: ['127.0.0.1/32'],
    // Whatever this machine has: the script lies outside of what a sandbox shows.
    bridge: { sandbox: 'off' },
    agents: { catalog: ['scripted'], default: 'scripted', custom: [agent] },
    jobs: { max_running: RUNNING },
    accounts: { registration: 'open', require_verification: false },
  };
}
