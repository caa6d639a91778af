import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const MASTER = 'master-key-of-this-test';
const PATIENCE_MS = 60_000;

const postgres = await startPostgres();
after(() => postgres.stop());
const environment = { COMPLETIONS_MASTER_KEY: MASTER };
const start = () => startProgram({ after }, { args: ['--database', postgres.url], environment });
const one = await start();
const other = await start();

function call({ url }: RunningProgram, method: string, path: string, key: string, body?: object): Promise<Response> {
  return fetch(`${url}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

async function chat(program: RunningProgram, key: string): Promise<number> {
  const body = { model: 'demo/echo', messages: [{ role: 'user', content: 'hello' }] };
  const response = await call(program, 'POST', '/v1/chat/completions', key, body);
  await response.arrayBuffer();
  return response.status;
}

async function issue(): Promise<{ readonly id: string; readonly key: string }> {
  const response = await call(one, 'POST', '/v1/keys', MASTER, { name: 'test' });
  assert.equal(response.status, 201, await response.clone().text());
  return (await response.json()) as { readonly id: string; readonly key: string };
}

test('DS-11: wrong keys of an address count for all instances together', async (t) => {
  const from = performance.now();
  const warned: boolean[] = [];
  // Fifteen are within the limit of one instance.
  for (const program of Array(15).fill([one, other]).flat()) {
    const response = await call(program, 'GET', '/v1/models', 'sk-trestle-wrong');
    await response.arrayBuffer();
    assert.equal(response.status, 401);
    warned.push(response.headers.has('retry-after'));
  }
  const seconds = (performance.now() - from) / 1000;
  const passed = warned.filter((isWarned) => !isWarned).length;
  t.diagnostic(`${passed} of 30 within the limit, in ${seconds.toFixed(2)} s`);
  assert.ok(passed >= 20 && passed <= 20 + Math.ceil(seconds / 3), `${passed} within the limit`);
});

test('DS-11: a key that one instance revokes stops working on the others', async (t) => {
  const times: number[] = [];
  for (let round = 0; round < 10; round += 1) {
    const { id, key } = await issue();
    assert.equal(await chat(other, key), 200);
    const removed = await call(one, 'DELETE', `/v1/keys/${id}`, MASTER);
    assert.ok(removed.ok);
    const from = performance.now();
    await until('the key to be refused', async () => (await chat(other, key)) === 401);
    times.push(performance.now() - from);
  }
  times.sort((a, b) => a - b);
  t.diagnostic(`refused after ${times.map(Math.round).join(', ')} ms`);
  // A key would be read again after a second anyway, where messages do not arrive.
  assert.ok((times[4] ?? 0) < 500, `the median is ${times[4]} ms`);
});

test('A key without limits works while the database is away, and is refused as soon as it was revoked', async () => {
  const { id, key } = await issue();
  assert.equal(await chat(other, key), 200);
  await postgres.pause();
  try {
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    assert.equal(await chat(other, key), 200);
  } finally {
    await postgres.start();
  }
  await until(
    'the key to be removed',
    async () => (await call(one, 'DELETE', `/v1/keys/${id}`, MASTER)).ok,
    PATIENCE_MS,
  );
  await until('the key to be refused', async () => (await chat(other, key)) === 401, PATIENCE_MS);
});
