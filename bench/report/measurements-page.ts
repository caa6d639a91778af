import type { Table } from './figure.ts';
import { toMarkdown } from './markdown.ts';

/** What one suite measured, and how. */
export interface SuiteReport {
  readonly suite: string;
  readonly command: string;
  readonly isQuick: boolean;
  /** As `2026-11-15`. */
  readonly date: string;
  readonly machine: string;
  readonly versions: string;
  readonly tables: readonly Table[];
}

const INTRODUCTION = `# Measurements

Every figure stands beside its bound, or beside a peer, measured in the same run on the same machine; rounds of both take turns,
ratios are taken round by round and their median is shown with half the spread of the middle half. \`npm run bench -- --write\`
writes the sections of all suites, \`npm run bench -- bridge --write\` one of them, \`npm run faults -- --write\` those of
faults, and \`--write\` of \`npm run coverage\` and \`npm run mutation\` those of the last part. What lies close to its goal, and why: [notes](measurements-notes.md).
`;

/** Faults, and what follows them, are written by other programs. They stand last, and stay as they are. */
const FAULTS = '## Faults';

/** The page with new sections for the suites that were run, and with all others as they were; what people wrote comes first. */
export function updatePage(page: string, reports: readonly SuiteReport[], order: readonly string[]): string {
  const { sections, faults } = readPage(page);
  for (const report of reports) sections.set(headingOf(report.suite), sectionText(report));
  const headings = order.map(headingOf);
  const others = [...sections.keys()].filter((heading) => !headings.includes(heading));
  const kept = [...others, ...headings].flatMap((heading) => sections.get(heading) ?? []);
  return [INTRODUCTION, ...kept, ...(faults === '' ? [] : [faults])].join('\n');
}

/** The name of a table's picture in `docs/measurements/`. */
export function chartName(title: string): string {
  const words = title.toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return `${words.join('-')}.svg`;
}

function readPage(page: string): { sections: Map<string, string>; faults: string } {
  const faultsAt = `\n${page}`.indexOf(`\n${FAULTS}\n`);
  const before = faultsAt === -1 ? page : page.slice(0, faultsAt);
  const sections = new Map<string, string>();
  for (const section of before.split(/^(?=## )/m).slice(1)) {
    sections.set(section.slice(0, section.indexOf('\n')), `${section.trimEnd()}\n`);
  }
  return { sections, faults: faultsAt === -1 ? '' : page.slice(faultsAt) };
}

function headingOf(suite: string): string {
  return `## ${suite.slice(0, 1).toUpperCase()}${suite.slice(1)}`;
}

function sectionText({ suite, command, isQuick, date, machine, versions, tables }: SuiteReport): string {
  const length = isQuick ? ' A short run: a sign, not a result.' : '';
  return [
    headingOf(suite),
    '',
    `Written by \`${command}\` on ${date}.${length}`,
    '',
    `- Machine: ${machine}`,
    `- ${versions}`,
    '',
    ...tables.flatMap((table) => [toMarkdown(table), `![${table.title}](measurements/${chartName(table.title)})`, '']),
  ]
    .join('\n')
    .trimEnd()
    .concat('\n');
}
