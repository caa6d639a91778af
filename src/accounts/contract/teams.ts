import { type Static, Type } from 'typebox';
import { NextCursor, Nothing, PageQuery } from './conventions.ts';

const strict = { additionalProperties: false };
const nullable = <T extends Parameters<typeof Type.Optional>[0]>(schema: T) => Type.Union([schema, Type.Null()]);

const TeamRole = Type.Union([Type.Literal('owner'), Type.Literal('member')], {
  description: 'An owner adds and removes members.',
});

const TeamBudget = Type.Object(
  {
    usd: Type.Number({ minimum: 0, maximum: 1_000_000_000 }),
    period: Type.Union([Type.Literal('day'), Type.Literal('month'), Type.Literal('total')]),
  },
  {
    ...strict,
    description: 'What the members may spend for the team in total, in addition to the limits of their own plans.',
  },
);
export type TeamBudget = Static<typeof TeamBudget>;

const name = Type.String({ minLength: 1, maxLength: 256, examples: ['research'] });
const plan = Type.Optional(
  nullable(Type.String({ maxLength: 64, description: 'A plan whose limits apply to the team.' })),
);
const budget = Type.Optional(nullable(TeamBudget));

const NewTeam = Type.Object({ name, plan, budget }, strict);
export type NewTeam = Static<typeof NewTeam>;

const TeamChange = Type.Object({ name: Type.Optional(name), plan, budget }, strict);
export type TeamChange = Static<typeof TeamChange>;

export const Team = Type.Object({
  id: Type.String(),
  name: Type.String(),
  plan: nullable(Type.String()),
  budget: nullable(TeamBudget),
  role: nullable(TeamRole),
  createdAt: Type.String(),
});
export type Team = Static<typeof Team>;

const NewMember = Type.Object(
  {
    userId: Type.Optional(
      Type.String({ maxLength: 64, description: 'The id, which the user gives to an owner of the team.' }),
    ),
    email: Type.Optional(Type.String({ maxLength: 254, description: 'Only for administrators.' })),
    role: Type.Optional(TeamRole),
  },
  strict,
);
export type NewMember = Static<typeof NewMember>;

const Member = Type.Object({ userId: Type.String(), name: Type.String(), role: TeamRole, createdAt: Type.String() });
export type Member = Static<typeof Member>;

const OneTeam = Type.Object({ team: Team });

export const teamOperations = {
  listTeams: {
    summary: 'The teams that the caller is in; with all=1, for administrators, all of them.',
    query: Type.Object({ ...PageQuery.properties, all: Type.Optional(Type.Literal('1')) }, strict),
    response: { 200: Type.Object({ teams: Type.Array(Team), nextCursor: NextCursor }) },
  },
  createTeam: { summary: 'Creates a team, for administrators.', body: NewTeam, response: { 201: OneTeam } },
  changeTeam: {
    summary: 'Changes name, plan or budget of a team; null removes plan or budget.',
    body: TeamChange,
    response: { 200: OneTeam },
  },
  removeTeam: { summary: 'Removes a team.', response: Nothing },
  listMembers: {
    summary: 'The members of a team, for its members.',
    query: PageQuery,
    response: { 200: Type.Object({ members: Type.Array(Member), nextCursor: NextCursor }) },
  },
  addMember: {
    summary: 'Adds someone to a team, or changes their role in it.',
    body: NewMember,
    response: { 200: Type.Object({ member: Member }) },
  },
  removeMember: { summary: 'Removes someone from a team; members may remove themselves.', response: Nothing },
};
