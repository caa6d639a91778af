import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import {
  createCallbackPost,
  createCallbackRules,
  systemCallbackNetwork,
} from '../../../src/platform/callbacks/callback-post.ts';
import { projectRoot } from '../../architecture/source-file.ts';
import { endedJob, jobWhen, submit } from '../../kit/bridge/job-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { temporaryFolder } from '../../kit/running-program.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';

const SECRET = 'webhook-secret-7d31f0';
const signed = `bridge: { webhook_secret: ${SECRET} }\n`;
const providers = () => [createScriptedProvider('one')];

test('B-75: a webhook is tried again after a failure, under the same id, and stops when it has arrived', async (context) => {
  const receiver = await startScriptedHttp(context, ({ response }, index) => {
    response.writeHead(index === 0 ? 500 : 200).end('{"secret":"of the receiver"}');
  });
  const { url } = await startBridge(context, { providers: providers() });
  const jobId = await submit(url, { callbackUrl: `${receiver.url}/hook?x=1` });
  const job = await jobWhen(url, jobId, ({ webhookSent }) => webhookSent);
  assert.equal(job.webhookTries, 2);
  assert.doesNotMatch(JSON.stringify(job), /of the receiver/);
  const [first, second] = receiver.requests;
  assert.equal(receiver.requests.length, 2);
  assert.equal(first?.path, '/hook?x=1');
  assert.equal(first?.body, second?.body);
  assert.equal(first?.headers['x-app-delivery'], second?.headers['x-app-delivery']);
  assert.equal(first?.headers['x-app-event'], 'job.finished');
  assert.equal(first?.headers['x-app-job-id'], jobId);
  assert.equal(first?.headers['content-type'], 'application/json');
  assert.equal(first?.headers['x-app-signature'], undefined, 'there is no secret to sign with');
  const sent = JSON.parse(first?.body ?? '');
  const { webhookSent: _sent, webhookTries: _tries, deliveries: _attempts, ...rest } = job;
  assert.deepEqual({ ...rest, webhookSent: false, webhookTries: 0 }, sent, 'it is the record');
});

test('B-75: what the receiver refuses, or sends elsewhere, is not tried again', async (context) => {
  const receiver = await startScriptedHttp(context, ({ path, response }) => {
    response.writeHead(Number(path.slice(1)), { location: `${receiver.url}/200` }).end();
  });
  const { url } = await startBridge(context, { providers: providers() });
  for (const status of [400, 404, 410, 302, 307]) {
    const jobId = await submit(url, { callbackUrl: `${receiver.url}/${status}` });
    const job = await jobWhen(url, jobId, ({ webhookTries }) => webhookTries === 1);
    assert.equal(job.webhookSent, false);
  }
  await new Promise((resolve) => setTimeout(resolve, 2500));
  assert.deepEqual(
    receiver.requests.map(({ path }) => path),
    ['/400', '/404', '/410', '/302', '/307'],
  );
});

test('B-75: attempts are counted over a restart, and go on under the same id', async (context) => {
  const receiver = await startScriptedHttp(context, ({ response }, index) => {
    response.writeHead(index === 0 ? 503 : 204).end();
  });
  const first = await startBridge(context, { providers: providers() });
  const jobId = await submit(first.url, { callbackUrl: receiver.url });
  await endedJob(first.url, jobId);
  await receiver.arrived(1);
  await first.stop();
  const second = await startBridge(context, { providers: providers(), after: first });
  const job = await jobWhen(second.url, jobId, ({ webhookSent }) => webhookSent);
  assert.equal(job.webhookTries, 2);
  const ids = receiver.requests.map(({ headers }) => headers['x-app-delivery']);
  assert.equal(ids.length, 2);
  assert.equal(new Set(ids).size, 1);
});

test('B-76: a webhook is signed, and the receiver of the documentation verifies it', async (context) => {
  const receiver = await startScriptedHttp(context, ({ response }) => void response.writeHead(200).end());
  const { url } = await startBridge(context, { providers: providers(), settings: signed });
  await submit(url, { taskPrompt: 'ümlaut €', callbackUrl: receiver.url });
  await receiver.arrived(1);
  const [request] = receiver.requests;
  const { body = '' } = request ?? {};
  const isGenuine = await documentedReceiver(await temporaryFolder(context));
  const signature = String(request?.headers['x-app-signature']);
  const time = Number(/^t=(\d+),/.exec(signature)?.[1]);
  assert.ok(Math.abs(time - Date.now() / 1000) < 60);
  assert.equal(isGenuine(SECRET, signature, body), true);
  assert.equal(isGenuine(SECRET, signature, body, time + 299), true);
  assert.equal(isGenuine(SECRET, signature, body, time + 301), false, 'five minutes are the limit');
  assert.equal(isGenuine(SECRET, signature, `${body} `), false);
  assert.equal(isGenuine('another secret', signature, body), false);
  assert.equal(isGenuine(SECRET, signature.replace(/t=\d/, 't=9'), body, time), false);
  assert.equal(isGenuine(SECRET, undefined, body), false);
});

test('B-81: an endless answer is read no further than it is needed, and nobody gets to see it', async (context) => {
  let written = 0;
  const receiver = await startScriptedHttp(context, async ({ response }) => {
    response.writeHead(200);
    const chunk = Buffer.alloc(16 * 1024, 'x');
    while (!response.destroyed && written < 64 * 1024 * 1024) {
      written += chunk.length;
      response.write(chunk);
      while (response.writableNeedDrain && !response.destroyed) await pause();
    }
  });
  const { url } = await startBridge(context, { providers: providers() });
  const jobId = await submit(url, { callbackUrl: receiver.url });
  const job = await jobWhen(url, jobId, ({ webhookSent }) => webhookSent);
  assert.doesNotMatch(JSON.stringify(job), /xxxx/);
  assert.ok(written < 16 * 1024 * 1024, `${written} bytes were taken`);
});

test('B-81: a receiver that does not answer, or never comes to an end, has ten seconds in all', async (context) => {
  const receiver = await startScriptedHttp(context, ({ path, response }) => {
    if (path === '/slow') response.writeHead(200).write('still');
  });
  const clock = createFakeClock();
  const rules = createCallbackRules({
    allow: [],
    allowedBy: 'some.setting',
    isOpen: () => true,
    ownAddresses: () => [],
  });
  const { post } = createCallbackPost({ rules, network: systemCallbackNetwork, clock });
  for (const [index, path] of ['/silent', '/slow'].entries()) {
    const request = { url: receiver.url + path, headers: {}, body: '{}', signal: new AbortController().signal };
    let isOver = false;
    const posted = post(request).finally(() => {
      isOver = true;
    });
    posted.catch(() => undefined);
    await receiver.arrived(index + 1);
    await clock.advance(9999);
    assert.equal(isOver, false);
    await clock.advance(1);
    await assert.rejects(posted, /took too long/);
  }
  assert.equal(clock.pending(), 0);
});

type IsGenuine = (secret: string, header: string | undefined, body: string, nowSeconds?: number) => boolean;

async function documentedReceiver(folder: string): Promise<IsGenuine> {
  const text = await readFile(join(projectRoot, 'docs/jobs.md'), 'utf8');
  const [, code = ''] = /```js\n([^`]*`[^`]*`[^`]*)```/.exec(text) ?? [];
  const file = join(folder, 'receiver.mjs');
  await writeFile(file, code);
  return (await import(pathToFileURL(file).href)).isGenuine;
}
