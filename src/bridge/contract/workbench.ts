import { type Static, Type } from 'typebox';
import { Artifact, ShownMcpServer, TurnUsage } from './session.ts';
import {
  CommandsEvent,
  decisionMembers,
  FileChange,
  ModeEvent,
  PermissionOption,
  PlanEvent,
  QuestionEvent,
  QuestionForm,
  QuestionValues,
  SteerEvent,
  StepRecord,
  TurnAttachment,
  UsageEvent,
} from './session-update.ts';

/** The second surface of the bridge, `/api/bridge/*`: sessions, turns, and decisions about permissions. */

/** Every refusal of `/api/bridge/*`. */
export const WorkbenchError = Type.Object({
  error: Type.String({ description: 'A stable word such as `session_not_found`.' }),
  message: Type.String({ description: 'What is wrong, and what to do.' }),
  requestId: Type.String(),
  details: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});

const limit = (fallback: number, maximum: number) =>
  Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum,
      description: `The maximum number of entries. Default: ${fallback}; at most ${maximum}.`,
    }),
  );
const cursor = Type.Optional(Type.String({ maxLength: 400, description: '`nextCursor` of the page before.' }));
const nextCursor = Type.Union([Type.String(), Type.Null()], {
  description: 'For the next page. A page with filters may be short, or empty, and still have one.',
});
const owner = Type.Optional(
  Type.String({ maxLength: 600, description: 'Work of this owner only, for callers that see the work of all.' }),
);

/** A question of an agent, and its answer. */
export const Permission = Type.Object({
  permissionId: Type.String(),
  sessionId: Type.String(),
  owner: Type.String(),
  turnId: Type.String(),
  toolCallId: Type.String(),
  title: Type.String({ description: 'What the agent wants to do or know, in its own words, or the command.' }),
  toolKind: Type.String({ description: '`question` if there is a `form`.' }),
  folder: Type.String({ description: 'Where the agent works.' }),
  input: Type.Unknown({
    description: 'The input of the tool; as text if it is longer than 16,384 characters.',
  }),
  options: Type.Array(PermissionOption),
  form: Type.Union([QuestionForm, Type.Null()], {
    description: 'Of a question that is answered with `values`; null for a request for permission.',
  }),
  state: Type.Enum(['open', 'allowed', 'denied', 'answered', 'declined', 'cancelled', 'expired'], {
    description: 'A question ends as `answered` or `declined`, a request for permission as `allowed` or `denied`.',
  }),
  optionId: Type.String({ description: 'The chosen option; empty if there is none.' }),
  scope: Type.String({ description: '`once`, `session` or `always`; empty without an answer.' }),
  reason: Type.String(),
  answeredBy: Type.String({ description: 'The principal that answered.' }),
  createdAt: Type.Integer(),
  expiresAt: Type.Integer(),
  answeredAt: Type.Union([Type.Integer(), Type.Null()]),
});

export const PermissionQuery = Type.Object({
  state: Type.Optional(
    Type.Enum(['open', 'all'], { description: '`open` (the default): oldest first. `all`: newest first.' }),
  ),
  sessionId: Type.Optional(Type.String({ maxLength: 256 })),
  owner,
});
export const PermissionPage = Type.Object({ permissions: Type.Array(Permission, { description: 'At most 200.' }) });
export const PermissionAnswer = Type.Object(
  {
    optionId: Type.Optional(Type.String({ maxLength: 256, description: 'One of `options`; or give `decision`.' })),
    decision: Type.Optional(
      Type.Enum(['allow', 'deny'], { description: '`deny` declines a question that has a `form`.' }),
    ),
    values: Type.Optional(QuestionValues),
    scope: Type.Optional(
      Type.Enum(['once', 'session', 'always'], {
        description:
          '`once` (the default). `session`: for the same command or path in this session; `always`: in this folder, for 30 days.',
      }),
    ),
    reason: Type.Optional(
      Type.String({
        maxLength: 2000,
        description: 'Stored with the answer. The agent receives the reason of a denial if its protocol supports that.',
      }),
    ),
  },
  { additionalProperties: false },
);
export const PermissionOnly = Type.Object({ permission: Permission });

export const StoredRule = Type.Object({
  ruleId: Type.String(),
  owner: Type.String(),
  scope: Type.Enum(['session', 'always']),
  sessionId: Type.String({ description: 'Of scope `session`; otherwise empty.' }),
  folder: Type.String(),
  when: Type.Object({
    kind: Type.String(),
    command: Type.Union([Type.Array(Type.String()), Type.Null()], { description: 'Exactly these words.' }),
    path: Type.Union([Type.String(), Type.Null()], { description: 'Exactly this path.' }),
  }),
  decision: Type.Enum(['allow', 'deny']),
  createdBy: Type.String(),
  createdAt: Type.Integer(),
  expiresAt: Type.Integer(),
});
export const RulePage = Type.Object({ rules: Type.Array(StoredRule, { description: 'Newest first, at most 200.' }) });

export const SessionState = Type.Enum(['needs_you', 'running', 'waiting', 'idle', 'archived']);

export const Summary = Type.Object({
  sessionId: Type.String(),
  threadId: Type.String(),
  owner: Type.String(),
  title: Type.String({ description: 'The first line of the first prompt, until a user changes it.' }),
  providerId: Type.String({ description: 'The agent that has the conversation.' }),
  model: Type.String({ description: 'The model of the last turn, or the one chosen since then; empty while unknown.' }),
  mode: Type.String({ description: 'The mode of its agent, or the one chosen since then; empty while unknown.' }),
  folder: Type.String({ description: 'Where the agent works; empty for the private folder of the session.' }),
  branch: Type.String({ description: 'The Git branch of the folder; empty if there is none.' }),
  state: SessionState,
  doing: Type.String({ description: 'What the running turn is doing, at most 200 characters.' }),
  turns: Type.Integer({ description: 'The number of turns, including open ones.' }),
  queuedTurns: Type.Integer(),
  openPermissions: Type.Integer({ description: 'Questions of its agent that wait for an answer.' }),
  changed: Type.Object(
    { files: Type.Integer(), added: Type.Integer(), removed: Type.Integer() },
    { description: 'Files and lines that its turns have changed in the folder; 0 if the folder is not saved.' },
  ),
  usage: Type.Object({ inputTokens: Type.Integer(), outputTokens: Type.Integer(), totalTokens: Type.Integer() }),
  costUsd: Type.Union([Type.Number(), Type.Null()], {
    description: 'Of the turns whose cost is known; null if there is none.',
  }),
  lastTurn: Type.Union([
    Type.Object({ turnId: Type.String(), status: Type.String(), code: Type.String() }),
    Type.Null({ description: 'No turn has ended yet.' }),
  ]),
  lastSeq: Type.Integer({ description: 'The number of the last known update.' }),
  jobId: Type.String({ description: 'The job that ran the last turn; empty if it was not a job.' }),
  nodeId: Type.String({ description: 'The node that has the session; empty if the bridge has no id.' }),
  createdAt: Type.Integer(),
  updatedAt: Type.Integer(),
  archivedAt: Type.Union([Type.Integer(), Type.Null()]),
  pinned: Type.Boolean(),
});

export const SessionQuery = Type.Object({
  state: Type.Optional(SessionState),
  owner,
  providerId: Type.Optional(Type.String({ maxLength: 256 })),
  folder: Type.Optional(Type.String({ maxLength: 4096, description: 'Exactly this working directory.' })),
  threadId: Type.Optional(Type.String({ maxLength: 256 })),
  search: Type.Optional(Type.String({ maxLength: 200, description: 'Searches titles and session ids; ignores case.' })),
  limit: limit(50, 200),
  cursor,
});

export const SessionPage = Type.Object({
  sessions: Type.Array(Summary),
  counts: Type.Object(
    { needsYou: Type.Integer(), running: Type.Integer(), waiting: Type.Integer(), idle: Type.Integer() },
    { description: 'Of all sessions that the caller sees, without the filters. `idle` counts up to 1,000.' },
  ),
  nextCursor,
});

export const OwnerQuery = Type.Object({ owner });
const choices = (description: string) =>
  Type.Array(Type.Object({ id: Type.String(), name: Type.String() }), { description });
export const SessionView = Type.Object({
  session: Summary,
  modes: choices('The modes of its agent; empty if there are none, or while they are unknown.'),
  models: choices('The models that its agent offers; empty if the agent does not list them.'),
  thinking: Type.String({ description: "The chosen thinking level. Empty: the agent's default." }),
  thinkingLevels: choices(
    'The thinking levels that its agent offers; empty if there are none, or while they are unknown.',
  ),
  commands: Type.Array(CommandsEvent.properties.commands.items, { description: 'The commands that its agent offers.' }),
  permissions: Type.Array(Permission, { description: 'Questions that wait for an answer.' }),
  queued: Type.Array(Type.Object({ turnId: Type.String(), prompt: Type.String(), createdAt: Type.Integer() })),
  mcpServers: Type.Array(ShownMcpServer, { description: 'The MCP servers that it was started with, without secrets.' }),
});
export const SessionChanges = Type.Object(
  {
    title: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
    archived: Type.Optional(
      Type.Boolean({ description: 'Hides the session from lists; the next turn shows it again.' }),
    ),
    pinned: Type.Optional(Type.Boolean()),
    mode: Type.Optional(
      Type.String({ maxLength: 200, description: "For the next turns: one of `modes`. Empty: the agent's default." }),
    ),
    model: Type.Optional(
      Type.String({
        maxLength: 200,
        description:
          "For the next turns that do not name a model: one of `models`, if the agent offers any. Empty: the agent's default.",
      }),
    ),
    thinking: Type.Optional(Type.String({ maxLength: 200, description: 'As `mode`: one of `thinkingLevels`.' })),
  },
  { additionalProperties: false, minProperties: 1 },
);
export const SteerRequest = Type.Object(
  { text: Type.String({ minLength: 1, maxLength: 65_536, description: 'For the agent, as in a prompt.' }) },
  { additionalProperties: false },
);
export const SteerResult = Type.Object({ turnId: Type.String({ description: 'The turn that received the message.' }) });
export const ForkRequest = Type.Object(
  {
    turnId: Type.Optional(Type.String({ maxLength: 64, description: 'The last turn of the copy. Absent: all turns.' })),
  },
  { additionalProperties: false },
);
export const ForkResult = Type.Object({
  sessionId: Type.String({ description: 'The id of the copy: `session.message` continues it.' }),
});
export const SessionOnly = Type.Object({ session: Summary });

export const TurnQuery = Type.Object({
  owner,
  limit: limit(50, 200),
  before: Type.Optional(Type.String({ maxLength: 64, description: '`nextCursor` of the page before.' })),
});

export const TurnView = Type.Object({
  turnId: Type.String(),
  method: Type.String(),
  prompt: Type.String({ description: 'At most 16,384 characters.' }),
  attachments: Type.Array(TurnAttachment, { description: 'Files that came with the prompt.' }),
  status: Type.String({ description: 'queued, running, completed, failed, cancelled or unavailable.' }),
  code: Type.String(),
  error: Type.String(),
  output: Type.String({ description: 'At most 16,384 characters.' }),
  truncated: Type.Boolean({ description: 'True: `prompt` or `output` is only the beginning.' }),
  usage: Type.Union([TurnUsage, Type.Null()]),
  costUsd: Type.Union([Type.Number(), Type.Null()]),
  artifacts: Type.Array(Artifact),
  steps: Type.Optional(Type.Array(StepRecord)),
  firstSeq: Type.Integer(),
  lastSeq: Type.Integer({ description: '0 while the turn is open.' }),
  createdAt: Type.Integer(),
  endedAt: Type.Union([Type.Integer(), Type.Null()]),
});

export const TurnPage = Type.Object({ turns: Type.Array(TurnView), nextCursor });

/** What every update of the second surface has. */
const common = {
  seq: Type.Integer({ minimum: 1 }),
  at: Type.Integer({ description: 'When it was stored, in milliseconds.' }),
  turnId: Type.String(),
  stepIndex: Type.Optional(Type.Integer({ description: 'Of a multi-agent run: the step that reports it.' })),
  providerId: Type.Optional(Type.String()),
};

/** An update without repeated members. There may be new kinds: clients ignore unknown ones. */
export const PlainUpdate = Type.Union([
  Type.Object({ ...common, kind: Type.Enum(['text', 'thinking', 'status']), text: Type.String() }),
  Type.Object({
    ...common,
    kind: Type.Literal('tool_call'),
    toolCallId: Type.String(),
    title: Type.String(),
    status: Type.Enum(['pending', 'in_progress', 'completed', 'failed']),
    toolKind: Type.String(),
    input: Type.Optional(Type.Unknown()),
    output: Type.Optional(Type.Unknown()),
    locations: Type.Optional(Type.Array(Type.Object({ path: Type.String(), line: Type.Optional(Type.Number()) }))),
    changes: Type.Optional(Type.Array(FileChange)),
    exitCode: Type.Optional(Type.Integer()),
    durationMs: Type.Optional(Type.Number()),
  }),
  Type.Object({ ...common, ...PlanEvent.properties }),
  Type.Object({ ...common, ...UsageEvent.properties }),
  Type.Object({ ...common, ...ModeEvent.properties }),
  Type.Object({ ...common, ...CommandsEvent.properties }),
  Type.Object({ ...common, ...SteerEvent.properties }),
  Type.Object({
    ...common,
    kind: Type.Literal('permission'),
    state: Type.String({
      description: '`open` while it waits; then `allowed` or `denied`, or for a question `answered` or `declined`.',
    }),
    title: Type.String(),
    toolCallId: Type.Optional(Type.String()),
    reason: Type.Optional(Type.String({ description: 'The reason that the person gave.' })),
    permissionId: Type.Optional(Type.String({ description: 'If a user is asked: the request to answer.' })),
    ...decisionMembers,
    ...Type.Partial(Type.Pick(QuestionEvent, ['toolKind', 'options', 'form', 'expiresAt'])).properties,
  }),
  Type.Object(
    {
      ...common,
      kind: Type.String({
        description:
          'The stage of the turn: queued, started, running, completed, failed, cancelled; or of a multi-agent run: multi_agent_started, multi_agent_step_started, multi_agent_step_completed, multi_agent_completed, with the members of `session.update`.',
      }),
      message: Type.String(),
    },
    { additionalProperties: true },
  ),
]);

export const seq = (description: string) => Type.Optional(Type.Integer({ minimum: 0, maximum: 1e15, description }));

export const UpdateQuery = Type.Object({
  owner,
  afterSeq: seq('The updates after this number.'),
  beforeSeq: seq('The updates before this number. Without either: the latest ones.'),
  limit: limit(300, 2000),
  kinds: Type.Optional(
    Type.String({ maxLength: 400, pattern: '^[a-z_]+(,[a-z_]+)*$', description: 'Only these: `text,tool_call`.' }),
  ),
});

export const UpdatePage = Type.Object({
  updates: Type.Array(PlainUpdate),
  firstSeq: Type.Integer({ description: 'The page covers the numbers from here; `beforeSeq` for the page before.' }),
  lastSeq: Type.Integer({ description: 'The page covers the numbers up to here; `afterSeq` for the next page.' }),
  hasEarlier: Type.Boolean(),
  hasLater: Type.Boolean(),
});

export const ExportQuery = Type.Object({
  owner,
  form: Type.Optional(Type.Enum(['markdown', 'json'])),
  cursor: Type.Optional(
    Type.String({
      pattern: '^(turn-[\\w-]{0,64}|update-\\d{1,15})?$',
      description:
        'Returns one page: empty for the first, then the value of the header `x-next-cursor` of the last page, until there is none. The pages together are the document. Absent: returns the whole document.',
    }),
  ),
});

export const AuditQuery = Type.Object({
  owner,
  action: Type.Optional(Type.String({ maxLength: 64 })),
  sessionId: Type.Optional(Type.String({ maxLength: 256 })),
  from: seq('Not before this time, in milliseconds.'),
  to: seq('Not after this time, in milliseconds.'),
  limit: limit(50, 200),
  cursor,
});

export const AuditPage = Type.Object({
  entries: Type.Array(
    Type.Object({
      id: Type.String(),
      at: Type.Integer(),
      owner: Type.String(),
      action: Type.String({ description: '`permission` or `delete`.' }),
      decision: Type.String(),
      sessionId: Type.String(),
      turnId: Type.String(),
      providerId: Type.String(),
      subject: Type.Unknown(),
    }),
  ),
  nextCursor,
});

export const LiveAccepted = Type.Object({ accepted: Type.Literal(true) });

export const ExplainQuery = Type.Object({
  method: Type.String({ minLength: 1, maxLength: 128 }),
  sessionId: Type.Optional(Type.String({ minLength: 1, maxLength: 256 })),
});

export type Permission = Static<typeof Permission>;
export type PermissionAnswer = Static<typeof PermissionAnswer>;
export type StoredRule = Static<typeof StoredRule>;
export type Summary = Static<typeof Summary>;
export type SessionQuery = Static<typeof SessionQuery>;
export type SessionPage = Static<typeof SessionPage>;
export type SessionView = Static<typeof SessionView>;
export type SessionChanges = Static<typeof SessionChanges>;
export type TurnView = Static<typeof TurnView>;
export type TurnPage = Static<typeof TurnPage>;
export type PlainUpdate = Static<typeof PlainUpdate>;
export type UpdateQuery = Static<typeof UpdateQuery>;
export type UpdatePage = Static<typeof UpdatePage>;
export type AuditQuery = Static<typeof AuditQuery>;
export type AuditPage = Static<typeof AuditPage>;
