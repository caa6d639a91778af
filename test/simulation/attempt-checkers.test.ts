import assert from 'node:assert/strict';
import { test } from 'node:test';
import type {
  AskedEvent,
  AttemptsEvent,
  CallEvent,
  StoredUsage,
  TryEvent,
} from '../faults/simulation/completions/attempt-events.ts';
import { checkAttempts } from '../faults/simulation/completions/check-attempts.ts';

const targets = [
  { model: 'x/m', weight: 1, priority: 1 },
  { model: 'y/m', weight: 1, priority: 2 },
];
const alias = { name: 'fast', targets, fallbacks: [], retries: 1, totalMs: 4000 };
const setUp: AttemptsEvent = { kind: 'set-up', fails: 0, isSlow: 0, aliases: [alias], budgetUsd: 1 };
const asked: AskedEvent = {
  kind: 'asked',
  at: 10,
  ask: 1,
  call: 'call 1',
  target: 'x/m',
  part: 'answers',
  idempotencyKey: 'i',
};
const told: AttemptsEvent = { kind: 'told', at: 20, ask: 1, text: '1.0 ', promptTokens: 1, completionTokens: 2 };
const call: CallEvent = {
  kind: 'call',
  call: 'call 1',
  model: 'fast',
  keyName: 'bound',
  startedAt: 10,
  endedAt: 20,
  outcome: 'ok',
  text: '1.0 ',
  target: 'x/m',
  attempts: 1,
  estimatedUsd: 0.5,
};
const record = {
  id: 'usg_1',
  at: 1,
  key_id: 'key_1',
  owner: '',
  team: '',
  tags: '',
  model: 'fast',
  api: 'x',
  upstream_model: 'm',
  operation: 'chat',
  prompt_tokens: 1,
  completion_tokens: 2,
  cost_nano_usd: 500_000_000,
  price_known: 1,
  estimated: 0,
  outcome: 'ok',
  status: 200,
  attempts: 1,
  duration_ms: 10,
  first_token_ms: 10,
  request_id: 'call 1',
  cached_tokens: 0,
  cache_write_tokens: 0,
  reasoning_tokens: 0,
  failures: '',
};
const { key_id, owner, team, tags, model, api, outcome } = record;
const total = { quarter: 1, id: 'a', key_id, owner, team, tags, model, api, outcome, requests: 1, errors: 0 };
const stored: StoredUsage = {
  records: [record],
  totals: [{ ...total, prompt_tokens: 1, completion_tokens: 2, cost_nano_usd: 500_000_000 }],
  spending: [{ key_id: 'key_1', period: 'total', cost_nano_usd: 500_000_000 }],
  keys: [{ id: 'key_1', name: 'bound' }],
};
const none: StoredUsage = { ...stored, records: [], totals: [], spending: [] };
const good: readonly AttemptsEvent[] = [setUp, asked, told, call];
const refused: CallEvent = { ...call, outcome: 'fail', code: 'UPSTREAM_ERROR' };
const { text: _text, target: _target, attempts: _attempts, ...refusal } = refused;

const tried = (at: number, lease: number, mark: TryEvent['mark']): AttemptsEvent => ({
  kind: 'try',
  at,
  target: 'x/m',
  lease,
  mark,
  caller: lease % 2 === 0 ? 'even' : 'odd',
  isSole: false,
});
const failing = (from: number): AttemptsEvent[] =>
  Array.from({ length: 10 }, (_, index) => from + index).flatMap((at) => [
    tried(at, 100 + at, 'begins'),
    tried(at, 100 + at, 'failed'),
  ]);

test('a run of calls in which everything held has no violations', () => {
  assert.deepEqual(checkAttempts(good, stored, 0), []);
  const out = [
    ...failing(0),
    tried(100, 5, 'out'),
    tried(30_100, 6, 'begins'),
    tried(30_101, 7, 'out'),
    tried(30_200, 6, 'ok'),
  ];
  assert.deepEqual(checkAttempts([setUp, ...out, tried(30_201, 8, 'begins')], none, 0), []);
  assert.deepEqual(
    checkAttempts([setUp, ...failing(0), { kind: 'start', at: 50 }, tried(60, 1, 'begins')], none, 0),
    [],
  );
});

test('a call and each fallback that it goes on with may end a moment late', () => {
  const spare = { ...alias, name: 'spare' };
  const both: AttemptsEvent = { ...setUp, aliases: [{ ...alias, fallbacks: ['spare'] }, spare] } as AttemptsEvent;
  const late = (ms: number) => checkAttempts([both, asked, { ...refusal, endedAt: refusal.startedAt + ms }], none, 0);
  assert.deepEqual(late(8120), []);
  assert.match(late(8121).join(), /was refused 8121 ms after its beginning, and had 8000 ms/);
});

test('each thing that must not happen to a call is found', () => {
  const again = { ...asked, ask: 2 };
  const wrong: readonly [what: RegExp, events: readonly AttemptsEvent[], stored: StoredUsage][] = [
    [/says 1 attempts, and 2 arrived/, [setUp, asked, again, told, call], stored],
    [/changed its idempotency key/, [setUp, asked, { ...again, idempotencyKey: 'j' }, told, call], stored],
    [/tried after its end/, [setUp, { ...asked, at: 30 }, told, call], stored],
    [/too often or too late: x\/m/, [setUp, asked, again, { ...again, ask: 3 }, refusal], none],
    [/too often or too late: x\/m at 4010/, [setUp, { ...asked, at: 4010 }, { ...refusal, endedAt: 4011 }], none],
    [/too often or too late: x\/m/, [setUp, { ...asked, target: 'y/m' }, again, refusal], none],
    [/was refused 5000 ms after/, [setUp, asked, { ...refusal, endedAt: 5010 }], none],
    [/and x\/m said "undefined"/, [setUp, asked, call], stored],
    [/answered by y\/m/, [setUp, asked, told, { ...call, target: 'y/m' }], stored],
    [/which x\/m never said/, [setUp, asked, { ...call, outcome: 'part', text: 'made up' }], stored],
    [/while it was out/, [setUp, ...failing(0), tried(100, 6, 'begins')], none],
    [/though it was not out/, [setUp, tried(100, 6, 'out')], none],
    [/while it was out/, [setUp, ...failing(0), tried(40_000, 6, 'begins'), tried(40_001, 7, 'begins')], none],
    [/recorded twice/, good, { ...stored, records: [record, record] }],
    [/nobody made it/, [setUp], stored],
    [/recorded as error/, good, { ...stored, records: [{ ...record, outcome: 'error' }] }],
    [/recorded for y\/m/, good, { ...stored, records: [{ ...record, api: 'y' }] }],
    [/recorded with 2 attempts/, good, { ...stored, records: [{ ...record, attempts: 2 }] }],
    [/is not recorded/, good, none],
    [/and 0 counted/, good, { ...stored, totals: [] }],
    [/counts against its budget/, good, { ...stored, spending: [] }],
    [/was spent of a budget of 0.1/, [{ ...setUp, budgetUsd: 0.1 } as AttemptsEvent, asked, told, call], stored],
  ];
  for (const [what, events, usage] of wrong) {
    const violations = checkAttempts(events, usage, 0);
    assert.ok(
      violations.some((violation) => what.test(violation)),
      `${what} is not among ${JSON.stringify(violations)}`,
    );
  }
  assert.deepEqual(checkAttempts(good, stored, 2), ['2 calls were never answered']);
});
