import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { inTime } from '../kit/in-time.ts';
import { isAlive } from '../kit/processes.ts';
import { BRIDGE_TOKEN, bearer, type Headers, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';

/** A model API that keeps files and batches. A batch with the metadata `slow` is created when the test says so. */
const calls: string[] = [];
const slow: ServerResponse[] = [];
let batches = 0;
const lab = createServer(async (call, response) => {
  let body = '';
  for await (const chunk of call) body += String(chunk);
  const what = `${call.method} ${call.url}`;
  calls.push(what);
  response.setHeader('content-type', 'application/json');
  if (what === 'POST /v1/files') return response.end('{"id":"file-1","object":"file","bytes":3}');
  if (what === 'POST /v1/batches' && body.includes('slow')) return slow.push(response);
  if (what === 'POST /v1/batches') batches += 1;
  const id = /batch-\d+/.exec(call.url ?? '')?.[0] ?? `batch-${batches}`;
  const status = what.endsWith('/cancel') ? 'cancelling' : 'in_progress';
  return response.end(JSON.stringify({ id, object: 'batch', status }));
});
lab.listen(0, '127.0.0.1');
await once(lab, 'listening');
after(() => lab.closeAllConnections());
after(() => lab.close());

/** An agent that never says a word, and so never logs in. */
const programs = await mkdtemp(join(tmpdir(), 'trestle-mute-'));
after(() => rm(programs, { recursive: true, force: true }));
const STARTED = join(programs, 'started');
const MUTE = join(programs, 'mute');
await writeFile(MUTE, `#!/bin/sh\necho $$ >> ${STARTED}\nexec /bin/sleep 100\n`);
await chmod(MUTE, 0o755);

const { url, send, newPerson, newToken, pause } = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  {
    completions: {
      prices: { 'lab/m': { input: 1e-6, output: 1e-6 } },
      apis: {
        lab: {
          dialect: 'openai',
          base_url: `http://127.0.0.1:${(lab.address() as AddressInfo).port}/v1`,
          api_key: 'lab-key-5f2c8a91d4',
        },
      },
    },
    plans: { maker: { models: ['*'], budget: { usd: 1, period: 'month' } } },
    agents: { builtin: { model: 'demo/echo' }, custom: [{ id: 'mute', command: MUTE }] },
  },
);

async function uploadLines(headers: Headers): Promise<void> {
  const line = {
    custom_id: '1',
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'lab/m', messages: [], max_tokens: 9 },
  };
  const form = new FormData();
  form.append('purpose', 'batch');
  form.append('file', new Blob([JSON.stringify(line)]), 'lines.jsonl');
  const stored = await fetch(`${url}/v1/files`, { method: 'POST', headers, body: form });
  assert.equal(stored.status, 200, await stored.text());
}

const createBatch = (headers: Headers, name: string) =>
  send('POST', '/v1/batches', headers, {
    ...{ input_file_id: 'file-1', endpoint: '/v1/chat/completions', completion_window: '24h' },
    metadata: { name },
  });

test('a pause ends a batch that is being created, and cancels those that run at a model API', async () => {
  const person = await newPerson('user', 'maker');
  const headers = bearer((await newToken(person, ['completions'])).token);
  await uploadLines(headers);
  const running = await createBatch(headers, 'nightly');
  assert.equal(running.status, 200, JSON.stringify(running.body));
  const creating = createBatch(headers, 'slow');
  await until('the API to get it', () => slow.length > 0);
  const pausedAt = performance.now();
  assert.equal((await pause(person.id)).status, 200);
  const { status, body } = await inTime('the end of the call', creating);
  assert.deepEqual([status, body.error?.code], [401, 'invalid_api_key']);
  await until('the API to cancel the other', () => calls.includes(`POST /v1/batches/${running.body.id}/cancel`));
  const pausedFor = performance.now() - pausedAt;
  assert.ok(pausedFor < timeLimit(1000), `${pausedFor} ms`);
  assert.equal((await send('GET', `/v1/batches/${running.body.id}`, headers)).status, 401);
});

test('a pause of an administrator ends the login of an agent, and the program that was started for it', async () => {
  const admin = await newPerson('admin');
  const pids = async () => (await readFile(STARTED, 'utf8').catch(() => '')).trim().split('\n').map(Number);
  const before = (await pids()).length;
  const login = send('POST', '/api/bridge/agents/mute/login', bearer(admin.token), {});
  const started = await until('the program to start', async () => (await pids())[before]);
  const pausedAt = performance.now();
  assert.equal((await pause(admin.id)).status, 200);
  const { status, body } = await inTime('the end of the login', login);
  assert.deepEqual([status, body.error], [401, 'unauthorized']);
  assert.equal(isAlive(started), false);
  const pausedFor = performance.now() - pausedAt;
  assert.ok(pausedFor < timeLimit(1000), `${pausedFor} ms`);
});
