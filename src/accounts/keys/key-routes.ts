import { type Static, Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { requireNotClosing } from '../closing.ts';
import { BODY_LIMIT } from '../limits.ts';
import { MAX_KEYS } from '../owners.ts';
import type { CompletionKeys } from './completion-keys.ts';

const nullable = <T extends Parameters<typeof Type.Optional>[0]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

/** What a key may be limited to; its owner is the caller. Strict, because a misspelt limit would be no limit. */
const NewKey = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000-\\u001f\\u007f]*$', examples: ['laptop'] }),
    models: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 200, pattern: '^[!-~]+$' }), { maxItems: 200 }),
    ),
    requests_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
    tokens_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000_000 })),
    budget: nullable(
      Type.Object(
        {
          usd: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000_000 }),
          period: Type.Union([Type.Literal('day'), Type.Literal('month'), Type.Literal('total')]),
        },
        { additionalProperties: false },
      ),
    ),
    expires_at: nullable(Type.String({ maxLength: 64, description: 'A time such as 2030-01-31T00:00:00Z.' })),
  },
  { additionalProperties: false },
);

const Key = Type.Object({ id: Type.String() }, { additionalProperties: true });
const Keys = Type.Object({ keys: Type.Array(Key) });

/** The caller's own keys of the completions service. */
export function keyRoutes({
  access,
  completionKeys,
  owners,
}: Pick<AccountsCore, 'access' | 'completionKeys' | 'owners'>): readonly Route[] {
  function keysHere(): CompletionKeys {
    const keys = completionKeys();
    if (keys === undefined) throw new AppError('COMPLETIONS_UNAVAILABLE');
    return keys;
  }

  async function maxKeysOf(userId: string): Promise<number> {
    const owner = await owners.ownerOf(userId);
    return owner === undefined ? MAX_KEYS : owners.maxKeys(owner);
  }

  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'POST',
      path: '/api/auth/keys',
      // A key outlives the session that creates it.
      guard: access.freshUser,
      summary: 'Issues a key of the completions API to the caller. It is shown this once.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: NewKey, response: { 201: Key } },
      async handle({ caller: { user }, body, head, reply }) {
        const keys = keysHere();
        requireNotClosing(user);
        const most = await maxKeysOf(user.id);
        if ((await keys.list(user.id)).length >= most) throw new AppError('TOO_MANY_KEYS', { most });
        const by = { actor: user.id, head };
        const issued = await keys.create(user.id, body as Static<typeof NewKey>, by);
        // Requests that come together see the same list before: none of them may leave more keys than there can be.
        if ((await keys.list(user.id)).length > most) {
          await keys.remove(user.id, issued.id, by);
          throw new AppError('TOO_MANY_KEYS', { most });
        }
        reply.code(201);
        return issued;
      },
    },
    {
      method: 'GET',
      path: '/api/auth/keys',
      guard: access.user,
      summary: 'The caller’s keys of the completions API.',
      schema: { response: { 200: Keys } },
      handle: async ({ caller: { user } }) => ({ keys: await keysHere().list(user.id) }),
    },
    {
      method: 'DELETE',
      path: '/api/auth/keys/:id',
      guard: access.user,
      summary: 'Removes one of the caller’s keys: it stops working at once.',
      schema: { response: { 204: Type.Null() } },
      async handle({ caller: { user }, params, head }) {
        await keysHere().remove(user.id, params.id ?? '', { actor: user.id, head });
      },
    },
  ];
  return rows;
}
