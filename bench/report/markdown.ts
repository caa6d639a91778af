import type { Table } from './figure.ts';

/** Tables as Markdown. A goal that was missed says so. */
export function toMarkdown(tables: readonly Table[]): string {
  return tables.map(tableText).join('\n');
}

function tableText({ title, figures }: Table): string {
  const rows = figures.map(({ name, value, bound, result, goal, met }) =>
    [name, value, bound, result, goal, met ? 'met' : '**missed**'].join(' | '),
  );
  return [
    `### ${title}`,
    '',
    '| what | measured | bound in the same run | ratio | goal | |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows.map((row) => `| ${row} |`),
    '',
  ].join('\n');
}
