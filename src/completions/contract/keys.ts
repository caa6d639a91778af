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

/** A tag can be part of a list that is separated by commas, and of an address. */
const TAG_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$';
export const MAX_TAGS = 10;

const StoreContent = Type.Union([Type.Literal('none'), Type.Literal('errors'), Type.Literal('all')], {
  description:
    'Which of its calls are stored with their requests and responses. Null: as `completions.store_content` says.',
});

/** What a key is called and what it may use; null takes a limit away. */
const KeyTerms = {
  name: Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000-\\u001f\\u007f]*$', examples: ['laptop'] }),
  models: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\s\\u0000]+$' }), {
      maxItems: 200,
      description: 'Patterns of the models that it may use: `openai/*`, `fast`. Empty: all.',
    }),
  ),
  requests_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
  tokens_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000_000 })),
  max_parallel: nullable(
    Type.Integer({ minimum: 1, maximum: 1_000_000, description: 'Calls that may run at the same time.' }),
  ),
  tags: Type.Optional(
    Type.Array(Type.String({ pattern: TAG_PATTERN }), {
      maxItems: MAX_TAGS,
      description: 'The tags of all its calls, for reports: `project:blue`.',
    }),
  ),
  store_content: nullable(StoreContent),
  budget: nullable(Budget),
  expires_at: nullable(Type.String({ maxLength: 64, description: 'A time such as 2030-01-31T00:00:00Z.' })),
};

/** Nothing may follow unseen: a misspelt limit would be no limit. */
export const NewKey = Type.Object(
  {
    ...KeyTerms,
    owner: Type.Optional(Type.String({ maxLength: 200, pattern: '^[!-~]*$', description: 'Id of a user.' })),
    team: Type.Optional(
      Type.String({
        maxLength: 64,
        pattern: '^[!-~]+$',
        description: 'Id of a team of the owner: every call is for it.',
      }),
    ),
  },
  { $id: 'NewKey', additionalProperties: false },
);

/** A member that is absent stays as it is. */
export const KeyChange = Type.Object(
  {
    ...KeyTerms,
    name: Type.Optional(KeyTerms.name),
    enabled: Type.Optional(Type.Boolean({ description: 'False: the key is refused until it is enabled again.' })),
  },
  { $id: 'KeyChange', additionalProperties: false, minProperties: 1 },
);

export const KeyRotation = Type.Object(
  {
    grace_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 86_400,
        description: 'How long the old key stays valid beside the new one, at most a day. Default: 0.',
      }),
    ),
  },
  { $id: 'KeyRotation', additionalProperties: false },
);

const KeyFields = {
  id: Type.String(),
  object: Type.Literal('key'),
  name: Type.String(),
  owner: Type.String(),
  team: Type.Union([Type.String(), Type.Null()], { description: 'The team that every call with it is for.' }),
  hint: Type.String({ description: 'How the key begins.' }),
  models: Type.Array(Type.String()),
  tags: Type.Array(Type.String()),
  requests_per_minute: Type.Union([Type.Integer(), Type.Null()]),
  tokens_per_minute: Type.Union([Type.Integer(), Type.Null()]),
  max_parallel: Type.Union([Type.Integer(), Type.Null()]),
  store_content: Type.Union([StoreContent, Type.Null()]),
  budget: Type.Union([Budget, Type.Null()]),
  expires_at: Type.Union([Type.String(), Type.Null()]),
  created_at: Type.String(),
  enabled: Type.Boolean(),
  previous_until: Type.Union([Type.String(), Type.Null()], {
    description: 'Until when the key before the last rotation still works.',
  }),
  last_used_at: Type.Union([Type.String(), Type.Null()], {
    description: 'When its last call ended. Null: it was not used within `retention.usage`.',
  }),
  spent: Type.Union(
    [
      Type.Object({
        usd: Type.Number(),
        period: Type.String({ description: '`2030-01-31`, `2030-01` or `total`, in UTC.' }),
      }),
      Type.Null(),
    ],
    { description: 'What its calls have cost in the current period of its budget. Null: it has no budget.' },
  ),
};

export const KeyInfo = Type.Object(KeyFields);

export const IssuedKey = Type.Object(
  { ...KeyFields, key: Type.String({ description: 'Shown only in this response.' }) },
  { $id: 'IssuedKey', description: 'The key. It is shown only in this response.' },
);

export const KeyList = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(KeyInfo),
  has_more: Type.Boolean(),
});

export const KeyListQuery = Type.Object({
  owner: Type.Optional(Type.String({ description: 'Only the keys of this user, or of this team (`team:<id>`).' })),
  after: Type.Optional(Type.String({ description: 'Id of the last key of the page before.' })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
});

export const KeyPath = Type.Object({ id: Type.String({ minLength: 1 }) });

export type NewKey = Static<typeof NewKey>;
export type KeyChange = Static<typeof KeyChange>;
export type KeyRotation = Static<typeof KeyRotation>;
export type KeyInfo = Static<typeof KeyInfo>;
export type IssuedKey = Static<typeof IssuedKey>;
export type KeyList = Static<typeof KeyList>;
export type KeyListQuery = Static<typeof KeyListQuery>;

const Counts = {
  requests: Type.Integer(),
  errors: Type.Integer(),
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  cost_usd: Type.Number(),
};

const GroupBy = Type.Union([
  Type.Literal('key'),
  Type.Literal('model'),
  Type.Literal('api'),
  Type.Literal('day'),
  Type.Literal('hour'),
  Type.Literal('owner'),
  Type.Literal('team'),
  Type.Literal('tag'),
  Type.Literal('outcome'),
]);

const UsageGroup = {
  group: Type.String({
    description:
      '`none`: calls without an owner, a team or tags; `other`: all but the 50 largest groups; `unknown`: calls from before the group was recorded. An hour is named by its beginning: 2030-01-31T10:00:00+01:00. Calls with several tags form a separate group: `a,b`.',
  }),
  bucket: Type.Optional(Type.String({ description: 'With `then_by`: the part of the group that the row counts.' })),
  ...Counts,
};

export const UsageQuery = Type.Object({
  from: Type.Optional(
    Type.String({
      description:
        'First day (2030-01-01), or a time (2030-01-01T10:00:00Z), rounded to a quarter of an hour. Default: 30 days ago.',
    }),
  ),
  to: Type.Optional(Type.String({ description: 'Last day, or a time. Default: today.' })),
  tz: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 64,
      description: 'The time zone of days and hours, such as `Europe/Berlin`. Default: UTC.',
    }),
  ),
  group_by: Type.Optional(GroupBy),
  then_by: Type.Optional(
    Type.Union(GroupBy.anyOf, {
      description: 'Splits each group again, with one row for each `bucket`. The same value as `group_by`: no split.',
    }),
  ),
  tag: Type.Optional(Type.String({ maxLength: 64, description: 'Only calls with this tag.' })),
  key: Type.Optional(Type.String({ description: 'Only the calls of this key; for the master key.' })),
  owner: Type.Optional(
    Type.String({
      maxLength: 200,
      description:
        'Only the calls of this owner, such as `user:usr_...`, or for this team: `team:<id>`. Your own and your teams’, unless you see all.',
    }),
  ),
});

export const UsageReport = Type.Object(
  {
    object: Type.Literal('list'),
    from: Type.String(),
    to: Type.String(),
    tz: Type.String(),
    group_by: GroupBy,
    then_by: Type.Optional(GroupBy),
    data: Type.Array(Type.Object(UsageGroup)),
    total: Type.Object(Counts),
  },
  { $id: 'UsageReport' },
);

export type UsageQuery = Static<typeof UsageQuery>;
export type UsageReport = Static<typeof UsageReport>;

const Rates = {
  input: Type.Number(),
  output: Type.Number(),
  cache_read: Type.Optional(Type.Number()),
  cache_write: Type.Optional(Type.Number({ description: 'Into a cache that lasts five minutes.' })),
  cache_write_1h: Type.Optional(Type.Number({ description: 'Into a cache that lasts an hour.' })),
  audio_input: Type.Optional(Type.Number()),
  image_input: Type.Optional(Type.Number()),
  audio_output: Type.Optional(Type.Number()),
  reasoning: Type.Optional(Type.Number()),
  per_image: Type.Optional(Type.Number({ description: 'For each image that it generates.' })),
  per_second: Type.Optional(Type.Number({ description: 'For each second of audio input.' })),
  per_character: Type.Optional(Type.Number({ description: 'For each character converted into speech.' })),
  per_search: Type.Optional(Type.Number({ description: 'For each web search that its API makes for it.' })),
};

const Pricing = Type.Object(
  {
    ...Rates,
    batch: Type.Optional(Type.Object(Rates)),
    tiers: Type.Optional(
      Type.Array(Type.Object({ above: Type.Integer({ description: 'Tokens of the prompt.' }), ...Rates })),
    ),
  },
  {
    description:
      'USD per token. If a kind of token is absent, it costs as much as `input` or `output`; if a `per_*` price is absent, it costs nothing.',
  },
);

/** `/v1` adds what is known of a model; paths without it have the plain entry. */
export const ModelEntry = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('model'),
    created: Type.Integer({ description: 'Seconds since 1970; 0 if unknown.' }),
    owned_by: Type.String(),
    context_window: Type.Optional(Type.Integer({ description: 'Tokens of prompt and answer together.' })),
    max_output_tokens: Type.Optional(Type.Integer()),
    pricing: Type.Optional(Pricing),
    input_modalities: Type.Optional(Type.Array(Type.String())),
    output_modalities: Type.Optional(Type.Array(Type.String())),
    tools: Type.Optional(Type.Boolean({ description: 'Whether it calls tools. Absent, here and below: unknown.' })),
    structured_output: Type.Optional(Type.Boolean({ description: 'Whether its answer follows a JSON Schema.' })),
    reasoning: Type.Optional(Type.Boolean()),
    temperature: Type.Optional(Type.Boolean({ description: 'Whether the caller may choose the temperature.' })),
    release_date: Type.Optional(Type.String()),
    last_updated: Type.Optional(Type.String()),
    knowledge_cutoff: Type.Optional(Type.String()),
    operation: Type.Optional(
      Type.Union([Type.Literal('responses'), Type.Literal('rawPredict')], {
        description: 'The upstream offers the model only for this operation.',
      }),
    ),
  },
  { $id: 'ModelEntry' },
);

export const ModelList = Type.Object({ object: Type.Literal('list'), data: Type.Array(ModelEntry) });

/** A model API that is known here, and what it needs. */
export const ApiStatus = Type.Object({
  id: Type.String(),
  usable: Type.Boolean(),
  name: Type.Optional(Type.String()),
  dialect: Type.Optional(Type.String()),
  base_url: Type.Optional(Type.String()),
  configured: Type.Optional(
    Type.Boolean({ description: 'Configured by a setting or a variable, not a local API without a key.' }),
  ),
  missing: Type.Optional(Type.Array(Type.String())),
  key_variables: Type.Optional(Type.Array(Type.String(), { description: 'The first variable that is set is used.' })),
  key_from: Type.Optional(Type.String({ description: 'The variable or setting that its key comes from.' })),
});

/** `GET /v1/apis`: the model APIs that are known here, for those who see the work of others. */
export const ApiList = Type.Object(
  {
    object: Type.Literal('list'),
    data: Type.Array(ApiStatus),
    prices_date: Type.String({ description: 'The date of the sizes and prices of models.' }),
  },
  { $id: 'ApiList' },
);

/** `GET /v1/targets`: how the models behind aliases fare. */
export const TargetList = Type.Object(
  {
    object: Type.Literal('list'),
    data: Type.Array(
      Type.Object({
        target: Type.String({ description: '<api>/<model>' }),
        state: Type.Enum(['closed', 'open', 'probing'], {
          description:
            '`closed`: the target is used. `open`: it failed too often and is disabled. `probing`: one call is testing it.',
        }),
        in_flight: Type.Integer({ description: 'Calls in progress.' }),
      }),
      {
        description: 'Recently used targets: those of the aliases that you may use, or all for administrators.',
      },
    ),
    aliases: Type.Array(
      Type.Object({
        name: Type.String(),
        strategy: Type.String(),
        targets: Type.Array(Type.Object({ target: Type.String(), weight: Type.Number(), priority: Type.Integer() })),
        fallbacks: Type.Array(Type.String()),
      }),
    ),
  },
  { $id: 'TargetList' },
);

export type TargetList = Static<typeof TargetList>;
export type ModelEntry = Static<typeof ModelEntry>;
export type ModelList = Static<typeof ModelList>;
export type ApiList = Static<typeof ApiList>;
