import type { FaultFigure } from './fault-suite.ts';

export interface SuiteRun {
  readonly suite: string;
  readonly cycles: number;
  readonly seed: number;
  readonly load?: number | undefined;
  readonly figures: readonly FaultFigure[];
  /** As `2026-11-15`, and of which commit. */
  readonly date: string;
  readonly commit: string;
}

const HEADING = '## Faults';
const INTRODUCTION = `${HEADING}

Figures of \`npm run faults\`: something is broken again and again, and what clients were told is compared with what is
stored at the end. The same seed gives the same faults, as far as time allows.
`;

/** A goal that was missed says so. */
export function figuresTable(figures: readonly FaultFigure[]): string {
  const rows = figures.map(({ name, value, goal, met }) => {
    const cells = [name, value, goal, verdict(goal, met)].map((cell) => cell.replaceAll('|', String.raw`\|`));
    return `| ${cells.join(' | ')} |`;
  });
  return ['| what | measured | goal | |', '| --- | --- | --- | --- |', ...rows, ''].join('\n');
}

/** The document with the section of this run in place of the one of an earlier run; nothing else is touched. */
export function withSuiteRun(document: string, run: SuiteRun): string {
  const [before, fromFaults] = splitAt(document, `${HEADING}\n`);
  const [inFaults, after] = splitAt(fromFaults.trim().slice(HEADING.length), '## ');
  const faults = fromFaults === '' ? '' : `${HEADING}${inFaults}`;
  const heading = `### ${run.suite}\n`;
  const [earlier, rest] = splitAt(faults === '' ? INTRODUCTION : faults, heading);
  const [, later] = splitAt(rest.slice(heading.length), '### ');
  return [before, earlier, sectionOf(run), later, after]
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .join('\n\n')
    .concat('\n');
}

function sectionOf({ suite, cycles, seed, load, figures, date, commit }: SuiteRun): string {
  const loaded = load === undefined ? '' : ` --load ${load}`;
  const command = `npm run faults -- ${suite} --cycles ${cycles} --seed ${seed}${loaded} --write`;
  return `### ${suite}\n\nWritten by \`${command}\` on ${date}, of commit ${commit}.\n\n${figuresTable(figures)}`;
}

function verdict(goal: string, met: boolean): string {
  if (!met) return '**missed**';
  return goal === '' ? '' : 'met';
}

/** Before and from the first line that starts so; all of it before when there is none. */
function splitAt(text: string, start: string): readonly [string, string] {
  const at = `\n${text}`.indexOf(`\n${start}`);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at)];
}
