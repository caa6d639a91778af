import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NewKey } from '../../../src/accounts/contract/own-data.ts';
import type { CompletionKeys } from '../../../src/accounts/owners.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { GOOD_PASSWORD } from '../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';
import { startProgram } from '../../kit/running-program.ts';

/** Keys in memory, as the other service would hold them. */
function keysInMemory(): CompletionKeys & { readonly given: NewKey[] } {
  const rows: { id: string; owner: string; name: string }[] = [];
  const given: NewKey[] = [];
  return {
    given,
    async create(owner, input) {
      given.push(input);
      const row = { id: `key_${rows.length}`, owner, name: input.name };
      rows.push(row);
      return { ...row, key: 'tsk_secret' };
    },
    list: async (owner) => rows.filter((row) => row.owner === owner),
    async rotate(owner, id, { grace_seconds: grace = 0 }) {
      const row = rows.find((each) => each.owner === owner && each.id === id);
      if (row === undefined) throw new AppError('KEY_NOT_FOUND', { id });
      return { ...row, key: `tsk_next_${grace}` };
    },
    async remove(owner, id) {
      const index = rows.findIndex((row) => row.owner === owner && row.id === id);
      if (index === -1) throw new AppError('KEY_NOT_FOUND', { id });
      rows.splice(index, 1);
    },
    usage: async () => ({ keys: [], spending: [] }),
    eraseContents: async () => undefined,
  };
}

test('someone issues, lists and removes keys of their own, and nobody else’s', async (t) => {
  const completionKeys = keysInMemory();
  const accounts = await startAccounts(t, { completionKeys });
  const admin = await loggedInAs(accounts, 'admin');
  const [ann, ben] = [await loggedInAs(accounts, 'user', 'Ann'), await loggedInAs(accounts, 'user', 'Ben')];
  const input = { name: 'laptop', budget: { usd: 5, period: 'day' } };
  for (const more of [{ owner: ben.id }, { admin: true }]) {
    const refused = await accounts.post('keys', { ...input, ...more }, { token: ann.token });
    assert.deepEqual([refused.status, refused.body.error], [400, 'invalid_request']);
  }
  const issued = await accounts.post('keys', input, { token: ann.token });
  assert.deepEqual([issued.status, issued.body.owner, issued.body.key], [201, ann.id, 'tsk_secret']);
  assert.deepEqual(completionKeys.given, [{ name: 'laptop', budget: { usd: 5, period: 'day' } }]);
  const { id } = issued.body;
  assert.deepEqual((await accounts.get('keys', { token: ben.token })).body, { keys: [] });
  const foreign = await accounts.call('DELETE', `keys/${id}`, { token: ben.token });
  assert.deepEqual([foreign.status, foreign.body.error], [404, 'key_not_found']);
  const rotate = (token: string, body: object) => accounts.post(`keys/${id}/rotate`, body, { token });
  assert.equal((await rotate(ben.token, {})).body.error, 'key_not_found');
  assert.equal((await rotate(ann.token, { grace_seconds: 86_401 })).body.error, 'invalid_request');
  assert.equal((await rotate(ann.token, { grace_seconds: 60 })).body.key, 'tsk_next_60');
  assert.equal((await accounts.get('keys', { token: ann.token })).body.keys.length, 1);
  assert.equal((await accounts.post('keys', { name: '' }, { token: ann.token })).body.error, 'invalid_request');
  assert.equal((await accounts.call('DELETE', `keys/${id}`, { token: ann.token })).status, 204);
  for (let index = 0; index < 2; index += 1) await completionKeys.create(ann.id, { name: 'many' });
  assert.equal((await accounts.post('keys', input, { token: ann.token })).body.error, 'too_many_keys');
  await accounts.call('DELETE', `admin/users/${ann.id}`, { token: admin.token });
  assert.deepEqual(await completionKeys.list(ann.id), [], 'who is gone has no keys');
});

test('a key that nobody received, because the store failed after it was made, takes no place', async (t) => {
  const completionKeys = keysInMemory();
  let lists = 0;
  const list: CompletionKeys['list'] = async (owner) => {
    lists += 1;
    if (lists === 2) throw new AppError('STORAGE_UNAVAILABLE');
    return completionKeys.list(owner);
  };
  const accounts = await startAccounts(t, { completionKeys: { ...completionKeys, list } });
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const failed = await accounts.post('keys', { name: 'laptop' }, { token: ann.token });
  assert.equal(failed.body.error, 'storage_unavailable');
  assert.deepEqual(await completionKeys.list(ann.id), []);
  assert.equal((await accounts.post('keys', { name: 'laptop' }, { token: ann.token })).status, 201);
});

test('someone whose keys cannot be removed is not removed either, and no key outlives them', async (t) => {
  const completionKeys = keysInMemory();
  let isReachable = false;
  const remove: CompletionKeys['remove'] = async (owner, id) => {
    if (!isReachable) throw new AppError('STORAGE_UNAVAILABLE');
    await completionKeys.remove(owner, id);
  };
  const accounts = await startAccounts(t, { completionKeys: { ...completionKeys, remove } });
  const admin = await loggedInAs(accounts, 'admin');
  const operator = await loggedInAs(accounts, 'operator');
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  await accounts.post('keys', { name: 'laptop' }, { token: ann.token });
  await accounts.post('keys', { name: 'server' }, { token: admin.token });
  const end = ({ id }: { id: string }, { token } = admin) => accounts.call('DELETE', `admin/users/${id}`, { token });
  const failed = await end(ann);
  assert.deepEqual([failed.status, failed.body.error], [503, 'storage_unavailable']);
  assert.equal((await accounts.login(ann)).status, 200, 'nothing was removed');
  isReachable = true;
  assert.deepEqual([(await end(ann)).status, await completionKeys.list(ann.id)], [204, []]);
  // Who may not be removed keeps them.
  assert.equal((await end(admin, operator)).body.error, 'forbidden');
  assert.equal((await end(admin)).body.error, 'last_admin');
  assert.equal((await completionKeys.list(admin.id)).length, 1);
});

test('where the completions service does not run there are no keys', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const answer = await accounts.post('keys', { name: 'laptop' }, { token: ann.token });
  assert.deepEqual([answer.status, answer.body.error], [503, 'completions_unavailable']);
});

test('a key that a user issues works at the completions API of the same program until it is removed', async (t) => {
  const program = await startProgram(t, { environment: { COMPLETIONS_MASTER_KEY: 'Jx4rW8nTq2Lm6Zp9Kd3v' } });
  const post = async (path: string, body: unknown, token?: string, method = 'POST') => {
    const response = await fetch(`${program.url}${path}`, {
      method,
      headers: {
        ...(method === 'POST' && { 'content-type': 'application/json' }),
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      ...(method === 'POST' && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) };
  };
  const setup = new URL(String(program.summary.firstAdmin));
  assert.equal(setup.origin, program.url);
  const first = { name: 'Ann', email: 'ann@example.org', password: GOOD_PASSWORD };
  const made = await post('/api/auth/setup', { ...first, token: setup.hash.slice(1) });
  assert.equal(made.status, 201);
  const login = await post('/api/auth/login', { identifier: 'Ann', password: GOOD_PASSWORD });
  const issued = await post('/api/auth/keys', { name: 'laptop' }, login.body.token);
  assert.equal(issued.status, 201, JSON.stringify(issued.body));
  assert.equal(issued.body.owner, `user:${made.body.user.id}`);
  const chat = { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] };
  assert.equal((await post('/v1/chat/completions', chat, issued.body.key)).status, 200);
  assert.equal((await post(`/api/auth/keys/${issued.body.id}`, undefined, login.body.token, 'DELETE')).status, 204);
  assert.equal((await post('/v1/chat/completions', chat, issued.body.key)).status, 401);
  const missing = await post('/api/auth/keys/key_x', undefined, login.body.token, 'DELETE');
  assert.deepEqual([missing.status, missing.body.error], [404, 'key_not_found']);
});
