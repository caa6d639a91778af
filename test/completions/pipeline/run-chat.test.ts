import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCatalogue } from '../../../src/completions/apis/catalogue.ts';
import { createChatEngine } from '../../../src/completions/chat-engine.ts';
import type { ChatChunk } from '../../../src/completions/contract/chat.ts';
import { INTERNAL } from '../../../src/completions/keys/key-access.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { HELLO, labAt, settingsOf } from '../../kit/completions/start-completions.ts';
import type { Scope } from '../../kit/running-program.ts';
import {
  answers,
  completionOf,
  diesAfter,
  eventsOf,
  startScriptedUpstream,
  streams,
  USAGE,
} from '../../kit/scripted-upstream.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

/** The pipeline alone: no keys, no database, no listener. */
function startEngine(scope: Scope, url: string) {
  const engine = createChatEngine({
    settings: settingsOf(labAt(url)),
    catalogue: createCatalogue(),
    environment: {},
    clock: systemClock,
    randomness: systemRandomness,
    makeId: createSortableIds(systemClock, systemRandomness),
    logger: silentLogger,
  });
  scope.after(engine.stop);
  const run = (request: object, signal = new AbortController().signal) =>
    engine.runChat({ request: { ...HELLO, ...request }, holder: INTERNAL, requestId: 'r1', strict: false, signal });
  return { engine, run };
}

test('a whole answer comes as a value, with the headers that tell how it went', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('Hi')));
  const { run } = startEngine(t, upstream.url);
  const answer = await run({});
  assert.equal(answer.kind, 'whole');
  assert.ok(answer.kind === 'whole');
  assert.equal(answer.completion.choices[0]?.message.content, 'Hi');
  assert.deepEqual(answer.headers, { 'x-model-api': 'lab', 'x-model-id': 'small', 'x-attempts': '1' });
  await assert.rejects(run({ model: 'nobody/x' }), { code: 'MODEL_NOT_FOUND' });
});

test('a stream comes chunk by chunk and ends with the usage', async (t) => {
  const words = Array.from({ length: 300 }, (_, index) => ` w${index}`);
  const upstream = await startScriptedUpstream(t, streams(eventsOf(words)));
  const { run } = startEngine(t, upstream.url);
  const answer = await run({ stream: true });
  assert.ok(answer.kind === 'stream');
  const chunks: ChatChunk[] = [];
  for await (const chunk of answer.chunks) chunks.push(chunk);
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), words.join(''));
  assert.deepEqual(chunks.at(-1)?.usage, USAGE);
  assert.equal(chunks.filter(({ usage }) => usage !== undefined).length, 1);
});

test('a stream that breaks throws where it broke', async (t) => {
  const upstream = await startScriptedUpstream(t, diesAfter(eventsOf(['one', ' two']).slice(0, 3)));
  const { engine, run } = startEngine(t, upstream.url);
  const answer = await run({ stream: true });
  assert.ok(answer.kind === 'stream');
  let text = '';
  await assert.rejects(
    async () => {
      for await (const chunk of answer.chunks) text += chunk.choices[0]?.delta.content ?? '';
    },
    (error) => error instanceof AppError && error.code === 'UPSTREAM_ERROR',
  );
  assert.equal(text, 'one two');
  assert.equal(engine.targets()[0]?.inFlight, 0);
});

test('who stops reading, or aborts, ends the upstream', async (t) => {
  const upstream = await startScriptedUpstream(t, streams(eventsOf(['one', ' two']).slice(0, 3), { end: false }));
  const { engine, run } = startEngine(t, upstream.url);
  const first = await run({ stream: true });
  assert.ok(first.kind === 'stream');
  for await (const _ of first.chunks) break;
  await upstream.requests[0]?.closed;

  const stopping = new AbortController();
  const second = await run({ stream: true }, stopping.signal);
  assert.ok(second.kind === 'stream');
  let count = 0;
  for await (const _ of second.chunks) {
    count += 1;
    if (count === 3) setTimeout(() => stopping.abort(), 5);
  }
  await upstream.requests[1]?.closed;
  assert.equal(engine.targets()[0]?.inFlight, 0);
  await assert.rejects(run({}, AbortSignal.abort()), { code: 'CALL_CANCELLED' });
});
