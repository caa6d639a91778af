import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drawChart } from '../../bench/report/chart.ts';
import { limitFigure, ratioFigure, type Table } from '../../bench/report/figure.ts';

const TABLE: Table = {
  title: 'Bridge: <turns> & sockets',
  figures: [
    ratioFigure({ name: 'calls against a bound', unit: 'calls/s', ours: [50, 50], bound: [100, 100], goal: 0.75 }),
    ratioFigure({ name: 'against a `peer`', unit: 'calls/s', ours: [80], bound: [20], goal: 2, isPeer: true }),
    limitFigure({ name: 'lost', unit: 'calls', value: 0, goal: 0 }),
    { name: 'shown', value: '', bound: '7 ms', result: '', goal: '', met: true, amounts: { bound: 7 } },
  ],
};

/** Width of each bar, by its side, in the order of the picture. */
function barsOf(chart: string): string[] {
  return [...chart.matchAll(/<rect class="(ours|bound|peer)" x="\d+" y="\d+" width="(\d+)"/g)].map(
    ([, side, width]) => `${side} ${width}`,
  );
}

test('bars are as long as their amounts, on a scale of each figure, and the longest fills the space', () => {
  assert.deepEqual(barsOf(drawChart(TABLE)), ['ours 280', 'bound 560', 'ours 560', 'peer 140', 'ours 1', 'bound 560']);
});

test('the mark of the goal stands where a bar that just meets it would end', () => {
  const marks = [...drawChart(TABLE).matchAll(/<line class="goal" x1="(\d+)"/g)].map(([, x]) => Number(x) - 64);
  assert.deepEqual(marks, [420, 280, 0]);
});

test('a goal that was missed is said to be missed, in the picture and in its description', () => {
  const chart = drawChart(TABLE);
  assert.match(chart, /class="small missed"[^>]*>goal ≥ 0\.75: missed, 0\.50/);
  assert.match(
    chart,
    /<desc id="desc">calls against a bound: ours 50\.0 calls\/s, bound 100 calls\/s, goal ≥ 0\.75: missed/,
  );
  assert.equal(chart.match(/missed,/g)?.length, 2);
});

test('a chart has a title and a description for readers who do not see it, and no markup from names', () => {
  const chart = drawChart(TABLE);
  assert.match(chart, /role="img" aria-labelledby="title desc"/);
  assert.match(chart, /<title id="title">Bridge: &lt;turns&gt; &amp; sockets<\/title>/);
  assert.ok(!chart.includes('`') && !chart.includes('<turns>'));
});

test('a chart is readable in light and in dark mode', () => {
  assert.match(drawChart(TABLE), /prefers-color-scheme: dark/);
});

test('a long name goes over several lines, and none of it is lost', () => {
  const words = Array.from({ length: 60 }, (_, index) => `word${index}`);
  const chart = drawChart({
    title: 't',
    figures: [limitFigure({ name: words.join(' '), unit: 'ms', value: 1, goal: 2 })],
  });
  const lines = [...chart.matchAll(/<text x="12" y="\d+">([^<]*)</g)].map(([, line]) => line ?? '');
  assert.ok(lines.length > 2 && lines.every((line) => line.length <= 110));
  assert.equal(lines.join(' '), words.join(' '));
});

test('the same table gives the same picture', () => {
  assert.equal(drawChart(TABLE), drawChart(structuredClone(TABLE)));
});
