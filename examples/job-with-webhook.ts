// A background job that calls back when it has ended.   node examples/job-with-webhook.ts [url]
// With BRIDGE_WEBHOOK_SECRET set for the server and for this script alike, the call is signed and the signature checked.
// In an app of your own: import { createTrestleClient } from 'trestle/client';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { createTrestleClient, type JobRecord } from '../src/client/trestle-client.ts';

const [url = 'http://127.0.0.1:8787'] = process.argv.slice(2);
const { BRIDGE_AUTH_TOKEN: token = '', BRIDGE_WEBHOOK_SECRET: secret = '' } = process.env;

/** `t=<unix time>,v1=<hmac of "time.body">`; an old one may have been recorded and sent again by somebody else. */
function isGenuine(signature: string, body: string): boolean {
  const [, time = '', mark = ''] = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(signature) ?? [];
  if (Math.abs(Date.now() / 1000 - Number(time)) > 5 * 60) return false;
  const expected = createHmac('sha256', secret).update(`${time}.${body}`).digest();
  const given = Buffer.from(mark, 'hex');
  return given.length === expected.length && timingSafeEqual(given, expected);
}

const finished = Promise.withResolvers<JobRecord>();
const receiver = createServer(async (request, response) => {
  const body = await text(request);
  const signature = String(request.headers['x-app-signature'] ?? '');
  if (secret !== '' && !isGenuine(signature, body)) {
    response.writeHead(401).end();
    return;
  }
  // The same delivery may come again, until it was answered with 2xx: x-app-delivery tells them apart.
  response.writeHead(204).end();
  console.log(`${request.headers['x-app-event']}, ${secret === '' ? 'not signed' : 'signature ok'}`);
  finished.resolve(JSON.parse(body));
});
receiver.listen(0, '127.0.0.1');
await once(receiver, 'listening');
const { port } = receiver.address() as AddressInfo;

const trestle = createTrestleClient({ url, token });
const { jobId, status } = await trestle.jobs.submit({
  taskPrompt: 'Hello from the background',
  callbackUrl: `http://127.0.0.1:${port}/finished`,
});
console.log(`${jobId.slice(0, 4)}... ${status}`);

const job = await finished.promise;
console.log(`${job.status}: ${job.result?.output}`);
receiver.close();
trestle.close();
