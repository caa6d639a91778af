import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { type WebSocket, WebSocketServer } from 'ws';
import { openGatewayConnection } from '../../src/bridge/gateway/gateway-connection.ts';
import {
  describeGatewayFailure,
  type GatewayEvent,
  messageText,
  readChallenge,
  readGatewayError,
  readGatewayEvent,
  readGreeting,
} from '../../src/bridge/gateway/gateway-messages.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import fc from '../kit/properties.ts';
import { anyText, assertNothingPolluted, jsonWith, runs } from './any-input.ts';

const payload = jsonWith([
  ...['stream', 'assistant', 'thinking', 'tool', 'run_status', 'data', 'delta', 'phase', 'start', 'result', 'name'],
  ...['toolCallId', 'args', 'isError', 'content', 'text', 'type', 'nonce', 'ts', 'hello-ok', 'protocol', 'server'],
  ...['auth', 'scopes', 'policy', 'tickIntervalMs', 'snapshot', 'code', 'message', 'details', 'AUTH_FAILED'],
]);

test('G18: events of a gateway, whatever they hold, are events of ours with texts in them, or nothing', () => {
  const data = fc.dictionary(fc.constantFrom('name', 'toolCallId', 'phase', 'args', 'result', 'delta'), payload);
  const streams = fc.constantFrom('assistant', 'thinking', 'tool', 'run_status');
  const tools = fc.constantFrom('exec', 'toString', '__proto__', 'constructor', 'other');
  fc.assert(
    fc.property(streams, data, tools, payload, (stream, fields, name, value) => {
      for (const given of [value, fields, { ...fields, name, toolCallId: 'c', phase: 'start' }]) {
        const event = readGatewayEvent({ name: 'agent', payload: { stream, data: given } });
        if (event === undefined) continue;
        const texts = event.kind === 'tool_call' ? [event.title, event.toolKind, event.status] : [event.kind];
        for (const text of texts) assert.equal(typeof text, 'string');
        assert.equal(typeof JSON.stringify(event), 'string');
      }
      assert.equal(typeof messageText(value), 'string');
      assertNothingPolluted();
    }),
    runs(300),
  );
});

test('G18: challenges, greetings and refusals of a gateway, whatever they hold, are read or left', () => {
  const greeting = fc.tuple(payload, payload).map(([value, policy]) => ({
    type: 'hello-ok',
    protocol: 3,
    auth: value,
    policy: { tickIntervalMs: policy },
  }));
  fc.assert(
    fc.property(fc.oneof(payload, greeting), (value) => {
      const greeted = readGreeting(value);
      if (greeted !== undefined) assert.ok(greeted.tickMs >= 1000 && greeted.tickMs <= 300_000);
      const challenge = readChallenge(value);
      if (challenge !== undefined) assert.notEqual(challenge.nonce, '');
      const { code, message } = describeGatewayFailure(readGatewayError(value));
      assert.ok(code !== '' && message !== '');
    }),
    runs(300),
  );
});

test('G18: a connection to a gateway outlives any frames, and its next request is answered', async (t) => {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  t.after(() => {
    for (const socket of server.clients) socket.terminate();
    server.close();
  });
  let frames: readonly string[] = [];
  server.on('connection', (socket: WebSocket) => {
    const send = (frame: object) => socket.send(JSON.stringify(frame));
    socket.on('message', (text) => {
      const { id, method } = JSON.parse(String(text)) as { id: string; method: string };
      for (const frame of method === 'connect' ? [] : frames) socket.send(frame);
      send({ type: 'res', id, ok: true, payload: method === 'connect' ? { type: 'hello-ok', protocol: 3 } : { id } });
    });
    send({ type: 'event', event: 'connect.challenge', payload: { nonce: 'n', ts: 1 } });
  });
  await once(server, 'listening');
  const events: GatewayEvent[] = [];
  const connection = await openGatewayConnection({
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    clock: systemClock,
    handshakeMs: 20_000,
    device: { id: 'd', publicKey: 'p', sign: () => 's' },
    token: '',
    version: '0',
    platform: 'test',
    onEvent(event) {
      events.push(event);
      return undefined;
    },
  });
  t.after(() => connection.close());
  const frame = fc.oneof(
    anyText,
    payload.map((value) => JSON.stringify(value)),
    fc
      .record({
        type: fc.constantFrom('res', 'event', 'req'),
        id: payload,
        ok: payload,
        event: payload,
        payload,
        seq: payload,
        error: payload,
      })
      .map((value) => JSON.stringify(value)),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(frame, { maxLength: 6 }), async (given) => {
      frames = given;
      const answer = await connection.request('ask', {}, 20_000);
      assert.match(String((answer as { id: string }).id), /^r\d+$/);
    }),
    runs(60),
  );
  for (const { name } of events) assert.equal(typeof name, 'string');
});
