import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, type Operation, type StoredAccounts } from '../faults/accounts/check-operations.ts';

const when = { startedAt: 1000, endedAt: 1010, outcome: 'ok' } as const;

const stored: StoredAccounts = {
  users: new Map([['ann@example.org', { id: 'usr_1', lastStep: 70, hasTotp: true }]]),
  refreshTokens: new Map([
    ['r0', { sessionId: 'ses_1', generation: 0, usedAt: 1005 }],
    ['r1', { sessionId: 'ses_1', generation: 1, usedAt: null }],
    ['gone', { sessionId: 'ses_2', generation: 0, usedAt: null }],
  ]),
  sessions: new Map([['ses_1', 1]]),
  integrity: 'ok',
};

const good: readonly Operation[] = [
  { ...when, kind: 'register', email: 'ann@example.org', userId: 'usr_1' },
  { ...when, kind: 'login', email: 'ann@example.org', refresh: 'r0' },
  { ...when, kind: 'login', email: 'ann@example.org', refresh: 'gone' },
  { ...when, kind: 'refresh', used: 'r0', next: 'r1' },
  { ...when, kind: 'refresh', used: 'r0', next: 'r1', startedAt: 9000 },
  { ...when, kind: 'code', email: 'ann@example.org', step: 70 },
  { ...when, kind: 'end', refresh: 'gone' },
  { ...when, kind: 'check', refresh: 'gone', outcome: 'fail', startedAt: 2000, endedAt: 2010 },
  { ...when, kind: 'check', refresh: 'r1' },
];

test('a run in which everything held has no violation', () => {
  assert.deepEqual(checkOperations(good, stored), []);
});

const violations: Readonly<Record<string, { also?: Operation; instead?: Partial<StoredAccounts> }>> = {
  'the file is damaged': { instead: { integrity: 'row missing' } },
  'the registered user ben@example.org is lost': {
    also: { ...when, kind: 'register', email: 'ben@example.org', userId: 'usr_2' },
  },
  'a session of ann@example.org is lost': {
    also: { ...when, kind: 'login', email: 'ann@example.org', refresh: 'never' },
  },
  'step 71 of ann@example.org was accepted and is forgotten': {
    also: { ...when, kind: 'code', email: 'ann@example.org', step: 71 },
  },
  'step 70 of ann@example.org was accepted twice': {
    also: { ...when, kind: 'code', email: 'ann@example.org', step: 70 },
  },
  'the rotation r1 -> r2 is lost': { also: { ...when, kind: 'refresh', used: 'r1', next: 'r2' } },
  'is not the one that is stored': { also: { ...when, kind: 'refresh', used: 'r0', next: 'gone' } },
  'was undone': { instead: { sessions: new Map([['ses_1', 0]]) } },
  'ms after its first use': { also: { ...when, kind: 'refresh', used: 'r0', next: 'r1', startedAt: 12_000 } },
  'has two refresh tokens': {
    instead: {
      refreshTokens: new Map([...stored.refreshTokens, ['fork', { sessionId: 'ses_1', generation: 1, usedAt: null }]]),
    },
  },
  'session ses_2 was ended and is there': {
    instead: {
      sessions: new Map([
        ['ses_1', 1],
        ['ses_2', 0],
      ]),
    },
  },
  'session ses_2 was ended, and then a check was answered': {
    also: { ...when, kind: 'check', refresh: 'gone', startedAt: 3000 },
  },
  'session ses_1 was refused too early': { also: { ...when, kind: 'check', refresh: 'r1', outcome: 'fail' } },
  'session ses_1 is gone, and nobody has ended it': { instead: { sessions: new Map() } },
};

for (const [problem, { also, instead }] of Object.entries(violations)) {
  test(`it is found when ${problem}`, () => {
    const found = checkOperations(also === undefined ? good : [...good, also], { ...stored, ...instead });
    assert.ok(
      found.some((text) => text.includes(problem)),
      found.join('\n'),
    );
  });
}
