import { relative } from 'node:path';
import { withPart } from '../measurements-part.ts';
import type { Mutant, Share } from './run-stryker.ts';

/** Of the mutants that could run, in percent. */
const GOAL = 80;
const DETECTED = new Set(['Killed', 'Timeout']);
const UNDETECTED = new Set(['Survived', 'NoCoverage']);
const WIDEST_REPLACEMENT = 60;

export interface AreaResult {
  readonly area: string;
  /** Those that were tried. */
  readonly mutants: readonly Mutant[];
  /** How many there are, with those that were not tried. */
  readonly found: number;
}

/** How an area was judged, for those who want to see the same again. */
export interface AreaRun {
  readonly result: AreaResult;
  readonly share: Share;
  /** As `2026-11-18`. */
  readonly date: string;
  readonly commit: string;
}

/** The page of measurements with the row of this run in place of that of an earlier one. */
export function withAreaRun(page: string, { result, share, date, commit }: AreaRun): string {
  const choice = share.percent === 100 ? '' : ` --share ${share.percent} --seed ${share.seed}`;
  const command = `npm run mutation -- ${result.area}${choice} --write`;
  const text = `Written by \`${command}\` on ${date}, of commit ${commit}.\n\n${mutationTable([result])}`;
  return withPart(page, { part: `mutation: ${result.area}`, text });
}

/** One row per area, with the goal: one that was missed says so. */
export function mutationTable(results: readonly AreaResult[]): string {
  const rows = results.map(({ area, mutants, found }) => {
    const score = scoreOf(mutants);
    const verdict = score >= GOAL ? 'met' : '**missed**';
    return `| ${[area, found, ...counts(mutants), scoreText(mutants, found), `≥ ${GOAL} %`, verdict].join(' | ')} |`;
  });
  return [
    '| area | mutants | tried | killed | timed out | survived | reached by no test | could not run | score | goal | |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

/** One row per file of an area, the lowest first. */
export function filesTable(mutants: readonly Mutant[], project: string): string {
  const files = [...Map.groupBy(mutants, ({ fileName }) => relative(project, fileName))];
  const rows = files
    .toSorted(([, a], [, b]) => scoreOf(a) - scoreOf(b))
    .map(([file, inside]) => `| ${[file, ...counts(inside), percent(scoreOf(inside))].join(' | ')} |`);
  return [
    '| file | mutants | killed | timed out | survived | reached by no test | could not run | score |',
    '| --- | --- | --- | --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

/** What no test noticed: where it is, what was done to it, and what stood there instead. */
export function survivors(mutants: readonly Mutant[], project: string): string {
  return placesOf(mutants, UNDETECTED, project);
}

/** Mutants that count as noticed because their tests did not come to an end, so that anyone can check that this was the mutant. */
export function timeouts(mutants: readonly Mutant[], project: string): string {
  return placesOf(mutants, new Set(['Timeout']), project);
}

function placesOf(mutants: readonly Mutant[], statuses: ReadonlySet<string>, project: string): string {
  return mutants
    .filter(({ status }) => statuses.has(status))
    .toSorted((a, b) => a.fileName.localeCompare(b.fileName) || a.location.start.line - b.location.start.line)
    .map(({ fileName, location, mutatorName, replacement, status }) => {
      const place = `${relative(project, fileName)}:${location.start.line}`;
      const how = { NoCoverage: ' (reached by no test)', Timeout: ' (timed out)' }[status] ?? '';
      return `${place}: ${mutatorName}: ${oneLine(replacement)}${how}`;
    })
    .join('\n');
}

function scoreOf(mutants: readonly Mutant[]): number {
  const detected = mutants.filter(({ status }) => DETECTED.has(status)).length;
  const undetected = mutants.filter(({ status }) => UNDETECTED.has(status)).length;
  return detected + undetected === 0 ? 100 : (100 * detected) / (detected + undetected);
}

function counts(mutants: readonly Mutant[]): readonly number[] {
  const of = (status: string): number => mutants.filter((mutant) => mutant.status === status).length;
  const known = [of('Killed'), of('Timeout'), of('Survived'), of('NoCoverage')];
  return [mutants.length, ...known, mutants.length - known.reduce((sum, count) => sum + count, 0)];
}

/** Of a sample also between which scores that of all mutants lies in 19 of 20 samples (Wilson's interval). */
function scoreText(mutants: readonly Mutant[], found: number): string {
  const tried = mutants.filter(({ status }) => DETECTED.has(status) || UNDETECTED.has(status)).length;
  const score = scoreOf(mutants);
  if (mutants.length === found || tried === 0) return percent(score);
  const share = score / 100;
  const [z, n] = [1.96, tried];
  const middle = (share + z ** 2 / (2 * n)) / (1 + z ** 2 / n);
  const half = (z * Math.sqrt((share * (1 - share)) / n + z ** 2 / (4 * n ** 2))) / (1 + z ** 2 / n);
  return `${percent(score)} (${Math.floor(100 * (middle - half))} to ${Math.ceil(100 * (middle + half))} %)`;
}

/** Rounded down, so that a goal just missed does not look met. */
function percent(value: number): string {
  return `${(Math.floor(value * 10) / 10).toFixed(1)} %`;
}

function oneLine(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ');
  return line.length > WIDEST_REPLACEMENT ? `${line.slice(0, WIDEST_REPLACEMENT)}…` : line;
}
