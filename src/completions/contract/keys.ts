import { type Static, Type } from 'typebox';

const nullable = <T extends Parameters<typeof Type.Optional>[0]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

const Budget = Type.Object(
  {
    usd: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000_000 }),
    period: Type.Union([Type.Literal('day'), Type.Literal('month'), Type.Literal('total')]),
  },
  { additionalProperties: false },
);

/** Nothing may follow unseen: a misspelt limit would be no limit. */
export const NewKey = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000-\\u001f\\u007f]*$', examples: ['laptop'] }),
    owner: Type.Optional(Type.String({ maxLength: 200, pattern: '^[!-~]*$', description: 'Id of a user.' })),
    models: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\s\\u0000]+$' }), {
        maxItems: 200,
        description: 'Patterns of the models that it may use: `openai/*`, `fast`. None: all.',
      }),
    ),
    requests_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
    tokens_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000_000 })),
    budget: nullable(Budget),
    expires_at: nullable(Type.String({ maxLength: 64, description: 'A time such as 2030-01-31T00:00:00Z.' })),
  },
  { $id: 'NewKey', additionalProperties: false },
);

const KeyFields = {
  id: Type.String(),
  object: Type.Literal('key'),
  name: Type.String(),
  owner: Type.String(),
  hint: Type.String({ description: 'How the key begins.' }),
  models: Type.Array(Type.String()),
  requests_per_minute: Type.Union([Type.Integer(), Type.Null()]),
  tokens_per_minute: Type.Union([Type.Integer(), Type.Null()]),
  budget: Type.Union([Budget, Type.Null()]),
  expires_at: Type.Union([Type.String(), Type.Null()]),
  created_at: Type.String(),
};

const KeyInfo = Type.Object(KeyFields);

export const IssuedKey = Type.Object(
  { ...KeyFields, key: Type.String({ description: 'Shown this once.' }) },
  { $id: 'IssuedKey', description: 'The key, shown this once.' },
);

export const KeyList = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(KeyInfo),
  has_more: Type.Boolean(),
});

export const KeyListQuery = Type.Object({
  owner: Type.Optional(Type.String({ description: 'Only the keys of this user.' })),
  after: Type.Optional(Type.String({ description: 'Id of the last key of the page before.' })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
});

export const KeyPath = Type.Object({ id: Type.String({ minLength: 1 }) });

export type NewKey = Static<typeof NewKey>;
export type KeyInfo = Static<typeof KeyInfo>;
export type IssuedKey = Static<typeof IssuedKey>;
export type KeyList = Static<typeof KeyList>;
export type KeyListQuery = Static<typeof KeyListQuery>;
