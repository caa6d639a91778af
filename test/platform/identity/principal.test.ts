import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Action,
  may,
  ownersSought,
  ownFirst,
  type Principal,
  type Role,
  sees,
} from '../../../src/platform/identity/principal.ts';

const principal = (id: string, given: Partial<Principal> = {}): Principal => ({
  id,
  role: 'user',
  teams: [],
  scopes: new Set(),
  buckets: [],
  seesAll: false,
  ...given,
});
const of = (role: Role, seesAll = true) => principal(`user:${role}`, { role, seesAll });

const MAIN = principal('main', { role: 'root', seesAll: true });
const REVIEW = principal('review');
const ANN = principal('user:ann');
const MATE = principal('user:mate', { teams: ['t1'] });
const READER = principal('user:reader', { role: 'readonly', teams: ['t1'] });

/** Owner -> who sees it. */
const SEEN: readonly (readonly [string, readonly Principal[], readonly Principal[]])[] = [
  ['user:ann', [ANN, MAIN, of('root'), of('admin'), of('operator')], [REVIEW, MATE, READER, of('operator', false)]],
  ['team:t1', [MATE, READER, MAIN, of('admin')], [ANN, REVIEW, of('operator', false)]],
  ['team:t2', [MAIN], [MATE, ANN, READER]],
  // A member shares the work of the team, and nothing of the other members.
  ['user:mate', [MATE, MAIN], [ANN, READER]],
  ['main', [MAIN, of('admin')], [ANN, REVIEW, MATE]],
  // Neither a prefix nor a team of the same name is the same owner.
  ['user:ann2', [MAIN], [ANN]],
  ['t1', [MAIN], [MATE]],
  ['node:x:user:ann', [MAIN], [ANN]],
  ['', [MAIN], [ANN, REVIEW, MATE]],
];

test('a principal sees its own work, that of its teams, and all work when it sees all', () => {
  for (const [owner, seeing, others] of SEEN) {
    for (const one of seeing) assert.equal(sees(one, owner), true, `${one.id} sees ${owner}`);
    for (const one of others) assert.equal(sees(one, owner), false, `${one.id} does not see ${owner}`);
  }
});

const ACTIONS: readonly Action[] = ['start', 'message', 'answer', 'cancel', 'undo', 'close'];

/** Who, whose work it is, and the actions that are allowed. */
const ALLOWED: readonly (readonly [Principal, string, readonly Action[]])[] = [
  [ANN, 'user:ann', ACTIONS],
  [ANN, 'user:mate', []],
  [ANN, 'team:t1', []],
  [MATE, 'team:t1', ACTIONS],
  [REVIEW, 'main', []],
  [MAIN, 'user:ann', ACTIONS],
  [of('root'), 'user:ann', ACTIONS],
  [of('admin'), 'main', ACTIONS],
  // Operators stop what runs, and nothing else.
  [of('operator'), 'user:ann', ['cancel']],
  [of('operator'), 'user:operator', ACTIONS],
  [of('operator', false), 'user:ann', []],
  // An administrator who sees only own work changes only own work.
  [of('admin', false), 'user:ann', []],
  [READER, 'user:reader', []],
  [READER, 'team:t1', []],
  [of('readonly'), 'user:ann', []],
];

test('a principal may change its own work, administrators all, operators cancel, readers nothing', () => {
  for (const [who, owner, allowed] of ALLOWED) {
    const found = ACTIONS.filter((action) => may(who, action, owner));
    assert.deepEqual(found, allowed, `${who.id} (${who.role}) on ${owner}`);
  }
});

test('nobody may change what they do not see', () => {
  for (const [who, owner] of ALLOWED) {
    for (const action of ACTIONS) assert.ok(!may(who, action, owner) || sees(who, owner), `${who.id} on ${owner}`);
  }
});

test('stores are asked for the work of a principal and of its teams, unless the principal sees all', () => {
  assert.equal(ownersSought(MAIN), undefined);
  assert.deepEqual(ownersSought(ANN), ['user:ann', ...ANN.teams.map((team) => `team:${team}`)]);
});

test('DB-5: where several owners use one name, the caller means its own', () => {
  const things = ['user:ann', 'main', 'review'].map((owner) => ({ owner }));
  assert.deepEqual(ownFirst(ANN, things), [{ owner: 'user:ann' }]);
  assert.deepEqual(ownFirst(MAIN, things), [{ owner: 'main' }]);
  assert.deepEqual(ownFirst(of('admin'), things), things);
  assert.deepEqual(ownFirst(MATE, things), []);
});
