import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEventSplitter, createSseFraming, wholeEvents } from '../../../src/completions/relay/event-splitter.ts';
import { createByteReader } from '../../../src/completions/relay/stream-readers.ts';
import fc from '../../kit/properties.ts';
import { chunkOf, eventsOf, USAGE } from '../../kit/scripted-upstream.ts';

const OPTIONS = { choices: 1, usageAsked: false, promptTokens: 5, chunkObject: 'chat.completion.chunk' };

/** Cuts bytes at places that the generator chose. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const sorted = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [0, ...sorted].map((start, index) => bytes.subarray(start, sorted[index] ?? bytes.length));
}

interface Read {
  readonly out: Buffer;
  readonly done: boolean;
  readonly failure: unknown;
  readonly usage: ReturnType<ReturnType<typeof createByteReader>['usage']>;
}

function readAll(chunks: readonly Buffer[], options = OPTIONS): Read {
  const reader = createByteReader(options);
  const out: Buffer[] = [];
  for (const chunk of chunks) {
    const { piece, done, failure } = reader.feed(chunk);
    if (piece !== undefined) out.push(piece);
    if (done || failure !== undefined) return { out: Buffer.concat(out), done, failure, usage: reader.usage() };
  }
  const { piece, done, failure } = reader.end();
  if (piece !== undefined) out.push(piece);
  return { out: Buffer.concat(out), done, failure, usage: reader.usage() };
}

const places = fc.array(fc.nat(100_000), { maxLength: 60 });
/** Words that look like markers, in every disguise. */
const nastyText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    '[DONE]',
    'data: [DONE]\n\n',
    '"usage":{',
    '{"error":{}}',
    '"finish_reason":"stop"',
    '"finish_reason":"error"',
    '\nevent: error',
    '\r\n\r\n',
    '😀',
  ),
);

test('every byte comes through, however the stream is cut, and the usage chunk alone is missing', () => {
  fc.assert(
    fc.property(fc.array(nastyText, { maxLength: 8 }), places, fc.boolean(), (words, cuts, usageAsked) => {
      const events = eventsOf(words);
      const source = Buffer.from(events.join(''));
      const { out, done, failure, usage } = readAll(cut(source, cuts), { ...OPTIONS, usageAsked });
      const expected = usageAsked ? events : events.toSpliced(events.length - 2, 1);
      assert.equal(out.toString(), expected.join(''));
      assert.equal(done, true);
      assert.equal(failure, undefined);
      assert.deepEqual(usage, { usage: USAGE, estimated: false });
    }),
  );
});

test('a stream that is cut off anywhere before its finish reason is never taken for whole', () => {
  fc.assert(
    fc.property(fc.array(nastyText, { minLength: 1, maxLength: 5 }), fc.nat(), places, (words, length, cuts) => {
      const events = eventsOf(words);
      const unfinished = Buffer.from(events.slice(0, words.length + 1).join(''));
      const source = unfinished.subarray(0, length % unfinished.length);
      const { out, done } = readAll(cut(source, cuts));
      assert.equal(done, false);
      // Whole events alone were given, so that an error event can follow.
      assert.ok(unfinished.toString().startsWith(out.toString()));
      assert.ok(out.length === 0 || out.toString().endsWith('\n\n'));
    }),
  );
});

test('with several choices each needs its finish reason', () => {
  const finish = (index: number) =>
    `data: ${JSON.stringify({ ...chunkOf({}), choices: [{ index, delta: {}, finish_reason: 'stop' }] })}\n\n`;
  const options = { ...OPTIONS, choices: 2 };
  assert.equal(readAll([Buffer.from(finish(0))], options).done, false);
  assert.equal(readAll([Buffer.from(finish(0) + finish(1))], options).done, true);
});

test('a chunk that says there is no error is none, alone or together with the end', () => {
  const events = [chunkOf({ content: 'a' }, null, { error: false }), chunkOf({}, 'stop', { error: null })].map(
    (chunk) => `data: ${JSON.stringify(chunk)}\n\n`,
  );
  const source = [...events, 'data: [DONE]\n\n'].map((event) => Buffer.from(event));
  for (const chunks of [source, [Buffer.concat(source)]]) {
    const { out, done, failure } = readAll(chunks);
    assert.deepEqual([out.toString(), done, failure], [Buffer.concat(source).toString(), true, undefined]);
  }
});

test('a failure is found wherever a chunk says it, and nothing of that chunk is sent on', () => {
  const first = `data: ${JSON.stringify(chunkOf({ content: 'a' }))}\n\n`;
  const failures = [
    `data: ${JSON.stringify(chunkOf({}, 'error'))}\n\n`,
    `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: null, error: { message: 'no' } }] })}\n\n`,
    'data: {"error":"no"}\n\n',
    'data: {"error":500}\n\n',
    'data: {"error":true,"choices":[]}\n\n',
    'event: error\ndata: {"message":"no"}\n\n',
    'event:error\ndata: {"message":"no"}\n\n',
  ];
  for (const event of failures) {
    const source = Buffer.from(`${first}${event}data: [DONE]\n\n`);
    for (let at = 0; at < source.length; at += 1) {
      const { out, done, failure } = readAll([source.subarray(0, at), source.subarray(at)]);
      assert.notEqual(failure, undefined, `${event} cut at ${at}`);
      assert.deepEqual({ out: out.toString(), done }, { out: first, done: false });
    }
  }
});

test('what follows [DONE] is not sent on', () => {
  const { out, done } = readAll([Buffer.from(`${eventsOf(['x'], { usage: false }).join('')}data: more\n\n`)]);
  assert.equal(done, true);
  assert.equal(out.toString(), eventsOf(['x'], { usage: false }).join(''));
});

test('a number of tokens that nobody gave is estimated from what was said', () => {
  const word = 'abcdefgh'.repeat(10);
  const { usage } = readAll([Buffer.from(eventsOf([word, word], { usage: false }).join(''))]);
  assert.equal(usage.estimated, true);
  assert.ok(usage.usage.completion_tokens >= 4 && usage.usage.completion_tokens <= 120);
  assert.equal(usage.usage.prompt_tokens, 5);
});

test('one event that never ends is refused at 32 MiB', () => {
  const reader = createByteReader(OPTIONS);
  const piece = Buffer.alloc(1024 * 1024, 'x');
  assert.throws(() => {
    for (let count = 0; count < 33; count += 1) reader.feed(piece);
  }, /UPSTREAM_ERROR/);
});

const lineEnd = fc.constantFrom('\n', '\r\n', '\r');

test('P-04: events are the same for every mixture of line ends and every cutting', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          data: fc.array(fc.stringMatching(/^[a-z{}": ]{1,9}$/), { minLength: 1, maxLength: 3 }),
          end: lineEnd,
        }),
      ),
      places,
      (events, cuts) => {
        const text = events
          .map(({ data, end }) => `: note${end}${data.map((line) => `data: ${line}${end}`).join('')}${end}`)
          .join('');
        const framing = createSseFraming();
        const chunks = text === '' ? [] : cut(Buffer.from(text), cuts).filter((chunk) => chunk.length > 0);
        const read = [...chunks.flatMap((chunk) => framing.feed(chunk)), ...framing.end()];
        assert.deepEqual(
          read.map(({ data }) => data),
          events.map(({ data }) => data.join('\n')),
        );
      },
    ),
  );
});

test('the splitter gives back exactly the bytes that it was given', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom('a', '\n', '\r', '\n\n', 'data: x')), places, (parts, cuts) => {
      const source = Buffer.from(parts.join(''));
      const splitter = createEventSplitter();
      const pieces = cut(source, cuts).map((chunk) => (chunk.length === 0 ? chunk : splitter.feed(chunk)));
      assert.equal(Buffer.concat([...pieces, splitter.rest()]).toString(), source.toString());
      for (const piece of pieces) assert.equal(Buffer.concat([...wholeEvents(piece)]).toString(), piece.toString());
    }),
  );
});
