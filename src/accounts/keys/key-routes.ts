import { type Static, Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { CompletionKeys } from './completion-keys.ts';

const MOST_PER_USER = 100;

const nullable = <T extends Parameters<typeof Type.Optional>[0]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

/** What a key may be limited to; its owner is the caller, whatever the body says. */
const NewKey = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000-\\u001f\\u007f]*$', examples: ['laptop'] }),
  models: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 200, pattern: '^[!-~]+$' }), { maxItems: 200 }),
  ),
  requests_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  tokens_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000_000 })),
  budget: nullable(
    Type.Object({
      usd: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000_000 }),
      period: Type.Union([Type.Literal('day'), Type.Literal('month'), Type.Literal('total')]),
    }),
  ),
  expires_at: nullable(Type.String({ maxLength: 64, description: 'A time such as 2030-01-31T00:00:00Z.' })),
});

const Key = Type.Object({ id: Type.String() }, { additionalProperties: true });
const Keys = Type.Object({ keys: Type.Array(Key) });

/** The caller's own keys of the completions service. */
export function keyRoutes({
  access,
  completionKeys,
  audit,
}: Pick<AccountsCore, 'access' | 'completionKeys' | 'audit'>): readonly Route[] {
  function keysHere(): CompletionKeys {
    const keys = completionKeys();
    if (keys === undefined) throw new AppError('COMPLETIONS_UNAVAILABLE');
    return keys;
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
        if ((await keys.list(user.id)).length >= MOST_PER_USER) {
          throw new AppError('TOO_MANY_KEYS', { most: MOST_PER_USER });
        }
        const issued = await keys.create(user.id, knownMembers(body as Static<typeof NewKey>));
        const details = { key: issued.id };
        await audit.record({ event: 'key.created', actor: user.id, subject: user.id, head, details });
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
        const id = params.id ?? '';
        await keysHere().remove(user.id, id);
        await audit.record({ event: 'key.removed', actor: user.id, subject: user.id, head, details: { key: id } });
      },
    },
  ];
  return rows;
}

/** Members that are not ours to hand on are left out, the owner above all. */
function knownMembers({
  name,
  models,
  requests_per_minute,
  tokens_per_minute,
  budget,
  expires_at,
}: Static<typeof NewKey>) {
  return {
    name,
    ...(models !== undefined && { models }),
    ...(requests_per_minute !== undefined && { requests_per_minute }),
    ...(tokens_per_minute !== undefined && { tokens_per_minute }),
    ...(budget !== undefined && { budget: budget && { usd: budget.usd, period: budget.period } }),
    ...(expires_at !== undefined && { expires_at }),
  };
}
