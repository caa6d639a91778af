import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createLimitedInstances } from '../kit/completions/limited-instances.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import type { RunningProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const PATIENCE_MS = 60_000;

const postgres = await startPostgres();
after(() => postgres.stop());
const { start, chat, issue, burst, spent } = createLimitedInstances({ after }, postgres.url);
const LIMITED_TARGET = { models: [{ name: 'slow', targets: [{ model: 'demo/echo', requests_per_minute: 20 }] }] };
const instances = [
  await start('refuse', LIMITED_TARGET),
  await start('refuse', LIMITED_TARGET),
  await start('pass', LIMITED_TARGET),
];
const [first, second, third] = instances as [RunningProgram, RunningProgram, RunningProgram];

test('DS-7: three instances answer as many requests of a key in a minute as one', async (t) => {
  const { key } = await issue(first, { requests_per_minute: 30 });
  const { answered, others, seconds } = await burst(key, 30, instances);
  t.diagnostic(`${answered.length} answered in ${seconds.toFixed(2)} s`);
  assert.ok(answered.length >= 30, `${answered.length} are fewer than 30`);
  assert.ok(answered.length <= 30 + Math.ceil(seconds / 2), `${answered.length} are more than 30 a minute`);
  assert.deepEqual([...others], [429]);
});

test('DS-7: a limit of tokens is not exceeded, and what is not used comes back', async (t) => {
  const { key } = await issue(first, { tokens_per_minute: 600 });
  const { tokens, others, seconds } = await burst(key, 60, instances);
  t.diagnostic(`${tokens} tokens in ${seconds.toFixed(2)} s`);
  assert.ok(tokens <= 600 + Math.ceil(seconds * 10), `${tokens} tokens`);
  assert.ok(tokens >= 400, `only ${tokens} tokens`);
  assert.deepEqual([...others], [429]);
});

test('A limit above 120 a minute is never exceeded, though instances hold parts of it', async (t) => {
  const { key } = await issue(first, { requests_per_minute: 600 });
  const from = performance.now();
  let answered = 0;
  for (let round = 0; round < 5; round += 1) answered += (await burst(key, 60, instances)).answered.length;
  const seconds = (performance.now() - from) / 1000;
  t.diagnostic(`${answered} answered in ${seconds.toFixed(2)} s`);
  assert.ok(answered <= 600 + Math.ceil(seconds * 10), `${answered} answered`);
  assert.ok(answered >= 500, `only ${answered} answered`);
});

test('The limit of a target counts for all instances', async (t) => {
  const { key } = await issue(first, {});
  const { answered, others, seconds } = await burst(key, 20, instances, 'slow');
  t.diagnostic(`${answered.length} answered in ${seconds.toFixed(2)} s`);
  assert.ok(answered.length >= 20, `${answered.length} are fewer than 20`);
  assert.ok(answered.length <= 20 + Math.ceil(seconds / 3), `${answered.length} are more than 20 a minute`);
  assert.deepEqual([...others], [503]);
});

test('DS-7: three instances do not spend more than a budget, and a killed one takes its part with it', async (t) => {
  const { id, key } = await issue(first, { budget: { usd: 1, period: 'total' } });
  const started = await burst(key, 10, instances);
  const killed = await start();
  await burst(key, 4, [killed]);
  await killed.stop('SIGKILL');
  const rest = await burst(key, 60, instances);
  assert.deepEqual([...rest.others], [429]);
  // Calls at the same time set more aside than they cost in the end. One after the other they use the rest.
  let tokens = started.tokens + rest.tokens;
  for (let refused = 0, call = 0; refused < instances.length && call < 200; call += 1) {
    const { status, tokens: more } = await chat(instances[call % instances.length] ?? first, key);
    refused = status === 200 ? 0 : refused + 1;
    tokens += more;
  }
  const known = tokens * 1e6;
  await until('everything to be stored', async () => (await spent(id)).cost >= known);
  const { cost, leased } = await spent(id);
  t.diagnostic(`${cost / 1e9} USD spent, ${leased / 1e9} USD set aside`);
  assert.ok(cost + leased <= 1e9, `${cost} and ${leased} are more than 1 USD`);
  assert.ok(cost >= 0.85e9, `only ${cost / 1e9} USD were spent`);
});

test('Without the database a key with limits gets 503, or passes where that is configured', async () => {
  const { key } = await issue(first, { requests_per_minute: 60 });
  const { key: free } = await issue(first, {});
  for (const program of instances) {
    assert.equal((await chat(program, key)).status, 200);
    assert.equal((await chat(program, free)).status, 200);
  }
  await postgres.pause();
  try {
    for (const program of [first, second]) assert.equal((await chat(program, key)).status, 503);
    assert.equal((await chat(third, key)).status, 200);
    for (const program of instances) assert.equal((await chat(program, free)).status, 200);
    assert.equal((await chat(first, free, 'slow')).status, 200, 'the limit of a target holds nothing up');
  } finally {
    await postgres.start();
  }
  await until('the limit to be counted again', async () => (await chat(first, key)).status === 200, PATIENCE_MS);
});
