import type { Figure, Table } from './figure.ts';

/** A table as Markdown, under a heading of its own. A goal that was missed says so. */
export function toMarkdown({ title, figures }: Table): string {
  return [
    `### ${title}`,
    '',
    '| what | measured | bound in the same run | ratio | goal | |',
    '| --- | --- | --- | --- | --- | --- |',
    ...figures.map((figure) => `| ${cellsOf(figure).join(' | ')} |`),
    '',
  ].join('\n');
}

function cellsOf({ name, value, bound, result, goal, met }: Figure): readonly string[] {
  return [name, value, bound, result, goal, goal === '' ? '' : met ? 'met' : '**missed**'];
}
