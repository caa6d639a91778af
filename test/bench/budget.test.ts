import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type CpuProfile, RULES, sharesOf } from '../../bench/budget/areas.ts';
import { budgetTable, type Measured } from '../../bench/budget/budget-table.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SOURCE = 'file:///program/src/platform/';

function node(id: number, functionName: string, url = '', children: readonly number[] = []) {
  return { id, callFrame: { functionName, url }, children };
}

/** The main thread reads a request, parses it with a native function, writes a response, collects garbage and waits. */
const PROFILE: CpuProfile = {
  nodes: [
    node(1, '(root)', '', [2, 6, 7, 8]),
    node(2, 'onStreamRead', 'node:internal/stream_base_commons', [3, 5]),
    node(3, 'parseJson', `${SOURCE}json/parse-json.ts`, [4]),
    node(4, 'parse'),
    node(5, 'send', `${SOURCE}http/surface.ts`, [9]),
    node(6, '(garbage collector)'),
    node(7, '(idle)'),
    node(8, 'unknown', 'node:internal/something'),
    node(9, 'bearerToken', `${SOURCE}http/surface.ts`),
  ],
  samples: [2, 4, 5, 6, 7, 8, 9],
  timeDeltas: [0, 100, 300, 200, 100, 5000, 100, 200],
};

test('a sample belongs to the nearest of its callers that a rule names, and waiting is not work', () => {
  assert.deepEqual(Object.fromEntries(sharesOf(PROFILE)), {
    reading: 0.1,
    parsing: 0.3,
    response: 0.2,
    'garbage collection': 0.1,
    other: 0.1,
    guard: 0.2,
  });
});

test('areas are listed by size, and their shares add up', () => {
  const shares = [...sharesOf(PROFILE).values()];
  assert.deepEqual(
    shares,
    shares.toSorted((a, b) => b - a),
  );
  assert.equal(Math.round(shares.reduce((sum, share) => sum + share, 0) * 1e9), 1e9);
});

test('every rule for our own sources names files that are there', () => {
  const files = ['src', 'bench'].flatMap((folder) =>
    readdirSync(`${ROOT}${folder}`, { recursive: true, encoding: 'utf8' }).map((file) => `${folder}/${file}`),
  );
  for (const [area, file] of RULES) {
    if (!/^(?:src|bench)\//.test(file)) continue;
    assert.ok(
      files.some((each) => each.includes(file)),
      `${area}: ${file}`,
    );
  }
});

const OURS: Measured = {
  all: [100, 110, 120],
  main: [80, 80, 80],
  perSecond: [700, 700, 700],
  shares: new Map([
    ['response', 0.5],
    ['parsing', 0.25],
    ['metering', 0.2],
    ['log', 0.048],
    ['strange', 0.002],
  ]),
};
const BOUND = {
  name: 'a bound',
  all: [60, 90, 60],
  main: [50, 50, 50],
  perSecond: [1000, 1000, 1000],
  shares: new Map([['response', 0.8]]),
};

function linesOf(budget: Parameters<typeof budgetTable>[0]): string[] {
  return budgetTable(budget).figures.map(({ name, value, bound, result, goal, met }) =>
    [name, value, bound, result, goal, goal === '' ? '' : met ? 'met' : 'missed'].join(' | '),
  );
}

test('a budget has the total beside its bound, each area beside its goal, and what is over it says so', () => {
  const goals = { added: 25, rate: 0.75, areas: { parsing: 20, metering: 10, guard: 1 } };
  assert.deepEqual(linesOf({ title: 'x', unit: 'call', ours: OURS, bound: BOUND, goals }), [
    'processor time of one call, all threads, against a bound | 110 µs | 60.0 µs | +40.0 µs (±10.0) | ≤ +25 µs | missed',
    'calls a second, against a bound | 700 calls/s | 1,000 calls/s | 0.70 (±0.00) | ≥ 0.75 | missed',
    'response | 40.0 µs | 40.0 µs |  | ≤ 40 µs | met',
    'parsing | 20.0 µs |  |  | ≤ 20 µs | met',
    'metering | 16.0 µs |  |  | ≤ 10 µs | missed',
    'log | 3.84 µs |  |  |  | ',
    'guard | 0.00 µs |  |  | ≤ 1 µs | met',
    'areas below half a percent | 0.16 µs |  |  |  | ',
    'other threads: database, compiler, garbage collection | 30.0 µs |  |  |  | ',
  ]);
});

test('an area that the bound has as well may take its goal on top of what the bound takes', () => {
  const goals = { areas: { parsing: 1 } };
  const bound = { ...BOUND, shares: new Map([['parsing', 0.4]]) };
  const parsing = linesOf({ title: 'x', unit: 'call', ours: OURS, bound, goals }).find((line) =>
    line.startsWith('parsing'),
  );
  assert.equal(parsing, 'parsing | 20.0 µs | 20.0 µs |  | ≤ 21 µs | met');
});

test('what follows one another is compared by its time, too', () => {
  const turns = { ...OURS, perSecond: [200, 250, 200] };
  const [, time] = linesOf({ title: 'x', unit: 'turn', ours: turns, bound: BOUND, goals: { addedMs: 3.5 } });
  assert.equal(
    time,
    'time of one turn, one after the other, against a bound | 5.00 ms | 1.00 ms | +4.00 ms (±0.50) | ≤ +3.5 ms | missed',
  );
});

test('without a bound, and without goals, figures are only shown', () => {
  const lines = linesOf({ title: 'x', unit: 'submit', ours: OURS, goals: {} });
  assert.equal(lines[0], 'processor time of one submit, all threads | 110 µs |  |  |  | ');
  assert.ok(lines.every((line) => line.endsWith(' | ')));
});
