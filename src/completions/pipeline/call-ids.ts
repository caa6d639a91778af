import type { MakeId } from '../../platform/ids/sortable-id.ts';

/** One random start for all ids of a kind, then a count: drawing randomness for each call costs more than parsing it. */
export function createCallIds(prefix: string, makeId: MakeId): () => string {
  const start = makeId(prefix);
  let count = 0;
  return () => {
    count += 1;
    return `${start}-${count.toString(36)}`;
  };
}
