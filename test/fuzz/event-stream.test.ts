import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSseFraming, wholeEvents } from '../../src/completions/relay/event-splitter.ts';
import { spliceModel } from '../../src/completions/relay/splice-body.ts';
import { createByteReader } from '../../src/completions/relay/stream-readers.ts';
import { findUsage, isWholeJson } from '../../src/completions/relay/token-usage.ts';
import { encodeComment, encodeEvent } from '../../src/platform/sse/sse-writer.ts';
import fc from '../kit/properties.ts';
import { anyCuts, anyText, cut, jsonWith, outcomeOf, runs } from './any-input.ts';

const chunk = jsonWith(['choices', 'index', 'delta', 'content', 'finish_reason', 'stop', 'usage', 'error', 'message']);

/** What an upstream might send: events, halves of events, and what is none. */
const streamText = fc
  .array(
    fc.oneof(
      chunk.map((value) => `data: ${JSON.stringify(value)}\n\n`),
      fc.tuple(fc.constantFrom('data', 'event', 'id', 'retry', ''), anyText).map(([name, text]) => `${name}: ${text}`),
      fc.constantFrom('\n', '\r', '\r\n', '\n\n', '\r\r', '\r\n\r\n', 'data: [DONE]\n\n', ': ping\n\n', '\ufeff'),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));

const anyBytes = fc.oneof(
  streamText.map((text) => Buffer.from(text)),
  fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
);

test('G18: events that we write are read as they were, wherever they are cut', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(anyText, anyText), { maxLength: 6 }), anyCuts, (events, places) => {
      const written = events.flatMap(([event, data]) => {
        const outcome = outcomeOf(() => encodeEvent({ event, data }));
        return 'value' in outcome ? [{ text: outcome.value, event, data }] : [];
      });
      const bytes = Buffer.from(written.map(({ text }) => `${encodeComment('still here')}${text}`).join(''));
      const expected = written.map(({ event, data }) => ({
        event: wellFormed(event) === '' ? undefined : wellFormed(event),
        data: wellFormed(data).replaceAll(/\r\n|\r/g, '\n'),
      }));
      assert.deepEqual(
        eventsOf(cut(bytes, places)).map(({ event, data }) => ({ event: event || undefined, data })),
        expected,
      );
    }),
    runs(300),
  );
});

test('G18: any bytes are the same events wherever they are cut', () => {
  fc.assert(
    fc.property(anyBytes, anyCuts, (bytes, places) => {
      assert.deepEqual(
        outcomeOf(() => eventsOf(cut(bytes, places))),
        outcomeOf(() => eventsOf([bytes])),
      );
    }),
    { ...runs(300), examples: [[Buffer.from('data: \n\rdata: \0\n'), [8]]] },
  );
});

test('G18: any bytes pass the byte reader as they would uncut, or are refused in our words', () => {
  fc.assert(
    fc.property(anyBytes, anyCuts, fc.boolean(), (bytes, places, usageAsked) => {
      const read = (chunks: readonly Buffer[]) => outcomeOf(() => passed(chunks, usageAsked));
      assert.deepEqual(read(cut(bytes, places)), read([bytes]));
    }),
    {
      ...runs(300),
      examples: [[Buffer.from('data: data: [DONE]\n\ndata: {"choices":{"finish_reason":"choices"}}\n\n'), [20], false]],
    },
  );
});

test('G18: a piece of whole events falls apart into all of its bytes', () => {
  fc.assert(
    fc.property(anyBytes, (bytes) => {
      assert.deepEqual(Buffer.concat([...wholeEvents(bytes)]), bytes);
    }),
    runs(300),
  );
});

const body = jsonWith(['model', 'a/b', 'usage', 'prompt_tokens', 'completion_tokens', 'messages', '"model"']);

test('G18: usage is found in any bytes without a throw, and only figures are taken for it', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        body.map((value) => Buffer.from(JSON.stringify(value))),
        anyBytes,
      ),
      (bytes) => {
        const usage = findUsage(bytes)?.usage;
        if (usage !== undefined) assert.ok(usage.prompt_tokens >= 0 && Number.isSafeInteger(usage.total_tokens));
      },
    ),
    runs(300),
  );
});

test('G18: no part of an answer counts as the whole answer, whatever stands before and after its usage', () => {
  const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };
  const texts = fc.dictionary(anyText, fc.oneof(anyText, fc.array(anyText, { maxLength: 3 })), { maxKeys: 4 });
  fc.assert(
    fc.property(texts, texts, fc.nat(), (before, after, cut) => {
      const answer = Buffer.from(JSON.stringify({ choices: [before], usage, after, [`${cut}`]: after }));
      const part = answer.subarray(0, cut % answer.length);
      assert.ok(isWholeJson(answer, findUsage(answer)));
      assert.ok(!isWholeJson(part, findUsage(part)), part.toString());
    }),
    runs(300),
  );
});

test('G18: another model in the bytes of a request is what a parser reads there, and nothing else has changed', () => {
  fc.assert(
    fc.property(fc.dictionary(anyText, body, { maxKeys: 4 }), anyText, anyText, (fields, from, to) => {
      const request = { ...fields, model: from };
      const spliced = spliceModel(Buffer.from(JSON.stringify(request)), from, to);
      if (spliced !== undefined) assert.deepEqual(JSON.parse(spliced.join('')), { ...request, model: to });
    }),
    runs(300),
  );
});

function eventsOf(chunks: readonly Buffer[]) {
  const framing = createSseFraming();
  return [...chunks.flatMap((part) => framing.feed(part)), ...framing.end()];
}

function passed(chunks: readonly Buffer[], usageAsked: boolean) {
  const reader = createByteReader({ choices: 1, usageAsked, promptTokens: 5, chunkObject: 'chat.completion.chunk' });
  const out: Buffer[] = [];
  for (const part of chunks) {
    const { piece, done, failure } = reader.feed(part);
    if (piece !== undefined) out.push(piece);
    if (done || failure !== undefined) return { text: textOf(out), done, failure };
  }
  const { piece, done, failure } = reader.end();
  if (piece !== undefined) out.push(piece);
  // A stream that breaks off ends with an error for the caller, after whatever had come until then.
  return done ? { text: textOf(out), done, failure } : { done, failure };
}

/** As bytes; our own estimates of what was used look at how the stream came, and are left out. */
function textOf(out: readonly Buffer[]): string {
  const estimate = /"completion_tokens":\d+,"total_tokens":\d+,"estimated":true/g;
  return Buffer.concat(out).toString('latin1').replaceAll(estimate, '');
}

/** Lone halves of a pair cannot be written in UTF-8. */
function wellFormed(text: string): string {
  return text.toWellFormed();
}
