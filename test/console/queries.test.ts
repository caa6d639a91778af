import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type QueryClient, QueryObserver } from '@tanstack/react-query';
import { until } from '../kit/until.ts';

// The console asks where it was loaded from.
Object.assign(globalThis, { document: { querySelector: () => null }, location: { origin: 'http://t' } });
/** As text, because the types of the console have a DOM, and those of tests have none. */
const SOURCE = '../../src/console/data/queries.ts';
const { queries } = (await import(SOURCE)) as { queries: QueryClient };

test('what changes while it is read for the first time is read again, once', async (t) => {
  const first = Promise.withResolvers<void>();
  let reads = 0;
  const observer = new QueryObserver(queries, {
    queryKey: ['session', { sessionId: 'one' }],
    async queryFn() {
      reads += 1;
      const read = reads;
      if (read === 1) await first.promise;
      return read;
    },
  });
  t.after(observer.subscribe(() => undefined));
  const told = [queries.invalidateQueries({ queryKey: ['session'] }), queries.invalidateQueries()];
  first.resolve();
  await Promise.all(told);
  await until('the later answer', () => observer.getCurrentResult().data === 2);
  assert.equal(reads, 2);
  // With something to show, the library reads again by itself.
  await queries.invalidateQueries({ queryKey: ['session'] });
  assert.equal(reads, 3);
  t.after(() => queries.clear());
});

test('a first read that fails after a change is tried again, and one that nothing changes is read once', async (t) => {
  let reads = 0;
  const observer = new QueryObserver(queries, {
    queryKey: ['jobs'],
    retry: false,
    queryFn() {
      reads += 1;
      return reads === 1 ? Promise.reject(new Error('away')) : Promise.resolve(reads);
    },
  });
  t.after(observer.subscribe(() => undefined));
  void queries.invalidateQueries({ queryKey: ['jobs'] });
  await until('the later answer', () => observer.getCurrentResult().data === 2);
  let others = 0;
  const other = new QueryObserver(queries, { queryKey: ['agents'], queryFn: () => ++others });
  t.after(other.subscribe(() => undefined));
  await until('an answer', () => other.getCurrentResult().data === 1);
  await queries.invalidateQueries({ queryKey: ['jobs'] });
  assert.equal(others, 1);
  t.after(() => queries.clear());
});
