import { findBubblewrap } from '../../test/kit/bubblewrap.ts';
import { findRipgrep } from '../../test/kit/ripgrep.ts';
import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import { benchRepository, benchSandbox } from './agents.bench.ts';

const MAX_SANDBOX_MS = 30;
const MIN_RATE = 0.95;
const MAX_CHECKPOINT_MS = 300;
const MAX_SEARCH = 1.5;

/** How long each measurement takes: a full run, and a short one of about 20 s. */
const PARAMETERS = {
  full: { sandbox: { rounds: 30, lines: 200_000 }, repository: { files: 50_000, rounds: 15 } },
  quick: { sandbox: { rounds: 8, lines: 100_000 }, repository: { files: 5_000, rounds: 5 } },
};

type Parameters = typeof PARAMETERS.full;

/** What fences, saved folders and searches cost the work of agents. What cannot run on a machine is left out, and said. */
export async function agentsSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { sandbox, repository } = quick ? PARAMETERS.quick : PARAMETERS.full;
  const { program, missing } = await findBubblewrap();
  return [
    ...(missing === false
      ? [{ title: 'Agents: in the sandbox', figures: await sandboxFigures(program, sandbox) }]
      : []),
    { title: 'Agents: large repositories', figures: await repositoryFigures(repository) },
  ];
}

async function sandboxFigures(program: string, options: Parameters['sandbox']): Promise<readonly Figure[]> {
  const { fencedMs, plainMs, fencedLines, plainLines } = await benchSandbox(program, options);
  const [fenced, plain] = [median(fencedMs), median(plainMs)];
  return [
    {
      name: 'from the start of a program to its first word, in the sandbox against without, p50',
      value: `${round(fenced)} ms`,
      bound: `${round(plain)} ms`,
      result: `+${round(fenced - plain)} ms`,
      goal: `≤ +${MAX_SANDBOX_MS} ms`,
      met: fenced - plain <= MAX_SANDBOX_MS,
      amounts: { ours: fenced, bound: plain, goal: plain + MAX_SANDBOX_MS },
    },
    ratioFigure({
      name: 'lines of 200 characters read from a program in the sandbox against without',
      unit: 'lines/s',
      ours: fencedLines,
      bound: plainLines,
      goal: MIN_RATE,
    }),
  ];
}

async function repositoryFigures(options: Parameters['repository']): Promise<readonly Figure[]> {
  const { checkpointMs, searchMs, ripgrepMs } = await benchRepository(findRipgrep().folder, options);
  const files = `${round(options.files)} files`;
  const saved = limitFigure({
    name: `saving a repository of ${files} before a turn, one of them changed, p50`,
    unit: 'ms',
    value: median(checkpointMs),
    goal: MAX_CHECKPOINT_MS,
  });
  if (searchMs.length === 0) return [saved];
  const ratio = median(searchMs.map((ms, index) => ms / (ripgrepMs[index] ?? Number.NaN)));
  const [ours, bound] = [median(searchMs), median(ripgrepMs)];
  return [
    saved,
    {
      name: `search of the built-in agent in ${files} against ripgrep alone`,
      value: `${round(ours)} ms`,
      bound: `${round(bound)} ms`,
      result: ratio.toFixed(2),
      goal: `≤ ${MAX_SEARCH}`,
      met: ratio <= MAX_SEARCH,
      amounts: { ours, bound, goal: MAX_SEARCH * bound },
    },
  ];
}
