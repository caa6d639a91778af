import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HistoryStore } from '../../../src/bridge/storage/workbench-stores.ts';
import { createHistory } from '../../../src/bridge/workbench/history.ts';

test('the last number of a page counts what was stored while it was read, so that nobody gets it twice', async () => {
  const update = (seq: number) => JSON.stringify({ seq, kind: 'text', text: String(seq) });
  const chunk = {
    session_key: 'key',
    version: 2,
    first_seq: 1,
    last_seq: 3,
    updates: [1, 2, 3].map(update).join('\n'),
    at: 1,
  };
  const reads = {
    // The third update is stored after this answer.
    bounds: async () => ({ first: 1, last: 2 }),
    chunksBefore: async (_key: string, before: number) => (before > 3 ? [chunk] : []),
  };
  const history = createHistory({
    store: reads as Partial<HistoryStore> as HistoryStore,
    updates: { readAfter: async () => [], readNaming: async () => [] },
    flush: async () => undefined,
  });
  const page = await history.updates('key', {});
  assert.deepEqual(
    page.updates.map(({ seq }) => seq),
    [1, 2, 3],
  );
  assert.deepEqual([page.lastSeq, page.hasLater], [3, false]);
});
