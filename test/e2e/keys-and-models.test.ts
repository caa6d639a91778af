import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { timeLimit } from '../kit/time.ts';

const MASTER_KEY = 'master-key-7c6b5a4d3e2f1';
const chat = { model: 'demo/echo', messages: [{ role: 'user', content: 'one two three' }] };

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: ReturnType<typeof JSON.parse>;
}

async function call(url: string, path: string, key: string, body?: unknown, method?: string): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: { authorization: `Bearer ${key}`, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === '' ? undefined : JSON.parse(text) };
}

test('P-25: a key is issued over HTTP, works within its limits, reports its usage and is revoked', async (t) => {
  const { url, stderr } = await startProgram(t, { environment: { COMPLETIONS_MASTER_KEY: MASTER_KEY } });
  const limits = { name: 'ci', models: ['demo/*'], requests_per_minute: 3, budget: { usd: 1, period: 'day' } };
  const issued = await call(url, '/v1/keys', MASTER_KEY, limits);
  assert.equal(issued.status, 201);
  assert.equal(issued.headers.get('cache-control'), 'no-store');
  const { key, id } = issued.body;
  assert.match(key, /^tsk_/);
  assert.deepEqual(issued.body.budget, { usd: 1, period: 'day' });

  for (const remaining of ['2', '1', '0']) {
    const answer = await call(url, '/v1/chat/completions', key, chat);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('x-ratelimit-limit-requests'), '3');
    assert.equal(answer.headers.get('x-ratelimit-remaining-requests'), remaining);
  }
  const limited = await call(url, '/v1/chat/completions', key, chat);
  assert.equal(limited.status, 429);
  assert.equal(limited.body.error.code, 'rate_limit_exceeded');
  assert.ok(Number(limited.headers.get('retry-after')) > 0);
  assert.equal(limited.headers.get('x-ratelimit-remaining-requests'), '0');

  const usage = await call(url, '/v1/usage?group_by=key', key);
  assert.deepEqual(usage.body.data, [
    { group: id, requests: 3, errors: 0, prompt_tokens: 9, completion_tokens: 9, cost_usd: 0 },
  ]);
  assert.equal((await call(url, '/usage?group_by=model', MASTER_KEY)).body.total.requests, 3);
  for (const [path, body] of [
    ['/keys', undefined],
    ['/keys', { name: 'mine' }],
  ] as const) {
    assert.equal((await call(url, path, key, body)).status, 403);
  }
  const listed = await call(url, '/keys', MASTER_KEY);
  assert.equal(listed.body.data[0].id, id);
  assert.ok(!JSON.stringify(listed.body).includes(key));
  assert.equal((await call(url, `/keys/${id}`, MASTER_KEY, undefined, 'DELETE')).status, 204);
  assert.equal((await call(url, '/v1/models', key)).status, 401);
  assert.equal((await call(url, `/keys/${id}`, MASTER_KEY, undefined, 'DELETE')).body.error.code, 'key_not_found');
  assert.ok(!stderr().includes(key), 'no log line holds the key');
});

test('what is wrong with a new key is 400 and names the field', async (t) => {
  const { url } = await startProgram(t);
  for (const [body, param] of [
    [{}, 'name'],
    [{ name: 'x', requests_per_minute: 0 }, 'requests_per_minute'],
    [{ name: 'x', budget: { usd: 1, period: 'year' } }, 'budget.period'],
    [{ name: 'x', expires_at: '2001-01-01T00:00:00Z' }, 'expires_at'],
    [{ name: 'x', request_per_minute: 5 }, 'request_per_minute'],
  ] as const) {
    const answer = await call(url, '/keys', 'any', body);
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.ok(JSON.stringify(answer.body.error).includes(param.split('.')[0] ?? ''), JSON.stringify(answer.body));
  }
  assert.equal((await call(url, '/usage?group_by=colour', 'any')).status, 400);
  assert.equal((await call(url, '/usage?from=yesterday', 'any')).status, 400);
});

test('the commands manage keys of a running server, of a stopped one, and see the same keys', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const environment = { COMPLETIONS_MASTER_KEY: MASTER_KEY };
  const run = (...args: string[]) => runProgram([...args, '--json', '--data-dir', dataDirectory], { environment });
  const early = JSON.parse((await run('key', 'create', 'early', '--budget', '5/month')).stdout);

  const server = await startProgram(t, { dataDirectory, environment });
  const { url } = server;
  assert.equal((await call(url, '/v1/models', early.key)).status, 200);
  const made = JSON.parse((await run('key', 'create', 'late', '--models', 'demo/*', '--expires', '1d')).stdout);
  assert.equal((await call(url, '/v1/models', made.key)).status, 200);
  const listed = JSON.parse((await run('key', 'list')).stdout);
  assert.deepEqual(
    listed.data.map(({ name }: { name: string }) => name),
    ['early', 'late'],
  );
  const changed = JSON.parse((await run('key', 'change', made.id, '--models', 'all', '--expires', 'none')).stdout);
  assert.deepEqual([changed.models, changed.expires_at], [[], null]);
  assert.equal((await run('key', 'change', made.id)).code, 2);
  assert.equal((await run('key', 'change', made.id, '--disable')).code, 0);
  assert.equal((await call(url, '/v1/models', made.key)).status, 401);
  assert.equal((await run('key', 'change', made.id, '--enable')).code, 0);
  const rotated = JSON.parse((await run('key', 'rotate', made.id, '--grace', '1h')).stdout);
  for (const { key } of [made, rotated]) assert.equal((await call(url, '/v1/models', key)).status, 200);
  assert.equal((await run('key', 'rotate', made.id, '--grace', '25h')).code, 2);
  assert.equal((await run('key', 'revoke', early.id)).code, 0);
  assert.equal((await call(url, '/v1/models', early.key)).status, 401);
  const gone = await run('key', 'revoke', early.id);
  assert.equal(gone.code, 1);
  assert.match(gone.stderr, /There is no key/);
  await server.stop();

  assert.equal((await run('key', 'revoke', made.id)).code, 0);
  assert.equal(JSON.parse((await run('key', 'list')).stdout).data.length, 0);
  const wrong = await run('key', 'create', 'x', '--budget', '5/year');
  assert.equal(wrong.code, 2);
});

test('models lists what can be called, and models test says how a call went', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const run = (args: string[], environment = {}) => runProgram([...args, '--data-dir', dataDirectory], { environment });
  const fresh = JSON.parse((await run(['models', '--json'])).stdout);
  assert.deepEqual(
    fresh.models.map(({ id }: { id: string }) => id),
    ['demo/echo'],
  );
  const withKey = await run(['models'], { DEEPSEEK_API_KEY: 'sk-secret-of-the-test' });
  assert.match(withKey.stdout, /deepseek\/deepseek-chat {2}\(1000000 tokens, 0.14 \/ 0.28 USD per million tokens\)/);
  assert.ok(!withKey.stdout.includes('sk-secret'));
  assert.match(
    (await run(['models', '--all'])).stdout,
    /azure +AZURE_RESOURCE_NAME, AZURE_OPENAI_API_KEY or AZURE_API_KEY/,
  );

  const good = await run(['models', 'test', 'demo/echo']);
  assert.equal(good.code, 0);
  assert.match(good.stdout, /^ok {2}demo\/echo {2}status 200/);
  const lacking = await run(['models', 'test', 'groq/llama', '--json']);
  assert.equal(lacking.code, 1);
  assert.deepEqual(JSON.parse(lacking.stdout).error.code, 'model_not_found');
  assert.match(lacking.stdout, /set GROQ_API_KEY/);
});

test('usage survives kill -9 up to the flush interval, and a clean stop loses none', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const environment = { COMPLETIONS_MASTER_KEY: MASTER_KEY };
  const first = await startProgram(t, { dataDirectory, environment });
  for (let count = 0; count < 5; count += 1) await call(first.url, '/v1/chat/completions', MASTER_KEY, chat);
  await delay(timeLimit(2500));
  await first.stop('SIGKILL');
  const second = await startProgram(t, { dataDirectory, environment });
  const requests = async (url: string) => (await call(url, '/usage', MASTER_KEY)).body.total.requests;
  assert.equal(await requests(second.url), 5);
  for (let count = 0; count < 7; count += 1) await call(second.url, '/v1/chat/completions', MASTER_KEY, chat);
  assert.equal(await second.stop(), 0);
  const third = await startProgram(t, { dataDirectory, environment });
  assert.equal(await requests(third.url), 12);
  const metrics = await (await fetch(`${third.url}/metrics`)).text();
  assert.match(metrics, /completions_usage_records_dropped_total 0/);
});

test('P-37: keys and variables of APIs come from references to the environment, and config print masks them', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const lab = {
    base_url: 'http://127.0.0.1:9/v1',
    api_key: `\${env:LAB_KEY}`,
    variables: { AWS_SECRET_ACCESS_KEY: `\${env:LAB_SECRET}` },
  };
  await writeFile(config, JSON.stringify({ completions: { apis: { lab } } }), { mode: 0o600 });
  const environment = { LAB_KEY: 'sk-lab-key-in-clear', LAB_SECRET: 'lab-secret-in-clear' };
  for (const json of [[], ['--json']]) {
    const { code, stdout } = await runProgram(['config', 'print', '--config', config, ...json], { environment });
    assert.equal(code, 0);
    assert.match(stdout, /lab/);
    assert.ok(!/in-clear/.test(stdout), stdout);
  }
  const models = await runProgram(['models', '--config', config, '--data-dir', folder], { environment });
  assert.match(models.stdout, /lab +lab \(openai\) http:\/\/127.0.0.1:9\/v1/);
  assert.ok(!/in-clear/.test(models.stdout + models.stderr));
});
