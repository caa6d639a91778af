import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseJson } from '../../src/platform/json/parse-json.ts';
import {
  bareEnvelope,
  hybridEnvelope,
  plainEnvelope,
  readMessage,
  toRemoteError,
} from '../../src/platform/json-rpc/envelope.ts';
import { createFrameReader } from '../../src/platform/json-rpc/message-channel.ts';
import fc from '../kit/properties.ts';
import { anyCuts, anyText, assertNothingPolluted, cut, jsonWith, outcomeOf, runs } from './any-input.ts';

const message = jsonWith(['jsonrpc', '2.0', 'id', 'method', 'params', 'result', 'error', 'code', 'message', 'data']);

test('G18: any JSON is a call, a response or an invalid message with an id that can be answered', () => {
  fc.assert(
    fc.property(message, fc.boolean(), (value, versioned) => {
      const read = readMessage(value, versioned);
      if (read.kind === 'call') {
        assert.equal(typeof read.method, 'string');
        assert.ok(read.params === undefined || (typeof read.params === 'object' && read.params !== null));
      }
      if (read.kind === 'invalid') assert.ok(read.reason !== '' && !Number.isNaN(read.id));
      if (read.kind !== 'response' && read.id !== undefined) {
        assert.deepEqual(JSON.parse(JSON.stringify(read.id)), read.id, 'an id comes back as it was sent');
      }
      assertNothingPolluted();
    }),
    runs(300),
  );
});

test('G18: any text is the JSON that it is, or refused without being repeated', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        anyText,
        fc.json(),
        message.map((value) => JSON.stringify(value)),
      ),
      (text) => {
        const outcome = outcomeOf(() => parseJson(text));
        if ('refused' in outcome) assert.equal(outcome.refused, 'PARSE_ERROR');
        else assert.deepEqual(outcome.value, JSON.parse(text.replace(/^\ufeff/, '')));
      },
    ),
    runs(300),
  );
});

test('G18: what an envelope writes is JSON that reads as what was put in', () => {
  fc.assert(
    fc.property(message, fc.oneof(anyText, fc.integer()), anyText, (value, id, method) => {
      const text = JSON.stringify(value);
      for (const envelope of [plainEnvelope, hybridEnvelope, bareEnvelope]) {
        const answer = JSON.parse(envelope.success(JSON.stringify(id), text, 1)) as Record<string, unknown>;
        assert.deepEqual([answer.id, answer.result], [id, value]);
        const call: unknown = JSON.parse(envelope.request(JSON.stringify(id), JSON.stringify(method), '{}'));
        assert.deepEqual(readMessage(call, envelope.versioned), { kind: 'call', id, method, params: {} });
      }
    }),
    runs(200),
  );
});

test('G18: an error of any shape from the other side is an error of ours', () => {
  fc.assert(
    fc.property(message, (value) => {
      const error = toRemoteError(value);
      assert.equal(typeof error.message, 'string');
    }),
    runs(300),
  );
});

const line = fc.oneof(
  anyText,
  message.map((value) => JSON.stringify(value)),
  fc.nat(60).map((length) => `Content-Length: ${length}\r\n`),
  fc.constantFrom('Content-Length: 2\r\n\r\n{}', 'content-type: x', 'Content-Length: 99999999999999', '\r'),
);

test('G18: lines and counted messages are the same messages wherever the bytes are cut', () => {
  fc.assert(
    fc.property(fc.array(line, { maxLength: 8 }), anyCuts, (lines, places) => {
      const bytes = Buffer.from(lines.join('\n'));
      const whole = framesOf([bytes]);
      assert.deepEqual(framesOf(cut(bytes, places)), whole);
    }),
    runs(300),
  );
});

function framesOf(chunks: readonly Buffer[]): unknown {
  const frames: string[] = [];
  const reader = createFrameReader(200, ({ bytes, counted }) => frames.push(`${counted} ${bytes.toString('latin1')}`));
  const isTaken = chunks.every((chunk) => reader.push(chunk));
  if (isTaken) reader.end();
  return { frames, isTaken };
}
