import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startPostgres } from '../../test/kit/real-postgres.ts';
import { type Scope, startProgram, temporaryFolder } from '../../test/kit/running-program.ts';
import { configurationFor, issueKey } from '../completions/completions-server.ts';
import { type Contender, measure } from '../completions/measure.ts';
import { bodyFor, PATH } from '../completions/suite.ts';
import { limitFigure, ratioFigure, type Table } from '../report/figure.ts';

/** Divided among the workers by the one who accepts them. */
const CONNECTIONS = 32;
const ROUNDS = {
  full: { warmUpMs: 3000, rounds: 20, roundMs: 1000 },
  quick: { warmUpMs: 500, rounds: 3, roundMs: 500 },
};
/** Of Linux, wherever Node runs on it. */
const TICKS_PER_SECOND = 100;

/** What two workers answer beside one process, on the same PostgreSQL and the same upstream. Needs Linux. */
export async function workersSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const upstream = fork(new URL('../completions/scripted-model-api.ts', import.meta.url));
  const [upstreamPort] = (await once(upstream, 'message')) as [number];
  const postgres = await startPostgres();
  const ends: (() => unknown)[] = [];
  const scope: Scope = { after: (run) => void ends.push(run) };
  try {
    const file = join(await temporaryFolder(scope), 'trestle.yaml');
    await writeFile(file, configurationFor(upstreamPort));
    const args = ['--config', file, '--database', postgres.url];
    const one = await startProgram(scope, { args });
    const two = await startProgram(scope, { args: [...args, '--workers', '2'] });
    const headers = await issueKey(`${one.url}/v1`);
    const body = bodyFor('bench/small', {});
    const contender = ({ port, pid }: typeof one): Contender => ({
      ...{ port, path: PATH, headers, body, connections: CONNECTIONS },
      processorMs: async () => sum(await processorTimes(pid)),
    });
    const before = await processorTimes(two.pid);
    const measured = await measure({ one: contender(one), two: contender(two) }, ROUNDS[quick ? 'quick' : 'full']);
    const [, ...ofWorkers] = (await processorTimes(two.pid)).map((ms, index) => ms - (before[index] ?? 0));
    const sides = { ours: measured.two.perCpuSecond, bound: measured.one.perCpuSecond };
    const busiest = (100 * Math.max(...ofWorkers)) / sum(ofWorkers);
    return [
      {
        title: 'Two workers on one PostgreSQL',
        figures: [
          ratioFigure({
            name: 'JSON, two workers against one process, by processor time',
            unit: 'requests/CPU s',
            ...sides,
            goal: 0.85,
          }),
          limitFigure({ name: 'share of the busier worker in processor time', unit: '%', value: busiest, goal: 60 }),
        ],
      },
    ];
  } finally {
    for (const end of ends.toReversed()) await end();
    await postgres.stop();
    upstream.kill();
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** Processor time in ms that a process has used, and after it that of each of its children. */
async function processorTimes(pid: number): Promise<readonly number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  const all = [pid, ...children.trim().split(/\s+/).filter(Boolean)];
  return Promise.all(
    all.map(async (one) => {
      const stat = await readFile(`/proc/${one}/stat`, 'utf8');
      // The name may have spaces: fields are counted from its end.
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS_PER_SECOND;
    }),
  );
}
