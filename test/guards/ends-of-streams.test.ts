import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadDialect } from '../../src/completions/dialects/dialect-table.ts';
import { createLaneReader } from '../../src/completions/lanes/lane-reader.ts';
import { generateLane } from '../../src/completions/lanes/request-lanes.ts';
import type { StreamReader } from '../../src/completions/relay/open-stream.ts';
import { createByteReader, createChunkReader, createFraming } from '../../src/completions/relay/stream-readers.ts';
import {
  askThrough,
  DIALECTS,
  type DialectUpstreams,
  INGRESSES,
  type Ingress,
  startDialectUpstreams,
  type TestedDialect,
  wireEvent,
} from '../kit/completions/dialect-upstreams.ts';
import { streams } from '../kit/scripted-upstream.ts';

/** A short whole answer of each dialect: beginning, one word, reason for stopping, end. */
interface ShortAnswer {
  readonly begin: readonly Buffer[];
  /** With this reason; `undefined` leaves the event out. */
  finish(reason: string | undefined): readonly Buffer[];
  readonly end: readonly Buffer[];
  readonly reason: string;
}

const chunk = (delta: object, reason: string | null) => ({
  id: 'c',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'small',
  choices: [{ index: 0, delta, text: 'Hi', finish_reason: reason }],
});
const candidate = (text: string, finishReason?: string) => ({
  candidates: [{ content: { role: 'model', parts: [{ text }] }, ...(finishReason !== undefined && { finishReason }) }],
});

const ANSWERS: Readonly<Record<TestedDialect, ShortAnswer>> = {
  openai: {
    begin: [wireEvent('openai', chunk({ role: 'assistant', content: 'Hi' }, null))],
    finish: (reason) => (reason === undefined ? [] : [wireEvent('openai', chunk({}, reason))]),
    end: [wireEvent('openai', '[DONE]')],
    reason: 'stop',
  },
  anthropic: {
    begin: [
      wireEvent('anthropic', { type: 'message_start', message: { id: 'm', model: 'claude', usage: {} } }),
      wireEvent('anthropic', { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
      wireEvent('anthropic', { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } }),
      wireEvent('anthropic', { type: 'content_block_stop', index: 0 }),
    ],
    finish: (reason) =>
      reason === undefined
        ? []
        : [wireEvent('anthropic', { type: 'message_delta', delta: { stop_reason: reason }, usage: {} })],
    end: [wireEvent('anthropic', { type: 'message_stop' })],
    reason: 'end_turn',
  },
  google: {
    begin: [wireEvent('google', candidate('Hi'))],
    finish: (reason) => (reason === undefined ? [] : [wireEvent('google', candidate('', reason))]),
    end: [],
    reason: 'STOP',
  },
  bedrock: {
    begin: [
      wireEvent('bedrock', { messageStart: { role: 'assistant' } }),
      wireEvent('bedrock', { contentBlockDelta: { contentBlockIndex: 0, delta: { text: 'Hi' } } }),
      wireEvent('bedrock', { contentBlockStop: { contentBlockIndex: 0 } }),
    ],
    finish: (reason) => (reason === undefined ? [] : [wireEvent('bedrock', { messageStop: { stopReason: reason } })]),
    end: [wireEvent('bedrock', { metadata: { usage: { inputTokens: 1, outputTokens: 1 } } })],
    reason: 'end_turn',
  },
  cohere: {
    begin: [
      wireEvent('cohere', { type: 'message-start', id: 'c', delta: { message: { role: 'assistant' } } }),
      wireEvent('cohere', { type: 'content-delta', index: 0, delta: { message: { content: { text: 'Hi' } } } }),
    ],
    finish: (reason) =>
      reason === undefined
        ? []
        : [wireEvent('cohere', { type: 'message-end', delta: { finish_reason: reason, usage: {} } })],
    end: [],
    reason: 'COMPLETE',
  },
};

/** Every shape in which an upstream says inside a stream that it failed. */
const ERRORS: Readonly<Record<string, (dialect: TestedDialect) => Buffer>> = {
  'an error object': (dialect) => errorEvent(dialect, { error: { message: 'broke', type: 'server_error', code: 500 } }),
  'an error as text': (dialect) => errorEvent(dialect, { error: 'broke' }),
  'a flat error object': (dialect) =>
    errorEvent(dialect, { object: 'error', message: 'broke', type: 'InternalServerError', code: 500 }),
  'an object of type error': (dialect) => errorEvent(dialect, { type: 'error', message: 'broke' }),
  'a code and a message': (dialect) => errorEvent(dialect, { code: 500, message: 'broke' }),
  'a detail': (dialect) => errorEvent(dialect, { detail: 'broke' }),
  'a list of details': (dialect) => errorEvent(dialect, { detail: [{ loc: ['body'], msg: 'broke' }] }),
  'an event named error': (dialect) =>
    dialect === 'bedrock' ? wireEvent(dialect, { x: 1 }, 'error') : wireEvent(dialect, { anything: 'broke' }, 'error'),
  'an event named error without JSON': (dialect) => wireEvent(dialect, 'broke', 'error'),
};

/** Without a name: for Bedrock, an event of a kind that nobody knows. */
function errorEvent(dialect: TestedDialect, body: object): Buffer {
  if (dialect === 'bedrock') return wireEvent(dialect, body, '');
  return Buffer.from(`data: ${JSON.stringify(body)}\n\n`);
}

interface BrokenEnd {
  readonly name: string;
  readonly pieces: readonly Buffer[];
}

function brokenEnds(dialect: TestedDialect): readonly BrokenEnd[] {
  const { begin, finish, end, reason } = ANSWERS[dialect];
  const failures = Object.entries(ERRORS).flatMap(([name, eventOf]): BrokenEnd[] => [
    { name: `${name} as the first event`, pieces: [eventOf(dialect)] },
    { name: `${name} after some text`, pieces: [...begin, eventOf(dialect)] },
    { name: `${name} and then an end`, pieces: [...begin, eventOf(dialect), ...finish(reason), ...end] },
  ]);
  return [
    ...failures,
    { name: 'nothing at all', pieces: [] },
    { name: 'an end without a reason', pieces: [...begin, ...end] },
    { name: 'an empty reason', pieces: [...begin, ...finish(''), ...end] },
    { name: 'an empty reason and no end', pieces: [...begin, ...finish('')] },
    { name: 'no reason and no end', pieces: begin },
  ];
}

interface SeenEnd {
  readonly failed: boolean;
  readonly completed: boolean;
}

/** How a client of this ingress sees the end of a call. */
async function readEnd(ingress: Ingress, response: Response): Promise<SeenEnd> {
  const text = await response.text();
  if (response.status >= 400) return { failed: true, completed: false };
  if (ingress === 'geminiArray') return readItems(JSON.parse(text));
  const events = text.split('\n\n').filter((event) => event.includes('data: '));
  for (const event of events) {
    const data = event.slice(event.indexOf('data: ') + 'data: '.length);
    if (data !== '[DONE]') assert.doesNotThrow(() => JSON.parse(data), `not JSON: ${data}`);
  }
  switch (ingress) {
    case 'chat':
    case 'text':
      return {
        failed: events.some((event) => event.startsWith('data: {"error":')),
        completed: text.includes('data: [DONE]'),
      };
    case 'messages':
      return { failed: text.includes('event: error'), completed: text.includes('event: message_stop') };
    case 'responses':
      return { failed: text.includes('event: response.failed'), completed: text.includes('event: response.completed') };
    case 'gemini': {
      const items = events.map((event) => JSON.parse(event.slice(event.indexOf('data: ') + 'data: '.length)));
      const seen = readItems(items);
      // Google's own clients look for the error after the last event.
      if (seen.failed) assert.deepEqual(JSON.parse(text.slice(text.lastIndexOf('\n\n'))), items.at(-1));
      return seen;
    }
  }
}

// biome-ignore lint/suspicious/noExplicitAny: responses as a client reads them.
function readItems(items: readonly any[]): SeenEnd {
  const last = items.at(-1);
  return { failed: last.error?.code >= 400, completed: Boolean(last.candidates?.[0].finishReason) };
}

async function endThrough(
  upstreams: DialectUpstreams,
  ingress: Ingress,
  dialect: TestedDialect,
  pieces: readonly Buffer[],
): Promise<SeenEnd> {
  upstreams.script(streams(pieces));
  return readEnd(ingress, await askThrough(upstreams, ingress, dialect, { stream: true }));
}

const NAMES = Object.keys(INGRESSES) as readonly Ingress[];

for (const dialect of DIALECTS) {
  test(`DC-14, DC-15, DC-26: every broken end of ${dialect} is an error on every ingress, and metered as one`, async (t) => {
    const upstreams = await startDialectUpstreams(t);
    let requests = 0;
    for (const { name, pieces } of brokenEnds(dialect)) {
      for (const ingress of NAMES) {
        const seen = await endThrough(upstreams, ingress, dialect, pieces);
        assert.deepEqual(seen, { failed: true, completed: false }, `${ingress}: ${name}`);
        requests += 1;
      }
    }
    const { total } = await upstreams.completions.usage();
    assert.deepEqual([total.requests, total.errors], [requests, requests]);
  });

  test(`a finish that is complete stays a success on every ingress (${dialect})`, async (t) => {
    const upstreams = await startDialectUpstreams(t);
    const { begin, finish, end, reason } = ANSWERS[dialect];
    const whole = [...begin, ...finish(reason), ...end];
    const withoutEnd = [...begin, ...finish(reason)];
    let requests = 0;
    for (const pieces of [whole, withoutEnd]) {
      for (const ingress of NAMES) {
        assert.deepEqual(await endThrough(upstreams, ingress, dialect, pieces), { failed: false, completed: true });
        requests += 1;
      }
    }
    const { total } = await upstreams.completions.usage();
    assert.deepEqual([total.requests, total.errors], [requests, 0]);
  });

  test(`a stream of ${dialect} that is cut at any byte is an error until its reason has come`, async () => {
    const { begin, finish, end, reason } = ANSWERS[dialect];
    const all = Buffer.concat([...begin, ...finish(reason), ...end]);
    const reasonComes = Buffer.concat([...begin, ...finish(reason)]).length;
    const loaded = await loadDialect(dialect);
    for (let cut = 0; cut < all.length; cut += 1) {
      const readers: readonly StreamReader<unknown>[] = [
        createChunkReader({
          dialect: loaded,
          context: { model: 'm', stream: true, id: 'c', created: 1 },
          framing: await createFraming(loaded.framing),
          choices: 1,
          promptTokens: 1,
        }),
        ...(dialect === 'openai'
          ? [createByteReader({ choices: 1, usageAsked: false, promptTokens: 1, chunkObject: 'chat.completion.chunk' })]
          : []),
        ...(dialect === 'google'
          ? [createLaneReader({ lane: generateLane, promptTokens: 1, onKept: () => undefined })]
          : []),
      ];
      for (const reader of readers) {
        const fed = reader.feed(Buffer.from(all.subarray(0, cut)));
        const { done, failure } = fed.done || fed.failure !== undefined ? fed : reader.end();
        const where = `cut at ${cut} of ${all.length}, the reason is complete at ${reasonComes}`;
        // The blank line after the last event may be missing.
        if (cut < reasonComes - 2) assert.ok(!done, where);
        if (cut >= reasonComes) assert.ok(done && failure === undefined, where);
      }
    }
  });
}
