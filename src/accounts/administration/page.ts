import { Type } from 'typebox';

const DEFAULT_LIMIT = 50;
const MOST = 200;

export const PageQuery = Type.Object(
  {
    cursor: Type.Optional(Type.String({ maxLength: 320, description: 'The nextCursor of the page before.' })),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MOST, description: `${DEFAULT_LIMIT} unless given.` })),
  },
  { additionalProperties: false },
);

/** One page of a list; `read` is asked for one more row than is shown, to know whether there is another page. */
export async function pageOf<Row>(
  limit: number = DEFAULT_LIMIT,
  read: (most: number) => Promise<Row[]>,
  cursorOf: (row: Row) => string = (row) => (row as { readonly id: string }).id,
): Promise<{ rows: Row[]; nextCursor: string | null }> {
  const found = await read(limit + 1);
  const rows = found.slice(0, limit);
  const last = rows.at(-1);
  return { rows, nextCursor: found.length > limit && last !== undefined ? cursorOf(last) : null };
}
