// A background job that calls a webhook when it ends.   node examples/job-with-webhook.ts [url]
// If BRIDGE_WEBHOOK_SECRET is set for both the server and this script, the call is signed, and the script checks the signature.
// In your own app: import { createTrestleClient } from 'trestle/client';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { createTrestleClient, type JobRecord } from '../src/client/trestle-client.ts';

const [url = 'http://127.0.0.1:8787'] = process.argv.slice(2);
const { BRIDGE_AUTH_TOKEN: token = '', BRIDGE_WEBHOOK_SECRET: secret = '' } = process.env;

/** Checks `t=<unix time>,v1=<hmac of "time.body">`. Refuses old signatures, because an attacker may have recorded the call. */
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
  // Trestle repeats a delivery until it gets a 2xx status. Its repetitions have the same x-app-delivery.
  response.writeHead(204).end();
  console.log(`${request.headers['x-app-event']}, ${secret === '' ? 'not checked' : 'signature ok'}`);
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
