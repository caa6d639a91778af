import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Client } from 'pg';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const MASTER = 'master-key-of-this-test';
const PATIENCE_MS = 60_000;
/** What a token of the demo model costs here. */
const USD_PER_TOKEN = 0.001;
const SPENT = `SELECT cost_nano_usd::float8 AS cost, leased_nano_usd::float8 AS leased
  FROM completions.key_spending WHERE key_id = $1`;

const postgres = await startPostgres();
after(() => postgres.stop());

const folder = await temporaryFolder({ after });

async function start(limitsWithoutDatabase = 'refuse'): Promise<RunningProgram> {
  const config = join(folder, `${limitsWithoutDatabase}.yaml`);
  const settings = {
    cluster: { limits_without_database: limitsWithoutDatabase },
    completions: { prices: { 'demo/echo': { input: USD_PER_TOKEN, output: USD_PER_TOKEN } } },
  };
  await writeFile(config, JSON.stringify(settings));
  const environment = { COMPLETIONS_MASTER_KEY: MASTER };
  return startProgram({ after }, { args: ['--config', config, '--database', postgres.url], environment });
}

const instances = [await start(), await start(), await start('pass')];
const [first, second, third] = instances as [RunningProgram, RunningProgram, RunningProgram];

function post({ url }: RunningProgram, path: string, key: string, body: object): Promise<Response> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  return fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
}

interface Called {
  readonly status: number;
  readonly tokens: number;
}

async function chat(program: RunningProgram, key: string): Promise<Called> {
  const body = { model: 'demo/echo', max_tokens: 8, messages: [{ role: 'user', content: 'one two three four' }] };
  const response = await post(program, '/v1/chat/completions', key, body);
  const { usage } = (await response.json()) as { usage?: { total_tokens: number } };
  return { status: response.status, tokens: usage?.total_tokens ?? 0 };
}

async function issue(limits: object): Promise<{ readonly id: string; readonly key: string }> {
  const response = await post(first, '/v1/keys', MASTER, { name: 'test', ...limits });
  assert.equal(response.status, 201, await response.clone().text());
  return (await response.json()) as { readonly id: string; readonly key: string };
}

/** So many calls to each instance, all at the same time; and how long that took. */
async function burst(key: string, calls: number, to: readonly RunningProgram[] = instances) {
  const from = performance.now();
  const called = await Promise.all(to.flatMap((program) => Array.from({ length: calls }, () => chat(program, key))));
  const seconds = (performance.now() - from) / 1000;
  const answered = called.filter(({ status }) => status === 200);
  const others = new Set(called.filter(({ status }) => status !== 200).map(({ status }) => status));
  return { seconds, answered, others, tokens: answered.reduce((sum, { tokens }) => sum + tokens, 0) };
}

test('DS-7: three instances answer as many requests of a key in a minute as one', async (t) => {
  const { key } = await issue({ requests_per_minute: 30 });
  const { answered, others, seconds } = await burst(key, 30);
  t.diagnostic(`${answered.length} answered in ${seconds.toFixed(2)} s`);
  assert.ok(answered.length >= 30, `${answered.length} are fewer than 30`);
  assert.ok(answered.length <= 30 + Math.ceil(seconds / 2), `${answered.length} are more than 30 a minute`);
  assert.deepEqual([...others], [429]);
});

test('DS-7: a limit of tokens is not exceeded, and what is not used comes back', async (t) => {
  const { key } = await issue({ tokens_per_minute: 600 });
  const { tokens, others, seconds } = await burst(key, 60);
  t.diagnostic(`${tokens} tokens in ${seconds.toFixed(2)} s`);
  assert.ok(tokens <= 600 + Math.ceil(seconds * 10), `${tokens} tokens`);
  assert.ok(tokens >= 400, `only ${tokens} tokens`);
  assert.deepEqual([...others], [429]);
});

test('A limit above 120 a minute is never exceeded, though instances hold parts of it', async (t) => {
  const { key } = await issue({ requests_per_minute: 600 });
  const from = performance.now();
  let answered = 0;
  for (let round = 0; round < 5; round += 1) answered += (await burst(key, 60)).answered.length;
  const seconds = (performance.now() - from) / 1000;
  t.diagnostic(`${answered} answered in ${seconds.toFixed(2)} s`);
  assert.ok(answered <= 600 + Math.ceil(seconds * 10), `${answered} answered`);
  assert.ok(answered >= 500, `only ${answered} answered`);
});

test('DS-7: three instances do not spend more than a budget, and a killed one takes its part with it', async (t) => {
  const { id, key } = await issue({ budget: { usd: 1, period: 'total' } });
  const started = await burst(key, 10);
  const killed = await start();
  await burst(key, 4, [killed]);
  await killed.stop('SIGKILL');
  const rest = await burst(key, 60);
  t.diagnostic(`${started.tokens + rest.tokens} tokens besides those of the killed instance`);
  assert.deepEqual([...rest.others], [429]);
  const spent = async (): Promise<{ readonly cost: number; readonly leased: number }> => {
    const client = new Client({ connectionString: postgres.url });
    await client.connect();
    const { rows } = await client.query(SPENT, [id]).finally(() => client.end());
    return rows[0] as { cost: number; leased: number };
  };
  // What is left of the parts comes back after a second; only what the killed instance had does not.
  await until('everything to be stored', async () => (await spent()).cost >= (started.tokens + rest.tokens) * 1e6);
  const { cost, leased } = await spent();
  t.diagnostic(`${cost / 1e9} USD spent, ${leased / 1e9} USD set aside`);
  assert.ok(cost + leased <= 1e9, `${cost} and ${leased} are more than 1 USD`);
  assert.ok(cost >= 0.8e9, `only ${cost / 1e9} USD were spent`);
});

test('Without the database a key with limits gets 503, or passes where that is configured', async () => {
  const { key } = await issue({ requests_per_minute: 60 });
  const { key: free } = await issue({});
  for (const program of instances) {
    assert.equal((await chat(program, key)).status, 200);
    assert.equal((await chat(program, free)).status, 200);
  }
  await postgres.pause();
  try {
    for (const program of [first, second]) assert.equal((await chat(program, key)).status, 503);
    assert.equal((await chat(third, key)).status, 200);
    for (const program of instances) assert.equal((await chat(program, free)).status, 200);
  } finally {
    await postgres.start();
  }
  await until('the limit to be counted again', async () => (await chat(first, key)).status === 200, PATIENCE_MS);
});
