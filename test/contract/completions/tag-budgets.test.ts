import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, labAt, startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-tags-1';

test('the budget of a tag holds for all keys that have it, and for the header, besides the budgets of keys', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('Hi')));
  // A call takes 11 and 7 tokens: 18 USD.
  const { post, log } = await startCompletions(t, {
    settings: labAt(upstream.url, {
      master_key: MASTER,
      prices: { 'lab/small': { input: 1, output: 1 } },
      tag_budgets: { 'team-a': { usd: 60, period: 'day' }, free: { usd: 0 } },
    }),
  });
  const as = (key: string, tags?: string) => ({
    headers: { authorization: `Bearer ${key}`, ...(tags !== undefined && { 'x-tags': tags }) },
  });
  const newKey = async (body: object): Promise<string> =>
    ((await (await post('/v1/keys', { name: 'one', ...body }, as(MASTER))).json()) as Json).key;
  const ask = { ...HELLO, max_tokens: 7 };
  const call = async (key: string, tags?: string) => post('/v1/chat/completions', ask, as(key, tags));
  const [first, second, plain] = [
    await newKey({ tags: ['team-a'] }),
    await newKey({ tags: ['other', 'team-a'] }),
    await newKey({ budget: { usd: 20, period: 'total' } }),
  ];
  assert.equal((await call(first)).status, 200);
  assert.equal((await call(second)).status, 200);
  assert.equal((await call(MASTER, 'team-a')).status, 200);
  // 54 USD are spent: nothing is left for another call, whoever makes it.
  for (const refused of [await call(first), await call(second), await call(MASTER, 'x,team-a')]) {
    assert.equal(refused.status, 429);
    const { error } = (await refused.json()) as Json;
    assert.equal(error.code, 'insufficient_quota');
    assert.match(error.message, /The budget of the tag team-a is used up: 60 USD \(day\)/);
  }
  assert.equal((await call(plain)).status, 200, 'a call without the tag has its own budget');
  assert.equal((await call(MASTER)).status, 200);
  assert.equal((await call(MASTER, 'free')).status, 429, 'a budget of 0 pays for nothing');
  assert.equal((await call(plain, 'unknown')).status, 429, 'and the budget of the key counts besides');
  assert.match(log(), /"bucket":"tag:team-a","percent":80/);
  assert.equal(upstream.requests.length, 5);
});
