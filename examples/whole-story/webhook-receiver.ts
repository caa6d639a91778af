import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { JobRecord } from '../../src/client/trestle-client.ts';

export interface Delivery {
  /** The same in every attempt to deliver the same event. */
  readonly deliveryId: string;
  readonly event: string;
  readonly signature: string;
  readonly body: string;
  readonly isGenuine: boolean;
  readonly job: JobRecord;
}

export interface WebhookReceiver {
  readonly url: string;
  /** What came, oldest first. */
  readonly deliveries: readonly Delivery[];
  stop(): void;
}

/** An app's own endpoint for the webhooks of its jobs. */
export async function startWebhookReceiver(secret: string): Promise<WebhookReceiver> {
  const deliveries: Delivery[] = [];
  const server = createServer(async ({ headers }, response) => {
    const body = await text(response.req);
    const signature = String(headers['x-app-signature'] ?? '');
    const isGenuine = isSigned(secret, signature, body);
    deliveries.push({
      deliveryId: String(headers['x-app-delivery']),
      event: String(headers['x-app-event']),
      signature,
      body,
      isGenuine,
      job: JSON.parse(body),
    });
    response.writeHead(isGenuine ? 204 : 401).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/finished`,
    deliveries,
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** `t=<unix time>,v1=<hmac of "time.body">`; refuses old signatures, because an attacker may have recorded the call. */
export function isSigned(secret: string, signature: string, body: string): boolean {
  const [, time = '', mark = ''] = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(signature) ?? [];
  if (mark === '' || Math.abs(Date.now() / 1000 - Number(time)) > 5 * 60) return false;
  const expected = createHmac('sha256', secret).update(`${time}.${body}`).digest();
  return timingSafeEqual(expected, Buffer.from(mark, 'hex'));
}
