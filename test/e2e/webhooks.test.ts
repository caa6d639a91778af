import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const PASSWORD = 'copper kettle 47 over the pass';

test('a program killed with -9 between a change and its webhook posts the event after the next start', async (t) => {
  const received: { headers: IncomingHttpHeaders; body: string }[] = [];
  let isUp = false;
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    received.push({ headers: request.headers, body });
    response.writeHead(isUp ? 204 : 503).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const hook = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;

  const folder = await temporaryFolder(t);
  const file = join(folder, 'trestle.yaml');
  await writeFile(file, 'accounts: { webhook_allow: [127.0.0.1/32], require_verification: false }\n', { mode: 0o600 });
  const environment = { TRESTLE_CONFIG: file };
  const first = await startProgram(t, { environment });
  const { dataDirectory } = first;
  const call = async (url: string, path: string, token: string, body?: unknown) => {
    const response = await fetch(`${url}/api/auth/${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { 'content-type': 'application/json', ...(token !== '' && { authorization: `Bearer ${token}` }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    assert.ok(response.ok, `${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  };
  const admin = [
    'user',
    'create',
    '--email',
    'ada@example.org',
    '--name',
    'Ada',
    '--role',
    'admin',
    '--password-stdin',
  ];
  const created = await runProgram([...admin, '--data-dir', dataDirectory], { environment, input: `${PASSWORD}\n` });
  assert.equal(created.code, 0, created.stderr);
  const { token } = await call(first.url, 'login', '', { identifier: 'Ada', password: PASSWORD });
  const { webhook } = await call(first.url, 'admin/webhooks', token, {
    url: hook,
    events: ['user.created', 'job.started'],
  });
  const { user } = await call(first.url, 'register', '', { name: 'Ben', email: 'ben@example.org', password: PASSWORD });
  await until('the first attempt', () => received.length === 1);
  await first.stop('SIGKILL');

  isUp = true;
  const second = await startProgram(t, { environment, dataDirectory });
  const deliveries = async () => (await call(second.url, `admin/webhooks/${webhook.id}/deliveries`, token)).deliveries;
  // The pause after the first attempt, or the rest of a claim that died with the program.
  await until('the delivery', async () => (await deliveries())[0].state === 'sent', 60_000);
  const last = received.at(-1);
  assert.deepEqual(JSON.parse(last?.body ?? '').data, { userId: user.id, role: 'user', how: 'registration' });
  assert.equal(last?.headers['x-app-delivery'], received[0]?.headers['x-app-delivery']);
  assert.equal((await deliveries()).length, 1);

  // An event of the bridge takes the same way.
  const params = { taskPrompt: 'say hello', routing: { explicitProviderId: 'builtin' } };
  const submitted = await fetch(`${second.url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'app.jobs.submit', params }),
  });
  const text = await submitted.text();
  const [, jobId] = /"jobId":"([^"]+)"/.exec(text) ?? [];
  assert.ok(jobId !== undefined, text);
  const started = await until('the event of the job', () =>
    received.find(({ headers }) => headers['x-app-event'] === 'job.started'),
  );
  assert.equal(JSON.parse(started.body).data.jobId, jobId);
});
