import type { Figure, Table } from './figure.ts';

const WIDTH = 860;
const LEFT = 64;
const BAR_SPACE = 560;
const BAR = 14;
const LINE = 18;
const GAP = 22;
const LETTERS_PER_LINE = 110;

const STYLE = `
  .page { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif } .small { fill: #59636e; font-size: 12px }
  .title { font-size: 15px; font-weight: 600 } .missed { fill: #b3261e; font-weight: 600 }
  .ours { fill: #0b6bcb } .bound { fill: #8b949e } .peer { fill: #b35900 } .goal { stroke: #1f2328; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 } .missed { fill: #ff8a80 }
    .ours { fill: #58a6ff } .bound { fill: #6e7681 } .peer { fill: #e3934a } .goal { stroke: #e6edf3 }
  }`;

interface Bar {
  readonly side: 'ours' | 'bound' | 'peer';
  readonly amount: number;
  readonly text: string;
}

/**
 * A table as an SVG picture: for each figure horizontal bars of what was measured and of what stands beside it, and a mark
 * at the goal. Units differ from figure to figure, so each has a scale of its own. The same table gives the same text.
 */
export function drawChart({ title, figures }: Table): string {
  const parts: string[] = [];
  let y = 56;
  for (const figure of figures) {
    const drawn = drawFigure(figure, y);
    parts.push(...drawn.parts);
    y = drawn.end + GAP;
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" width="${WIDTH}" height="${y}" role="img" aria-labelledby="title desc">`,
    `<title id="title">${escaped(title)}</title>`,
    `<desc id="desc">${escaped(figures.map(describe).join('; '))}</desc>`,
    `<style>${STYLE}\n</style>`,
    `<rect class="page" width="${WIDTH}" height="${y}"/>`,
    text('title', 12, 26, title),
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

function drawFigure(figure: Figure, top: number): { parts: readonly string[]; end: number } {
  const names = wrapped(plain(figure.name));
  const parts = names.map((line, index) => text('', 12, top + index * LINE, line));
  const barsTop = top + (names.length - 1) * LINE + 8;
  const bars = barsOf(figure);
  const { goal } = figure.amounts;
  const most = Math.max(...bars.map(({ amount }) => amount), goal ?? 0) || 1;
  const lengthOf = (amount: number): number => Math.round((Math.max(0, amount) / most) * BAR_SPACE);
  for (const [index, { side, amount, text: label }] of bars.entries()) {
    const y = barsTop + index * LINE;
    const length = lengthOf(amount);
    parts.push(
      text('small', 12, y + 11, side),
      `<rect class="${side}" x="${LEFT}" y="${y}" width="${Math.max(1, length)}" height="${BAR}" rx="2"/>`,
      text('small', LEFT + BAR_SPACE + 12, y + 11, label),
    );
  }
  const end = barsTop + bars.length * LINE;
  if (figure.goal === '') return { parts, end };
  if (goal !== undefined) {
    const x = LEFT + lengthOf(goal);
    parts.push(`<line class="goal" x1="${x}" y1="${barsTop - 3}" x2="${x}" y2="${end - 1}"/>`);
  }
  parts.push(text(figure.met ? 'small' : 'small missed', LEFT, end + 12, goalText(figure)));
  return { parts, end: end + LINE };
}

function barsOf({ value, bound, amounts }: Figure): readonly Bar[] {
  const bars: Bar[] = [];
  if (amounts.ours !== undefined) bars.push({ side: 'ours', amount: amounts.ours, text: value });
  if (amounts.bound !== undefined) bars.push({ side: 'bound', amount: amounts.bound, text: bound });
  if (amounts.peer !== undefined) bars.push({ side: 'peer', amount: amounts.peer, text: bound });
  return bars;
}

function goalText({ goal, result, met }: Figure): string {
  return `goal ${goal}: ${met ? 'met' : 'missed'}${result === '' ? '' : `, ${result}`}`;
}

function describe(figure: Figure): string {
  const sides = barsOf(figure).map(({ side, text: label }) => `${side} ${label}`);
  return [`${plain(figure.name)}: ${sides.join(', ')}`, ...(figure.goal === '' ? [] : [goalText(figure)])].join(', ');
}

function wrapped(name: string): readonly string[] {
  const lines: string[] = [''];
  for (const word of name.split(' ')) {
    const line = lines.at(-1) ?? '';
    if (line !== '' && line.length + word.length >= LETTERS_PER_LINE) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}

function text(classes: string, x: number, y: number, content: string): string {
  return `<text${classes === '' ? '' : ` class="${classes}"`} x="${x}" y="${y}">${escaped(content)}</text>`;
}

/** Names carry Markdown's marks of code. */
function plain(name: string): string {
  return name.replaceAll('`', '');
}

function escaped(content: string): string {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
