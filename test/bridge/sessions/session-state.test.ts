import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSessionTable } from '../../../src/bridge/sessions/live-session.ts';
import {
  createSessionStates,
  newSession,
  type SessionEvent,
  type SessionFacts,
  type SessionState,
} from '../../../src/bridge/sessions/session-state.ts';
import type { UpdateStream } from '../../../src/bridge/sessions/update-stream.ts';
import type { SessionRow } from '../../../src/bridge/storage/bridge-schema.ts';

const named = (name: string) => () => ({ sql: name, parameters: [] });
const { transition, change } = createSessionStates(
  {
    insert: named('insert'),
    claim: named('claim'),
    unclaim: named('unclaim'),
    reserve: named('reserve'),
    setReference: named('reference'),
    setChoices: named('choices'),
    endTurn: named('end'),
    close: () => [named('close')()],
    discard: () => [named('discard')()],
    forget: named('forget'),
  },
  'here',
);

const place = { threadId: 't', providerId: 'one', reference: 'r', workingDirectory: '/w', mcpServers: '' };
const row = (instance: string, closedAt: number | null) =>
  ({
    thread_id: 't',
    provider_id: 'one',
    reference: 'r',
    working_directory: '/w',
    instance,
    closed_at: closedAt,
  }) as SessionRow;

/** A session in each state; those that are about to begin for the first time, or again after they were closed. */
const SESSIONS: Readonly<Record<string, SessionFacts>> = Object.fromEntries(
  (
    [
      ['absent', 'absent', false],
      ['starting', 'absent', false],
      ['starting again', 'closed', false],
      ['open', 'open', false],
      ['running', 'open', false],
      ['closing', 'open', false],
      ['closing unstored', 'absent', false],
      ['closed', 'closed', false],
      ['elsewhere', 'open', false],
      ['in doubt', 'open', true],
      ['in doubt unstored', 'absent', true],
    ] as const
  ).map(([name, stored, isDoubted]) => {
    const state = name.replace(/ (?:again|unstored)$/, '') as SessionState;
    return [name, { ...newSession('k', 's', 'main'), ...place, state, stored, isDoubted }];
  }),
);

const EVENTS: Readonly<Record<string, SessionEvent>> = {
  'found open': { kind: 'found', row: row('', null) },
  'found closed': { kind: 'found', row: row('here', 1) },
  'found elsewhere': { kind: 'found', row: row('there', null) },
  queued: { kind: 'queued' },
  begins: { kind: 'begins', place, expectedSeq: 1, upTo: 513, now: 1 },
  begun: { kind: 'begun', epoch: 2 },
  'not begun': { kind: 'not begun', turnId: 'u', upTo: 513, isDoubted: false, now: 1 },
  doubted: { kind: 'not begun', turnId: 'u', upTo: 513, isDoubted: true, now: 1 },
  'doubt over': { kind: 'doubt over' },
  opened: { kind: 'opened', reference: 'next' },
  'turn ended': { kind: 'turn ended', isLast: true, lastSeq: 9, now: 1 },
  idle: { kind: 'idle' },
  close: { kind: 'close' },
  closed: { kind: 'closed', now: 1 },
  forgotten: { kind: 'forgotten' },
  taken: { kind: 'taken' },
};

/** The state after an event, and what is stored with it; `!` is an event that cannot be. The columns are EVENTS. */
const TABLE = `
absent            | open     | closed   | elsewhere | starting | absent insert  | absent   | absent   | absent doubted: discard                  | absent   | absent reference   | absent end   | absent   | closing | !              | absent forget | elsewhere
starting          | open     | closed   | elsewhere | starting | starting insert| running  | starting | starting doubted: discard                | starting | starting reference | starting end | absent   | closing | !              | absent forget | elsewhere
starting again    | open     | closed   | elsewhere | starting | starting claim | running  | starting | starting doubted: close reserve          | starting | starting reference | starting end | closed   | closing | !              | absent forget | elsewhere
open              | open     | closed   | elsewhere | running  | open claim     | open     | open     | open doubted: unclaim reference reserve  | open     | open reference     | open end     | open     | closing | !              | absent forget | elsewhere
running           | open     | closed   | elsewhere | running  | running claim  | running  | running  | running doubted: unclaim reference reserve | running | running reference | running end  | open     | closing | !              | absent forget | elsewhere
closing           | open     | closed   | elsewhere | !        | closing claim  | closing  | closing  | closing doubted: unclaim reference reserve | closing | closing reference | closing end  | closing  | closing | closed close   | absent forget | elsewhere
closing unstored  | open     | closed   | elsewhere | !        | closing insert | closing  | closing  | closing doubted: discard                 | closing  | closing reference  | closing end  | closing  | closing | absent         | absent forget | elsewhere
closed            | open     | closed   | elsewhere | starting | closed claim   | closed   | closed   | closed doubted: close reserve            | closed   | closed reference   | closed end   | closed   | closing | !              | absent forget | elsewhere
elsewhere         | open     | closed   | elsewhere | !        | elsewhere claim| elsewhere| elsewhere| elsewhere doubted: unclaim reference reserve | elsewhere | elsewhere reference | elsewhere end | elsewhere | ! | !         | absent forget | elsewhere
in doubt          | in doubt | in doubt | elsewhere | running  | in doubt claim | in doubt | in doubt | in doubt doubted: unclaim reference reserve | open  | in doubt reference | in doubt end | in doubt | closing | !              | absent forget | elsewhere
in doubt unstored | in doubt | in doubt | elsewhere | starting | in doubt insert| in doubt | in doubt | in doubt doubted: discard                | absent   | in doubt reference | in doubt end | in doubt | closing | !              | absent forget | elsewhere
`;

for (const line of TABLE.trim().split('\n')) {
  const [from = '', ...cells] = line.split('|').map((cell) => cell.trim());
  test(`what becomes of a session that is ${from}, event by event`, () => {
    const session = SESSIONS[from];
    assert.ok(session);
    const found = Object.values(EVENTS).map((event) => {
      try {
        const { next, statements } = transition(session, event);
        const after = { ...session, ...next };
        const mark = event.kind === 'not begun' && event.isDoubted && after.isDoubted ? ' doubted:' : '';
        return [`${after.state}${mark}`, ...statements.map(({ sql }) => sql)].join(' ');
      } catch {
        return '!';
      }
    });
    assert.deepEqual(Object.fromEntries(zip(found)), Object.fromEntries(zip(cells)));
  });
}

function zip(cells: readonly string[]): [string, string][] {
  return Object.keys(EVENTS).map((name, index) => [name, cells[index] ?? '']);
}

test('a beginning that was not stored leaves the session as it was, and one that was stored does not', () => {
  const session = { ...newSession('k', 's', 'main'), state: 'running', stored: 'open', reference: 'old' } as const;
  const begins = transition(session, { kind: 'begins', place, expectedSeq: 1, upTo: 513, now: 1 }).next;
  const begun = { ...session, ...begins };
  assert.equal(begun.reference, 'r');
  const undone = { ...begun, ...transition(begun, EVENTS['not begun'] as SessionEvent).next };
  assert.deepEqual(undone, session);
  const kept = { ...begun, ...transition(begun, { kind: 'begun', epoch: 2 }).next };
  assert.deepEqual([kept.reference, kept.before, kept.epoch], ['r', undefined, 2]);
  assert.deepEqual(transition(kept, { kind: 'kept', epoch: 3 }), { next: { epoch: 3 }, statements: [] });
});

test('a beginning that is being taken back is not believed when its row is read, unless another bridge has the session', () => {
  const unstored = { ...newSession('k', 's', 'main'), state: 'in doubt', isDoubted: true } as const;
  const found = (instance: string) => ({ kind: 'found', row: row(instance, null) }) as const;
  assert.deepEqual(transition(unstored, found('here')), { next: {}, statements: [] });
  assert.equal(transition(unstored, found('there')).next.stored, 'open');
});

test('a session that never began here makes way for one of its name that another bridge has begun', async () => {
  const begun = { ...row('', null), key: 'there', session_id: 's', owner: 'main', reserved_seq: 512, epoch: 3 };
  const used: (readonly [string, number])[] = [];
  const table = createSessionTable({
    store: {
      isShared: true,
      find: async () => begun,
      findSeen: async () => begun,
      findByThread: async () => [begun],
    },
    clock: { monotonic: () => 0 },
    change,
    makeKey: () => 'here',
    createStream: () => ({ restart: () => undefined }) as Partial<UpdateStream> as UpdateStream,
    usedElsewhere: (key, upTo) => void used.push([key, upTo]),
  });
  const unbegun = table.create('main', 's');
  assert.equal(unbegun.key, 'here');
  const found = await table.loadOwn('main', 's');
  assert.deepEqual([found?.key, found?.stored, table.byKey('here')], ['there', 'open', undefined]);
  // Read again, it has the epoch that is known here: nobody else had it.
  await table.loadOwn('main', 's');
  assert.deepEqual(used, [['there', 512]]);
  // What is over of the first one does not touch the second.
  table.remove(unbegun);
  assert.equal(table.peek('main', 's'), found);
});
