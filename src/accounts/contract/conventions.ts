import { type Static, type TObject, Type } from 'typebox';
import { User } from './user.ts';

/** The shape of every refusal (contract/accounts, Conventions). */
export const AccountError = Type.Object({
  error: Type.String({ description: 'What went wrong, in snake case.' }),
  message: Type.String(),
  requestId: Type.String(),
  details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
  retryAt: Type.Optional(Type.String({ description: 'From when on it is looked at again.' })),
});

/** The response of what returns nothing. */
export const Nothing = { 204: Type.Null() };
/** The response of a row that sends a page for browsers, or a part of one. */
export const page = (type: string) => ({ 200: Type.Unsafe<string>({ type: 'string', contentMediaType: type }) });
export const Message = Type.Object({ message: Type.String() });
export const MessageAndUser = Type.Object({ message: Type.String(), user: User });
export const Email = Type.Object({ email: Type.String({ examples: ['ann@example.org'] }) });
export const optionalText = Type.Optional(Type.String());

/** A body that may be left out altogether; when there is one it is an object like any other. */
export function optionalBody<Body extends TObject>({ properties }: Body, isStrict = false) {
  const notAnObject = { type: ['array', 'string', 'number', 'boolean', 'null'] };
  return Type.Unsafe<Static<Body> | undefined>({
    properties,
    ...(isStrict && { additionalProperties: false }),
    not: notAnObject,
  });
}

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 200;

export const PageQuery = Type.Object(
  {
    cursor: Type.Optional(Type.String({ maxLength: 320, description: 'The nextCursor of the page before.' })),
    limit: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAX_LIMIT, description: `${DEFAULT_LIMIT} unless given.` }),
    ),
  },
  { additionalProperties: false },
);

export const NextCursor = Type.Union([Type.String(), Type.Null()]);

/** Returns one page of a list. `read` gets one more row than is shown, to know whether there is another page. */
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
