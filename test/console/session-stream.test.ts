import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Live, LiveUpdate } from '../../src/client/trestle-client.ts';
import { until } from '../kit/until.ts';

const at = 1000;
const status = (seq: number) => ({ seq, at, turnId: 't1', kind: 'status', text: `${seq}` }) as LiveUpdate;
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => status(from + index));

let draw: () => void = () => undefined;
Object.assign(globalThis, {
  document: { querySelector: () => null, hidden: false },
  location: { origin: 'http://t' },
  requestAnimationFrame(frame: () => void) {
    draw = frame;
    return 1;
  },
  cancelAnimationFrame: () => undefined,
});
/** As text, because the types of the console have a DOM, and those of tests have none. */
const SOURCE = '../../src/console/live/session-stream.ts';
const { openSessionStream } = (await import(SOURCE)) as {
  openSessionStream(name: { readonly sessionId: string }, live: Live): SessionStream;
};

interface SessionStream {
  snapshot(): {
    readonly folded: { readonly items: readonly { readonly key: string }[] };
    readonly hasEarlier: boolean;
  };
  onChange(listener: () => void): () => void;
  loadEarlier(): Promise<void>;
  close(): void;
}

test('an open session keeps 20,000 updates, and reads earlier ones again', async (t) => {
  const asked: string[] = [];
  let gate: Promise<void> | undefined;
  t.mock.method(globalThis, 'fetch', async (input: URL) => {
    asked.push(input.href);
    await gate;
    const before = Number(input.searchParams.get('beforeSeq') ?? 301);
    const updates = range(before - 300, before - 1);
    const [first] = updates;
    const page = { updates, firstSeq: first?.seq, lastSeq: before - 1, hasEarlier: before > 301, hasLater: false };
    return Response.json(page);
  });
  let send: (update: LiveUpdate) => void = () => undefined;
  const live: Live = {
    watch: () => () => undefined,
    follow(_sessionId, listener) {
      send = listener;
      return () => undefined;
    },
    status: () => ({ isOpen: true, heardAt: 0, clockAheadMs: 0, problem: undefined }),
    onStatus: () => () => undefined,
  };
  // As React does with a page that it draws, drops for something more urgent, and draws again.
  openSessionStream({ sessionId: 's' }, { ...live, follow: () => assert.fail('nobody sees it') });
  const stream = openSessionStream({ sessionId: 's' }, live);
  stream.onChange(() => undefined);
  await until('the first page', () => stream.snapshot().folded.items.length === 300);
  assert.equal(stream.snapshot().hasEarlier, false);
  assert.equal(asked.length, 1);
  for (const update of range(301, 20_000)) send(update);
  draw();
  const seen = () => {
    const { items } = stream.snapshot().folded;
    return [items.length, items[0]?.key, items.at(-1)?.key];
  };
  assert.deepEqual(seen(), [20_000, '1', '20000'], 'nothing is evicted yet');
  send(status(20_001));
  draw();
  assert.deepEqual(seen(), [15_000, '5002', '20001']);
  assert.equal(stream.snapshot().hasEarlier, true);
  await stream.loadEarlier();
  assert.deepEqual(seen(), [15_300, '4702', '20001'], 'what was evicted is read again');
  assert.match(asked.at(-1) ?? '', /beforeSeq=5002/);

  const { promise, resolve } = Promise.withResolvers<void>();
  gate = promise;
  const loading = stream.loadEarlier();
  for (const update of range(20_002, 24_702)) send(update);
  draw();
  assert.deepEqual(seen(), [15_000, '9703', '24702']);
  resolve();
  await loading;
  assert.deepEqual(seen(), [15_000, '9703', '24702'], 'a page that leaves a gap is not shown');
  await stream.loadEarlier();
  assert.deepEqual(seen(), [15_300, '9403', '24702']);
  stream.close();
});
