import { AREAS, areaOf, GOALS } from './areas.ts';
import type { FileReach, Reach } from './measure-files.ts';

const MAX_FILES = 40;

/** How the figures came about. */
export interface CoverageRun {
  readonly command: string;
  /** As `2026-11-18`. */
  readonly date: string;
  readonly commit: string;
  readonly hasFailed: boolean;
}

/** By folder; then the core against its goals; then what lies lowest in the core. */
export function coverageReport(files: readonly FileReach[]): string {
  const core = files.filter(({ path }) => areaOf(path)?.isCore);
  const low = lowest(core);
  return [
    '| folder | core | lines of code | reached | branches | reached |',
    '| --- | --- | --- | --- | --- | --- |',
    ...[...Map.groupBy(files, ({ path }) => folderOf(path))].sort(([a], [b]) => (a < b ? -1 : 1)).map(folderRow),
    '',
    ...AREAS.map(({ name, isCore, because }) => `${name}: ${isCore ? 'the core' : 'not the core'}, since ${because}.`),
    '',
    `${low.length} files of the core lie below a goal:`,
    '',
    ...low.slice(0, MAX_FILES).map(fileRow),
    ...(low.length > MAX_FILES ? [`         and ${low.length - MAX_FILES} more`] : []),
    '',
    ...goalTable(sum(core)),
  ].join('\n');
}

/** What the page of measurements shows of a run. */
export function coverageText(files: readonly FileReach[], run: CoverageRun): string {
  const failed = run.hasFailed ? ' Some tests failed: what came after a failure in them was not reached.' : '';
  const core = files.filter(({ path }) => areaOf(path)?.isCore);
  return [
    `Written by \`${run.command}\` on ${run.date}, of commit ${run.commit}.${failed}`,
    '',
    ...goalTable(sum(core)),
  ].join('\n');
}

/** A goal that was missed says so. */
function goalTable(core: Reach): readonly string[] {
  const row = (name: string, value: number, goal: number): string =>
    `| ${name} | ${percent(value)} | ≥ ${goal} % | ${value >= goal ? 'met' : '**missed**'} |`;
  return [
    '| what | measured | goal | |',
    '| --- | --- | --- | --- |',
    row('lines of the core', linesShare(core), GOALS.lines),
    row('branches of the core', branchesShare(core), GOALS.branches),
  ];
}

function lowest(files: readonly FileReach[]): readonly FileReach[] {
  return files
    .filter((file) => linesShare(file) < GOALS.lines || branchesShare(file) < GOALS.branches)
    .toSorted((a, b) => linesShare(a) - linesShare(b) || branchesShare(a) - branchesShare(b));
}

function folderRow([folder, files]: readonly [string, readonly FileReach[]]): string {
  const isCore = files.some(({ path }) => areaOf(path)?.isCore);
  const reach = sum(files);
  const branches = reach.branches === 0 ? '' : percent(branchesShare(reach));
  const cells = [folder, isCore ? 'yes' : '', reach.lines, percent(linesShare(reach)), reach.branches, branches];
  return `| ${cells.join(' | ')} |`;
}

function fileRow(file: FileReach): string {
  const lines = percent(linesShare(file)).padStart(7);
  if (!file.loaded) return `${lines}  ${file.path}: loaded by no test`;
  const missed = file.missedLines.length === 0 ? '' : `; not lines ${ranges(file.missedLines)}`;
  return `${lines}  ${file.path}: ${file.branchesReached} of ${file.branches} branches${missed}`;
}

/** `src/bridge/jobs` for what lies in it or below, `src/bridge` for what lies there directly. Pages are by themselves. */
function folderOf(path: string): string {
  const [inBrowser] = /^.*\/browser(?=\/)/.exec(path) ?? [];
  return inBrowser ?? path.split('/').slice(0, -1).slice(0, 3).join('/');
}

function sum(parts: readonly Reach[]): Reach {
  const total = (count: (part: Reach) => number): number => parts.reduce((so, part) => so + count(part), 0);
  return {
    lines: total(({ lines }) => lines),
    linesReached: total(({ linesReached }) => linesReached),
    branches: total(({ branches }) => branches),
    branchesReached: total(({ branchesReached }) => branchesReached),
  };
}

function linesShare({ lines, linesReached }: Reach): number {
  return lines === 0 ? 100 : (100 * linesReached) / lines;
}

function branchesShare({ branches, branchesReached }: Reach): number {
  return branches === 0 ? 100 : (100 * branchesReached) / branches;
}

/** Rounded down, so that a goal just missed does not look met. */
function percent(value: number): string {
  return `${(Math.floor(value * 10) / 10).toFixed(1)} %`;
}

/** `3-5, 9` for 3, 4, 5 and 9. */
function ranges(numbers: readonly number[]): string {
  const found: { first: number; last: number }[] = [];
  for (const number of numbers) {
    const open = found.at(-1);
    if (open !== undefined && number === open.last + 1) open.last = number;
    else found.push({ first: number, last: number });
  }
  return found.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(', ');
}
