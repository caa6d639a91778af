import { writeSync } from 'node:fs';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { openDatabase } from '../../../src/platform/database/open-database.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

/** A process that stores one row after another, 16 at a time, and says which ones are stored, until it is killed. */
const [file = '', prefix = ''] = process.argv.slice(2);
const location = { engine: 'sqlite', file } as const;
const database = await openDatabase<SampleSchema>({ ...sampleDatabase, location, clock: systemClock });
const insert = database.statement((query, given: { id: string; label: string }) =>
  query.insertInto('items').values(item(given.id, { label: given.label })),
);
const entry = database.statement((query, given: { item: string }) =>
  query.insertInto('entries').values({ item: given.item, place: 1, body: 'with it' }),
);
let count = 0;
const writer = async (): Promise<never> => {
  for (;;) {
    count += 1;
    const id = `${prefix}-${count}`;
    await database.write([insert({ id, label: id }), entry({ item: id })]);
    writeSync(1, `${id}\n`);
  }
};
await Promise.all(Array.from({ length: 16 }, writer));
