import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createPrincipalFor,
  isAtWork,
  isMemberAtWork,
  isOperators,
  isPersons,
  MAIN,
  mergedPages,
  onlyFor,
  personOf,
  principalOf,
  refuseUncharged,
  requireMay,
  workingFor,
} from '../../src/bridge/principal.ts';
import type { Owner, OwnerTeam } from '../../src/platform/identity/owner.ts';
import type { Credential, Principal } from '../../src/platform/identity/principal.ts';

const team = (id: string, bridge = true): OwnerTeam => ({
  ...{ id, allowed: undefined, bridge, plan: '', budget: undefined },
  bucket: { id: `team:${id}`, name: 'the team', limits: {} },
});
const person = (changes: Partial<Owner> = {}): Owner => ({
  ...{ id: 'user:a', state: 'active', role: 'user', plan: 'free', allowed: undefined, bridge: true, revision: 1 },
  buckets: [{ id: 'user:a', name: 'the plan free', limits: {} }],
  teams: [team('t')],
  ...changes,
});
const loggedIn = (owner: Owner): Principal => ({
  ...principalOf('user:a', owner.buckets),
  credential: { id: 'c', owner } as Credential,
});

test('the operator sees all and is root; every other principal begins with its own work and the bridge', () => {
  assert.deepEqual([MAIN.id, MAIN.role, MAIN.seesAll, [...MAIN.scopes]], ['main', 'root', true, ['bridge']]);
  const other = principalOf('review');
  assert.deepEqual(
    [other.id, other.role, other.seesAll, other.teams, other.buckets, [...other.scopes]],
    ['review', 'user', false, [], [], ['bridge']],
  );
  assert.deepEqual([isOperators('main'), isOperators('review'), isOperators(undefined)], [true, false, false]);
});

test('people, service accounts and teams differ from tokens and nodes by the whole name', () => {
  for (const kind of ['user', 'service', 'team']) {
    assert.equal(personOf(`${kind}:a_B-9`), 'a_B-9');
    assert.equal(isPersons(`${kind}:a`), true);
    assert.throws(() => refuseUncharged(`${kind}:a`, 'why'), {
      code: 'PERSON_NOT_CHARGED',
      details: { reason: 'why' },
    });
  }
  for (const owner of ['main', 'review', 'node:x:user:a', 'x-user:a', 'users:a']) {
    assert.equal(personOf(owner), undefined, owner);
    assert.equal(isPersons(owner), false, owner);
    refuseUncharged(owner, 'why');
  }
  for (const owner of ['user:', 'user:a b', 'user:a\n', `user:${'x'.repeat(129)}`]) {
    assert.equal(personOf(owner), undefined, JSON.stringify(owner));
  }
  assert.equal(personOf(`user:${'x'.repeat(128)}`), 'x'.repeat(128));
  assert.equal(isPersons(undefined), false);
});

test('who may only read calls what only reads; a method that is not known counts as a start', () => {
  const reader: Principal = { ...MAIN, role: 'readonly' };
  for (const method of ['acp.capabilities', 'app.routing.resolve', 'app.jobs.get', 'app.jobs.list', 'app.jobs.stats']) {
    requireMay(reader, method, 'review');
  }
  for (const method of [
    'session.start',
    'session.message',
    'session.cancel',
    'session.close',
    'app.jobs.submit',
    'new',
  ]) {
    assert.throws(() => requireMay(reader, method, 'main'), { code: 'FORBIDDEN' }, method);
    requireMay(MAIN, method, 'review');
  }
});

test('an operator of the accounts cancels the work of others, and does nothing else to it', () => {
  const operator: Principal = { ...principalOf('user:o'), role: 'operator', seesAll: true };
  requireMay(operator, 'session.cancel', 'review');
  for (const method of ['session.message', 'session.close', 'session.start']) {
    assert.throws(() => requireMay(operator, method, 'review'), { code: 'FORBIDDEN' }, method);
    requireMay(operator, method, 'user:o');
  }
});

test('agents work for those who are active and have the bridge, and for anybody who is not a person', () => {
  assert.equal(isAtWork(undefined), true);
  assert.equal(isAtWork(person()), true);
  assert.equal(isAtWork(person({ bridge: false })), false);
  for (const state of ['paused', 'blocked', 'closing', 'gone'] as const)
    assert.equal(isAtWork(person({ state })), false);
});

test('agents work for a team through a member while both may use agents', () => {
  assert.equal(isMemberAtWork(person(), 'team:t'), true);
  assert.equal(isMemberAtWork(person(), 'team:other'), false);
  assert.equal(isMemberAtWork(person({ teams: [team('t', false)] }), 'team:t'), false);
  assert.equal(isMemberAtWork(person({ state: 'paused' }), 'team:t'), false);
});

test('a member who goes on with work of a team works for it; all others stay what they are', () => {
  const ann = loggedIn(person());
  const forTeam = workingFor(ann, 'team:t');
  assert.deepEqual([forTeam.id, forTeam.member?.id, forTeam.team], ['team:t', 'user:a', 't']);
  assert.equal(workingFor(ann, 'user:a'), ann);
  assert.equal(workingFor(ann, 'team:other'), ann);
  assert.equal(workingFor(MAIN, 'team:t'), MAIN);
  assert.equal(workingFor(forTeam, 'team:t'), forTeam);
});

test('a principal for one owner means the work of that owner alone, and keeps who acts', () => {
  const only = onlyFor({ ...MAIN, teams: ['t'] }, 'review');
  assert.deepEqual(
    [only.id, only.teams, only.seesAll, only.member?.id, only.role],
    ['review', [], false, 'main', 'root'],
  );
  const member = principalOf('user:a');
  assert.equal(onlyFor({ ...principalOf('team:t'), member }, 'team:t').member, member);
});

test('stored work runs for its owner with the limits of the owner, and for a team through its member', async () => {
  const ann = person();
  const found: Readonly<Record<string, Owner>> = { 'user:a': ann };
  const principalFor = createPrincipalFor(async (id) => found[id]);
  const own = await principalFor('user:a', '');
  assert.deepEqual([own.id, own.buckets, own.member], ['user:a', ann.buckets, undefined]);
  assert.deepEqual((await principalFor('review', '')).buckets, []);
  assert.equal((await createPrincipalFor(undefined)('review', '')).id, 'review');
  const forTeam = await principalFor('team:t', 'user:a');
  assert.deepEqual([forTeam.id, forTeam.member?.id], ['team:t', 'user:a']);
  assert.deepEqual(
    forTeam.buckets.map(({ id }) => id),
    ['user:a', 'team:t'],
  );
  await assert.rejects(principalFor('team:left', 'user:a'), { code: 'NOT_IN_TEAM', details: { team: 'left' } });
  await assert.rejects(principalFor('team:t', 'user:gone'), { code: 'NOT_IN_TEAM', details: { team: 't' } });
});

test('pages of several owners become one in order, and one owner or all of them take one read', async () => {
  const read: (string | undefined)[] = [];
  const rows = async (owner: string | undefined) => {
    read.push(owner);
    return owner === 'b' ? [5, 2] : [4, 3];
  };
  const page = { order: (one: number, other: number) => other - one, limit: 3 };
  assert.deepEqual(await mergedPages(['a', 'b'], rows, page), [5, 4, 3]);
  assert.deepEqual(await mergedPages(['a', 'b'], rows), [4, 3, 5, 2]);
  assert.deepEqual(await mergedPages(['b'], rows, { ...page, limit: 1 }), [5, 2], 'the read itself has kept the limit');
  assert.deepEqual(await mergedPages(undefined, rows, page), [4, 3]);
  assert.deepEqual(read, ['a', 'b', 'a', 'b', 'b', undefined]);
});
