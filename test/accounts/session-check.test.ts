import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createKnownSessions, createSessionCheck, READ_AGAIN_MS } from '../../src/accounts/login/session-check.ts';
import type { FoundSession } from '../../src/accounts/storage/session-store.ts';
import { bearer, startPeople } from '../kit/start-people.ts';

const MINUTE = 60_000;
const IDLE = 10 * MINUTE;
const SESSIONS = { idle: IDLE, cookie_lifetime: 1e12, token_lifetime: 1e12 };

/** A check whose store has one session, which tests change as a write would. */
function prepare() {
  let now = 1e9;
  const row = {
    ...{ id: 'usr_ann', name: 'Ann', active: 1, access_epoch: 1, session_id: 'ses_one', session_epoch: 1 },
    ...{ session_created_at: now, session_last_seen_at: now, token_expires_at: 1e15, bearer_until: 1e15 },
  } as unknown as FoundSession;
  const state = { row: row as FoundSession | undefined, reads: 0 };
  const noted: number[] = [];
  const clock = { now: () => now, monotonic: () => now };
  const known = createKnownSessions(clock);
  const check = createSessionCheck({
    store: {
      async byToken() {
        state.reads += 1;
        return state.row;
      },
    },
    known,
    settings: () => ({ sessions: SESSIONS }),
    clock,
    seen: {
      add(use) {
        if (state.row !== undefined) state.row = { ...state.row, session_last_seen_at: use.now };
        return noted.push(use.now) > 0;
      },
    },
  });
  const pass = (ms: number) => {
    now += ms;
  };
  return { check, known, state, noted, row, pass };
}

test('a session is read once, and again after a change of it or of its user, or after 15 seconds', async () => {
  const { check, known, state, row, pass } = prepare();
  for (let time = 0; time < 3; time += 1) assert.equal((await check('token', 'bearer'))?.name, 'Ann');
  assert.equal(state.reads, 1);
  state.row = { ...row, name: 'Anna' };
  known.changed(new Set(['usr_ben', 'ses_two']));
  assert.equal((await check('token', 'bearer'))?.name, 'Ann', 'nobody has changed it');
  for (const [id, name] of [
    ['usr_ann', 'Anna'],
    ['ses_one', 'Anne'],
  ] as const) {
    state.row = { ...row, name };
    known.changed(new Set([id]));
    assert.equal((await check('token', 'bearer'))?.name, name);
  }
  state.row = undefined;
  known.changed('all');
  assert.equal(await check('token', 'bearer'), undefined);
  state.row = row;
  assert.equal((await check('token', 'bearer'))?.name, 'Ann', 'one that was not found is looked for again');
  const before = state.reads;
  pass(READ_AGAIN_MS);
  await check('token', 'bearer');
  assert.equal(state.reads, before + 1);
});

test('what was read while something changed is not kept', async () => {
  const { check, known, state, row } = prepare();
  const reading = check('token', 'bearer');
  known.changed(new Set(['usr_someone']));
  await reading;
  state.row = { ...row, active: 0 };
  assert.equal(await check('token', 'bearer'), undefined);
});

test('requests that come together share one read; one that comes after a change reads for itself', async () => {
  const { check, known, state, row } = prepare();
  const together = [check('token', 'bearer'), check('token', 'cookie'), check('token', 'bearer')];
  state.row = { ...row, active: 0 };
  known.changed(new Set(['usr_ann']));
  const later = check('token', 'bearer');
  for (const found of await Promise.all(together)) assert.equal(found?.name, 'Ann');
  assert.equal(await later, undefined, 'it is paused');
  assert.equal(state.reads, 2);
  state.row = undefined;
  known.changed('all');
  assert.equal(await check('token', 'bearer'), undefined);
  assert.equal(await check('token', 'bearer'), undefined);
  assert.equal(state.reads, 4, 'nothing is kept of a token that is not known');
});

test('a session in memory ends by time, and its use is noted once a minute', async () => {
  const { check, noted, pass } = prepare();
  for (let second = 0; second < 150; second += 5) {
    assert.notEqual(await check('token', 'cookie'), undefined, `after ${second} seconds`);
    pass(5000);
  }
  assert.deepEqual(noted, [1e9 + MINUTE, 1e9 + 2 * MINUTE]);
  pass(IDLE);
  assert.equal(await check('token', 'cookie'), undefined);
});

test('a team, a name and a second factor of someone who is logged in show on the next request', async (t) => {
  const world = await startPeople(t, { bridge: 'bridge-token-of-tests-51', completions: 'master-key-of-tests-52' });
  const person = await world.newPerson();
  const read = async () => (await world.send('GET', '/api/auth/session', bearer(person.token))).body.user;
  assert.deepEqual((await read()).groups, []);
  const id = await world.newTeam({}, person);
  const { groups } = await read();
  assert.equal(groups.length, 1);
  assert.equal((await world.send('DELETE', `/api/auth/teams/${id}`, world.asRoot)).status, 204);
  assert.deepEqual((await read()).groups, []);
  assert.equal((await read()).mfa.totpPending, false);
  const provision = await world.send('POST', '/api/auth/mfa/totp/provision', bearer(person.token), {});
  assert.equal(provision.status, 200, JSON.stringify(provision.body));
  assert.equal((await read()).mfa.totpPending, true);
  const renamed = await world.send('PATCH', '/api/auth/profile', bearer(person.token), { name: 'renamed' });
  assert.equal(renamed.status, 200, JSON.stringify(renamed.body));
  assert.equal((await read()).name, 'renamed');
});
