import { type Static, Type } from 'typebox';
import { MOMENT_PATTERN } from '../../platform/json/describe-issues.ts';
import { SessionName, StartParams, TurnParams } from './session.ts';
import { ProviderEntry } from './surface.ts';
import { Permission, Summary, seq } from './workbench.ts';

/** Background jobs, and the live socket, which sends changes of jobs and of everything else. */
const callback = Type.Optional(
  Type.String({
    maxLength: 2048,
    description: 'Called when the job has ended. `callbackUrl` and `webhookUrl` mean the same.',
  }),
);
const cardPart = (description: string) => Type.Optional(Type.String({ maxLength: 512, description }));

/** The first one runs first. */
export const JobPriority = Type.Enum(['high', 'normal', 'low']);

const time = (description: string) =>
  Type.Optional(
    Type.String({
      pattern: MOMENT_PATTERN,
      description: `${description} ISO 8601 with an offset, such as 2027-01-31T08:00:00Z.`,
    }),
  );

export const SubmitJobParams = Type.Object({
  providerId: Type.Optional(Type.String({ maxLength: 256, description: 'The agent to run. Empty: auto routing.' })),
  sessionId: SessionName.properties.sessionId,
  threadId: SessionName.properties.threadId,
  team: SessionName.properties.team,
  taskPrompt: TurnParams.properties.taskPrompt,
  workingDirectory: TurnParams.properties.workingDirectory,
  routing: TurnParams.properties.routing,
  multiAgent: TurnParams.properties.multiAgent,
  mode: TurnParams.properties.mode,
  attachments: TurnParams.properties.attachments,
  inlineAttachments: TurnParams.properties.inlineAttachments,
  mcpServers: StartParams.properties.mcpServers,
  newSession: Type.Optional(
    Type.Boolean({
      description: 'Restarts the session. Otherwise, the job continues the conversation if the session is open.',
    }),
  ),
  timeoutMs: Type.Optional(
    Type.Integer({
      minimum: 1000,
      maximum: 86_400_000,
      description:
        'Counted from the submission, or from `notBefore`, including waiting and retries. Default: 10 minutes.',
    }),
  ),
  priority: Type.Optional({ ...JobPriority, description: 'Among the jobs of one owner. Default: `normal`.' }),
  retries: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 10,
      description:
        'How often the job runs again after AGENT_EXITED, AGENT_TIMEOUT or PROVIDER_UNAVAILABLE. Default: 0.',
    }),
  ),
  notBefore: time('The job does not run before this time, at most 366 days ahead.'),
  retryOf: Type.Optional(
    Type.String({
      maxLength: 256,
      description:
        'Runs an ended job again, as a new job. Only timeoutMs, priority, retries, notBefore and idempotencyKey can be given with it.',
    }),
  ),
  callbackUrl: callback,
  webhookUrl: callback,
  target: cardPart('If given, the result is sent there as a card through the tools proxy.'),
  channel: cardPart('Of the card.'),
  accountId: cardPart('Of the card.'),
  idempotencyKey: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      pattern: '^[^\\u0000-\\u001f\\u007f]*$',
      description: 'Submitting the same params again with the same key returns the same job; other params are refused.',
    }),
  ),
  retryOnRestart: Type.Optional(
    Type.Boolean({ description: 'Runs the job again if the bridge stops during it; otherwise, the job fails.' }),
  ),
});

export const JobState = Type.Enum(['pending', 'running', 'completed', 'failed']);

export const SubmittedJob = Type.Object({
  jobId: Type.String(),
  status: JobState,
  sessionId: Type.String(),
  providerId: Type.String(),
});

const moment = (description: string) =>
  Type.Union([Type.String({ description: `${description}, in ISO 8601.` }), Type.Null()]);

export const JobRecord = Type.Object({
  jobId: Type.String(),
  owner: Type.String(),
  nodeId: Type.Optional(
    Type.String({ description: 'The bridge that has the job. Only if jobs may be on several bridges.' }),
  ),
  status: JobState,
  taskPrompt: Type.String({ description: 'The first 200 characters.' }),
  priority: JobPriority,
  retries: Type.Integer({ description: 'How often it may run again after a failure of its agent.' }),
  retried: Type.Integer({ description: 'How often it has run again.' }),
  notBefore: moment('The job does not run before this time'),
  scheduleId: Type.Union([Type.String({ description: 'The schedule that created it.' }), Type.Null()]),
  retryOf: Type.Union([Type.String({ description: 'The job that it repeats.' }), Type.Null()]),
  sessionId: Type.String(),
  threadId: Type.String(),
  providerId: Type.String({ description: 'Empty until an agent has been chosen.' }),
  createdAt: Type.String(),
  startedAt: moment('When it began to run'),
  completedAt: moment('When it ended'),
  elapsedMs: Type.Integer({ description: 'From the submit to the end.' }),
  durationMs: Type.Union([Type.Integer({ description: 'How long it ran.' }), Type.Null()]),
  timeoutMs: Type.Integer(),
  webhookSent: Type.Boolean(),
  webhookTries: Type.Integer(),
  cardSent: Type.Boolean(),
  result: Type.Union([Type.Object({}, { description: 'As in the result of `session.start`.' }), Type.Null()]),
  error: Type.Union([Type.String(), Type.Null()]),
  errorCode: Type.Union([
    Type.String({ description: 'JOB_TIMEOUT, JOB_CANCELLED, JOB_INTERRUPTED, or the code of the turn.' }),
    Type.Null(),
  ]),
});

export const DeliveryAttempt = Type.Object({
  kind: Type.Enum(['webhook', 'card']),
  attempt: Type.Integer({ description: 'From 1.' }),
  startedAt: Type.String(),
  endedAt: moment('When it ended'),
  result: Type.Enum(['unknown', 'sent', 'failed'], {
    description: '`unknown` during the attempt, or if the bridge stopped during it.',
  }),
  detail: Type.String({ description: 'The status of the response, or the error.' }),
});

/** The result of `app.jobs.get`. */
export const JobWithDeliveries = Type.Object({
  ...JobRecord.properties,
  deliveries: Type.Array(DeliveryAttempt, { description: 'Every attempt to deliver the result, in order.' }),
});

export const JobName = Type.Object({ jobId: Type.String({ minLength: 1, maxLength: 256 }) });

export const UnknownJob = Type.Object({ jobId: Type.String(), status: Type.Literal('not_found') });

export const ListJobsParams = Type.Object({
  team: SessionName.properties.team,
  status: Type.Optional(JobState),
  providerId: Type.Optional(Type.String({ maxLength: 256 })),
  scheduleId: Type.Optional(Type.String({ maxLength: 64, description: 'Jobs that this schedule created.' })),
  search: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 200,
      description: 'In the first 200 characters of the prompt, and in names.',
    }),
  ),
  from: time('Submitted at or after this time.'),
  to: time('Submitted before this time.'),
  owner: Type.Optional(
    Type.String({ maxLength: 600, description: 'Jobs of this owner only, for callers that see those of all.' }),
  ),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'Default: 100.' })),
  cursor: Type.Optional(Type.String({ maxLength: 64, description: 'The `nextCursor` of the page before.' })),
});

const count = Type.Integer({ minimum: 0 });

export const JobSummary = Type.Object({
  pending: count,
  running: count,
  completed: count,
  failed: count,
  total: count,
});

const NodeAnswer = Type.Object({
  nodeId: Type.String(),
  status: Type.Enum(['ok', 'unavailable'], { description: 'The jobs of a node that is `unavailable` are missing.' }),
  error: Type.Optional(Type.String({ description: 'Why the node did not answer.' })),
});
const nodes = Type.Optional(
  Type.Array(NodeAnswer, { description: 'The bridges that have jobs of the caller. Only if jobs are forwarded.' }),
);

export const JobList = Type.Object({
  jobs: Type.Array(JobRecord),
  summary: JobSummary,
  nextCursor: Type.Union([Type.String(), Type.Null()]),
  nodes,
});

export const JobStatistics = Type.Object({
  summary: JobSummary,
  byProvider: Type.Record(Type.String(), JobSummary),
  oldestPendingMs: Type.Integer({ description: '0 if no job is pending.' }),
  averageDurationMs: Type.Integer({ description: 'Of the jobs that have run and ended; 0 if there are none.' }),
  nodes,
});

export type SubmitJobParams = Static<typeof SubmitJobParams>;
export type SubmittedJob = Static<typeof SubmittedJob>;
export type JobRecord = Static<typeof JobRecord>;
export type JobWithDeliveries = Static<typeof JobWithDeliveries>;
export type DeliveryAttempt = Static<typeof DeliveryAttempt>;
export type JobPriority = Static<typeof JobPriority>;
export type ListJobsParams = Static<typeof ListJobsParams>;
export type JobList = Static<typeof JobList>;
export type JobSummary = Static<typeof JobSummary>;
export type NodeAnswer = Static<typeof NodeAnswer>;
export type JobStatistics = Static<typeof JobStatistics>;

/** The live socket, `/api/bridge/live`: its methods and notifications. */
const topics = Type.Array(Type.Enum(['sessions', 'permissions', 'jobs', 'agents']), { minItems: 1, maxItems: 8 });
const liveOwner = Type.Optional(Type.String({ minLength: 1, maxLength: 600 }));
const liveSession = { sessionId: Type.String({ minLength: 1, maxLength: 256 }), owner: liveOwner };

export const WatchParams = Type.Object({ topics, owner: liveOwner });
export const UnwatchParams = Type.Object({});
export const FollowParams = Type.Object({ ...liveSession, afterSeq: seq('Absent: from now on.') });
export const UnfollowParams = Type.Object(liveSession);
export const FollowResult = Type.Object({
  lastSeq: Type.Integer({ description: 'Of the session now; 0 if the session is not known here.' }),
});
const { result: _result, ...jobMembers } = JobRecord.properties;
export const LiveJob = Type.Object(jobMembers, { description: 'As in `app.jobs.list`, without the result.' });
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
