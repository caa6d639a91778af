import { type Static, Type } from 'typebox';
import { JobRecord } from './jobs.ts';
import { ProviderEntry } from './surface.ts';
import { Permission, Summary, seq } from './workbench.ts';

/** The live socket, `/api/bridge/live`: what can be called, and what it sends. */
const topics = Type.Array(Type.Enum(['sessions', 'permissions', 'jobs', 'agents']), { minItems: 1, maxItems: 8 });
const liveOwner = Type.Optional(Type.String({ minLength: 1, maxLength: 600 }));
const liveSession = { sessionId: Type.String({ minLength: 1, maxLength: 256 }), owner: liveOwner };

export const WatchParams = Type.Object({ topics, owner: liveOwner });
export const UnwatchParams = Type.Object({});
export const FollowParams = Type.Object({ ...liveSession, afterSeq: seq('Absent: from now on.') });
export const UnfollowParams = Type.Object(liveSession);
export const FollowResult = Type.Object({
  lastSeq: Type.Integer({ description: 'Of the session now; 0 when it is not known here.' }),
});
const { result: _result, ...jobMembers } = JobRecord.properties;
export const LiveJob = Type.Object(jobMembers, { description: 'As `app.jobs.list` has it, without the result.' });
const Missed = Type.Null({ description: 'More has changed than could be sent: read the list again.' });
export const Change = Type.Union([
  Type.Object({
    topic: Type.Literal('sessions'),
    item: Type.Union([
      Summary,
      Type.Object({ sessionId: Type.String(), owner: Type.String(), closed: Type.Literal(true) }),
      Missed,
    ]),
  }),
  Type.Object({ topic: Type.Literal('permissions'), item: Type.Union([Permission, Missed]) }),
  Type.Object({ topic: Type.Literal('jobs'), item: Type.Union([LiveJob, Missed]) }),
  Type.Object({ topic: Type.Literal('agents'), item: Type.Union([ProviderEntry, Missed]) }),
]);

export type FollowParams = Static<typeof FollowParams>;
export type FollowResult = Static<typeof FollowResult>;
export type LiveJob = Static<typeof LiveJob>;
export type Change = Static<typeof Change>;
