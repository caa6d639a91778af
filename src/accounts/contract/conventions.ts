import { type Static, type TObject, Type } from 'typebox';

const time = (description: string) => Type.String({ description, examples: ['2030-01-01T00:00:00.000Z'] });

/** A user as everyone who may see one sees it. */
export const User = Type.Object({
  id: Type.String(),
  uuid: Type.String({ description: 'The same as `id`.' }),
  name: Type.String(),
  username: Type.String({ description: 'The same as `name`.' }),
  email: Type.String(),
  emailVerified: Type.Boolean(),
  mfaEnabled: Type.Boolean(),
  mfa: Type.Object({
    totpEnabled: Type.Boolean(),
    totpPending: Type.Boolean(),
    totpSecretIssuedAt: Type.Optional(time('When the secret was created.')),
    totpConfirmedAt: Type.Optional(time('When the first correct code was entered.')),
    totpLockedUntil: Type.Optional(time('Codes are refused until then.')),
  }),
  role: Type.String(),
  groups: Type.Array(Type.String()),
  permissions: Type.Array(Type.String()),
  active: Type.Boolean(),
  proxyUuid: Type.Union([Type.String(), Type.Null()], {
    description: 'A credential: null unless the caller is this user or may change users.',
  }),
  proxyUuidExpiresAt: Type.Union([time('When the proxy UUID expires.'), Type.Null()]),
  createdAt: time('When the account was created.'),
  deletesAt: Type.Optional(time('When the account is deleted, because its owner asked for it.')),
});

export type User = Static<typeof User>;

/** The shape of every refusal. */
export const AccountError = Type.Object({
  error: Type.String({ description: 'The code of the error, in snake case.' }),
  message: Type.String(),
  requestId: Type.String(),
  details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
  retryAt: Type.Optional(Type.String({ description: 'From when on another attempt is accepted.' })),
});

/** The response of what returns nothing. */
export const Nothing = { 204: Type.Null() };
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
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_LIMIT, description: `Default: ${DEFAULT_LIMIT}.` })),
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
