import type { Database } from '../../../src/platform/database/database.ts';
import { item, type SampleSchema } from './sample-database.ts';

/** Rows of every kind, some of which refer to rows that sort after them. */
export async function fillSample(database: Database<SampleSchema>, count: number): Promise<void> {
  const { query } = database;
  const items = Array.from({ length: count }, (_, index) =>
    item(`item-${String(index).padStart(5, '0')}`, {
      label: index % 3 === 0 ? null : `ünïcode 🙂 ${index}`,
      amount: index % 5 === 0 ? 2n ** 60n + BigInt(index) : index - 3,
      ratio: index % 4 === 0 ? null : index / 7,
      content: index % 2 === 0 ? null : new Uint8Array([0, index % 256, 255]),
      parent: index < count - 1 ? `item-${String(count - 1).padStart(5, '0')}` : null,
    }),
  );
  const entries = items.flatMap(({ id }, index) =>
    [1, 2].map((place) => ({ item: id, place, body: JSON.stringify({ index, place }) })),
  );
  await database.write([
    query.insertInto('items').values(items).compile(),
    query.insertInto('entries').values(entries).compile(),
  ]);
}
