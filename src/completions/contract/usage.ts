import { type Static, Type } from 'typebox';

const Counts = {
  requests: Type.Integer(),
  errors: Type.Integer(),
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  cost_usd: Type.Number(),
};

const GroupBy = Type.Union([Type.Literal('key'), Type.Literal('model'), Type.Literal('api'), Type.Literal('day')]);

export const UsageQuery = Type.Object({
  from: Type.Optional(Type.String({ description: 'First day, in UTC: 2030-01-01. Default: 30 days ago.' })),
  to: Type.Optional(Type.String({ description: 'Last day, in UTC. Default: today.' })),
  group_by: Type.Optional(GroupBy),
  key: Type.Optional(Type.String({ description: 'Only the calls of this key; for the master key.' })),
});

export const UsageReport = Type.Object(
  {
    object: Type.Literal('list'),
    from: Type.String(),
    to: Type.String(),
    group_by: GroupBy,
    data: Type.Array(Type.Object({ group: Type.String(), ...Counts })),
    total: Type.Object(Counts),
  },
  { $id: 'UsageReport' },
);

export type UsageQuery = Static<typeof UsageQuery>;
export type UsageReport = Static<typeof UsageReport>;
