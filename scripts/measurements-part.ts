import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A part of the page of measurements that is written by itself. */
export interface PagePart {
  /** Its heading. */
  readonly part: string;
  readonly text: string;
}

const PROJECT = join(import.meta.dirname, '..');
const PAGE = join(PROJECT, 'docs', 'measurements.md');
const HEADING = '## Coverage and mutation';
const INTRODUCTION = `${HEADING}

How much of the program the tests reach, and how many small faults in the sources they notice. What is counted, and how:
[notes](measurements-notes.md#coverage-and-mutation).`;

/** The page with this part in place of the one of an earlier run; it stands last, and nothing else is touched. */
export function withPart(page: string, { part, text }: PagePart): string {
  const [before = '', own = INTRODUCTION] = page.split(new RegExp(`^(?=${HEADING}$)`, 'm'));
  const [introduction = '', ...parts] = own.split(/^(?=### )/m).map((one) => one.trim());
  const heading = `### ${part}\n`;
  const changed = `${heading}\n${text.trim()}`;
  const at = parts.findIndex((one) => one.startsWith(heading));
  const all = at === -1 ? [...parts, changed] : parts.with(at, changed);
  return `${[before.trim(), introduction, ...all].join('\n\n')}\n`;
}

/** Changes the page on disk. */
export async function changePage(change: (page: string) => string): Promise<void> {
  await writeFile(PAGE, change(await readFile(PAGE, 'utf8')));
}

/** When and of which commit a figure is. Changes that are not committed are said, too. */
export function runOf(now: Date): { readonly date: string; readonly commit: string } {
  const git = (...args: readonly string[]) => execFileSync('git', args, { cwd: PROJECT, encoding: 'utf8' }).trim();
  const isChanged = git('status', '--porcelain', '--', 'src', 'test') !== '';
  return {
    date: now.toISOString().slice(0, 10),
    commit: `${git('rev-parse', '--short=8', 'HEAD')}${isChanged ? ' with changes' : ''}`,
  };
}
