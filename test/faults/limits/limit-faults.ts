import { setTimeout as sleep } from 'node:timers/promises';
import { createLimitedInstances } from '../../kit/completions/limited-instances.ts';
import { createScope } from '../../kit/create-scope.ts';
import { startPostgres } from '../../kit/real-postgres.ts';
import type { RunningProgram } from '../../kit/running-program.ts';
import { until } from '../../kit/until.ts';
import { countFigure, type FaultSuite, neverFigure, seededRandom, workFigure } from '../fault-suite.ts';

const INSTANCES = 3;
const LIMITS = [6, 30, 120, 600, 3000];
const MAX_CALLS = 60;
const FLUSHED_MS = 2500;
const PATIENCE_MS = 60_000;
const NANO = 1e9;
/** What a burst may find besides answers: a limit, no database, no instance. */
const KNOWN = new Set([0, 429, 503]);

type Fault = 'none' | 'kill' | 'freeze' | 'database';
const FAULTS: readonly Fault[] = ['none', 'kill', 'freeze', 'database'];

/**
 * In each cycle a new key with a limit and one with a budget are used up through all instances at the same time, while one is killed or
 * frozen, or the database crashes. Neither may ever be exceeded, and whoever is not refused by a limit gets a documented status.
 */
export const limitsFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const random = seededRandom(seed);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)] as T;
  const scope = createScope();
  const violations: string[] = [];
  let calls = 0;
  let answered = 0;
  let unspent = 0;
  const faults: Record<Fault, number> = { none: 0, kill: 0, freeze: 0, database: 0 };
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const { start, issue, burst, spent } = createLimitedInstances(scope, server.url);
    const programs: RunningProgram[] = [];
    for (let index = 0; index < INSTANCES; index += 1) programs.push(await start());

    async function breakSomething(fault: Fault): Promise<void> {
      await sleep(random() * 500);
      const index = Math.floor(random() * INSTANCES);
      const program = programs[index] as RunningProgram;
      if (fault === 'kill') {
        await program.stop('SIGKILL');
        programs[index] = await start();
      } else if (fault === 'freeze') {
        program.child.kill('SIGSTOP');
        await sleep(500 + random() * 2500);
        program.child.kill('SIGCONT');
      } else if (fault === 'database') {
        await server.pause();
        await sleep(random() * 2000);
        await server.start();
      }
    }

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const fault = cycle <= FAULTS.length ? (FAULTS[cycle - 1] as Fault) : pick(FAULTS);
      faults[fault] += 1;
      const perMinute = pick(LIMITS);
      const [program] = programs as [RunningProgram];
      // After a crash of the database it takes a moment until keys can be issued again.
      const limited = await until(
        'a key',
        () => issue(program, { requests_per_minute: perMinute }).catch(none),
        PATIENCE_MS,
      );
      const paying = await until(
        'a key',
        () => issue(program, { budget: { usd: 1, period: 'total' } }).catch(none),
        PATIENCE_MS,
      );
      const broken = breakSomething(fault);
      const each = Math.ceil(random() * MAX_CALLS);
      const from = performance.now();
      const results = await Promise.all([burst(limited.key, each, programs), burst(paying.key, each, programs)]);
      const later = await burst(limited.key, each, programs);
      const seconds = (performance.now() - from) / 1000;
      await broken;
      const [ofLimit, ofBudget] = results;
      const passed = ofLimit.answered.length + later.answered.length;
      calls += each * INSTANCES * 3;
      answered += passed + ofBudget.answered.length;
      const room = perMinute + Math.ceil((seconds * perMinute) / 60);
      if (passed > room) violations.push(`cycle ${cycle} (${fault}): ${passed} of ${room} requests passed`);
      for (const status of [...ofLimit.others, ...ofBudget.others, ...later.others]) {
        if (!KNOWN.has(status)) violations.push(`cycle ${cycle} (${fault}): a call got ${status}`);
      }
      await sleep(FLUSHED_MS);
      const { cost, leased } = await until('the spending', () => spent(paying.id).catch(none), PATIENCE_MS);
      if (cost + leased > NANO) violations.push(`cycle ${cycle} (${fault}): ${(cost + leased) / NANO} USD of 1 USD`);
      // Those whose client got an answer were charged, or what was set aside for them still is.
      if (cost + leased < ofBudget.tokens * 1e6)
        violations.push(`cycle ${cycle} (${fault}): ${ofBudget.tokens} tokens cost ${(cost + leased) / NANO} USD`);
      unspent += leased;
      if (fault === 'none' && leased > 0) violations.push(`cycle ${cycle}: ${leased / NANO} USD were not put back`);
      if (cycle % 5 === 0) say(`${cycle} of ${cycles} cycles`);
    }
  } finally {
    await scope.end();
  }
  return {
    violations,
    figures: [
      countFigure('calls to three instances', calls),
      workFigure('calls answered', answered),
      ...FAULTS.slice(1).map((fault) => countFigure(`times: ${fault}`, faults[fault])),
      { name: 'left set aside by killed instances', value: `${(unspent / NANO).toFixed(3)} USD`, goal: '', met: true },
      neverFigure('limits or budgets exceeded', violations.filter((text) => text.includes(' of ')).length),
    ],
  };
};

function none(): undefined {
  return undefined;
}
