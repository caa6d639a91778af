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
  // A division by nothing measured must not become a row of the page.
  if (/NaN|∞/.test(`${value} ${bound} ${result}`))
    throw new Error(`${name} was not measured: ${value} ${bound} ${result}`);
  return [name, value, bound, result, goal, goal === '' ? '' : met ? 'met' : '**missed**'];
}
