import { type Static, Type } from 'typebox';

const Outcome = Type.Union(
  [Type.Literal('ok'), Type.Literal('error'), Type.Literal('aborted'), Type.Literal('partial'), Type.Literal('cached')],
  {
    description:
      'aborted: the caller closed the connection; partial: the stream broke off; cached: answered from the cache.',
  },
);

const moment = (which: string) =>
  Type.Optional(Type.String({ description: `${which}: a day (2030-01-31) or a time (2030-01-31T10:00:00Z), in UTC.` }));

/** `GET /usage/calls`. */
export const CallsQuery = Type.Object({
  from: moment('The beginning (default: 7 days ago; with request_id, no limit)'),
  to: moment('The end, or the last day (default: now)'),
  key: Type.Optional(Type.String({ description: 'Id of a key.' })),
  owner: Type.Optional(Type.String({ description: 'Whose calls: `user:usr_...`, or those for a team: `team:<id>`.' })),
  model: Type.Optional(Type.String({ description: 'An alias, or <api>/<model>.' })),
  api: Type.Optional(Type.String()),
  outcome: Type.Optional(Outcome),
  tag: Type.Optional(Type.String({ maxLength: 64, description: 'The tags of the call.' })),
  min_duration_ms: Type.Optional(Type.Integer({ minimum: 0 })),
  request_id: Type.Optional(Type.String({ description: 'The header x-request-id of a response.' })),
  before: Type.Optional(Type.String({ description: 'Id of the last call of the page before.' })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 500, description: 'Default: 50.' })),
});

const CallFields = {
  id: Type.String(),
  object: Type.Literal('usage.call'),
  at: Type.String({ description: 'When the call ended.' }),
  request_id: Type.String(),
  key: Type.String({ description: 'Id of the key; `master`, `open` or `internal`.' }),
  owner: Type.String(),
  team: Type.Union([Type.String(), Type.Null()], { description: 'The team that it was for: `team:<id>`.' }),
  tags: Type.Array(Type.String()),
  model: Type.String(),
  api: Type.String({ description: 'The API that answered, or was tried last.' }),
  upstream_model: Type.String(),
  operation: Type.String(),
  outcome: Type.String(),
  status: Type.Integer(),
  attempts: Type.Integer(),
  duration_ms: Type.Integer(),
  first_token_ms: Type.Integer(),
  usage: Type.Object({
    prompt_tokens: Type.Integer(),
    completion_tokens: Type.Integer(),
    cached_tokens: Type.Integer({ description: 'Of the prompt, read from a cache.' }),
    cache_write_tokens: Type.Integer({ description: 'Of the prompt, written into a cache.' }),
    reasoning_tokens: Type.Integer({ description: 'Of the completion.' }),
    estimated: Type.Boolean(),
  }),
  cost_usd: Type.Number(),
  price_known: Type.Boolean({ description: 'False: the price is unknown, and the cost counts as 0.' }),
};

export const CallList = Type.Object(
  {
    object: Type.Literal('list'),
    data: Type.Array(Type.Object(CallFields), { description: 'Newest first.' }),
    has_more: Type.Boolean(),
  },
  { $id: 'CallList' },
);

export const CallDetails = Type.Object(
  {
    ...CallFields,
    failed_attempts: Type.Array(
      Type.Object({
        target: Type.String({ description: '<api>/<model>' }),
        code: Type.String(),
        duration_ms: Type.Integer(),
      }),
    ),
    content: Type.Union([Type.Object({ request: Type.String(), response: Type.String() }), Type.Null()], {
      description: 'The request and the response, if completions.store_content is set.',
    }),
  },
  { $id: 'CallDetails' },
);

export type CallsQuery = Static<typeof CallsQuery>;
export type CallList = Static<typeof CallList>;
export type CallDetails = Static<typeof CallDetails>;
