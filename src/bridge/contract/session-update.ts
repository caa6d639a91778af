import { type Static, Type } from 'typebox';

/** `session.update`, the only notification. */

/** What a call has done to one file. */
export const FileChange = Type.Object({
  path: Type.String(),
  oldText: Type.Optional(Type.String({ description: 'Absent for a new file.' })),
  newText: Type.Optional(Type.String()),
  unified: Type.Optional(Type.String({ description: 'A unified diff, if the agent reports changes as diffs.' })),
  added: Type.Integer({ description: 'Lines.' }),
  removed: Type.Integer({ description: 'Lines.' }),
  truncated: Type.Boolean({ description: 'True: the texts are omitted or truncated.' }),
});

/** A file that came with the prompt of a turn. */
export const TurnAttachment = Type.Object({
  name: Type.String(),
  contentType: Type.String(),
  sizeBytes: Type.Integer(),
});

export const PlanEntry = Type.Object({
  content: Type.String(),
  status: Type.Enum(['pending', 'in_progress', 'completed']),
  priority: Type.Enum(['high', 'medium', 'low']),
});

const count = (description: string) => Type.Optional(Type.Number({ description }));

/** What a turn has used so far. Members that the agent does not report are absent. */
const usageMembers = {
  inputTokens: count('Of the turn.'),
  outputTokens: count('Of the turn.'),
  cachedTokens: count('Of the turn, out of `inputTokens`.'),
  contextUsed: count('Tokens that the conversation takes up.'),
  contextSize: count('Tokens that the model can hold.'),
  costUsd: count('Of the conversation.'),
};

const commands = Type.Array(
  Type.Object({
    name: Type.String(),
    description: Type.String(),
    hint: Type.Optional(Type.String({ description: 'What can be written after the name. Absent: nothing.' })),
  }),
);

/** What an agent reports while it works. There may be new kinds and members: clients ignore unknown ones. */
const textMembers = { text: Type.String() };
const toolCallMembers = {
  toolCallId: Type.String(),
  title: Type.String(),
  status: Type.Enum(['pending', 'in_progress', 'completed', 'failed']),
  toolKind: Type.String({ description: 'read, edit, delete, move, search, execute, think, fetch or other.' }),
  input: Type.Optional(Type.Unknown()),
  output: Type.Optional(Type.Unknown()),
  locations: Type.Optional(
    Type.Array(Type.Object({ path: Type.String(), line: Type.Optional(Type.Number()) }), {
      description: 'The files that the call concerns.',
    }),
  ),
  changes: Type.Optional(
    Type.Array(FileChange, { description: 'Its changes to files; at most 65,536 characters of text.' }),
  ),
  exitCode: Type.Optional(Type.Integer({ description: 'Of a command that has ended.' })),
  durationMs: Type.Optional(Type.Number({ description: 'Of a command that has ended.' })),
};

export const TextEvent = Type.Object({ kind: Type.Literal('text'), ...textMembers });
export const ThinkingEvent = Type.Object({ kind: Type.Literal('thinking'), ...textMembers });
export const ToolCallEvent = Type.Object({ kind: Type.Literal('tool_call'), ...toolCallMembers });
export const StatusEvent = Type.Object({ kind: Type.Literal('status'), ...textMembers });
export const PlanEvent = Type.Object({ kind: Type.Literal('plan'), entries: Type.Array(PlanEntry) });
export const UsageEvent = Type.Object({ kind: Type.Literal('usage'), ...usageMembers });
export const ModeEvent = Type.Object({ kind: Type.Literal('mode'), modeId: Type.String() });
export const SteerEvent = Type.Object({ kind: Type.Literal('steer'), text: Type.String() });
export const CommandsEvent = Type.Object({ kind: Type.Literal('commands'), commands });

/** Who or what decided about a permission. */
export const decisionMembers = {
  answeredBy: Type.Optional(Type.String({ description: 'The principal that answered.' })),
  rule: Type.Optional(
    Type.Object(
      {
        ruleId: Type.Optional(
          Type.String({ description: 'Of a remembered answer. Absent: the rule is in `bridge.permission_rules`.' }),
        ),
        text: Type.String({ description: 'What the rule matches: a command, a path, or a kind of tool.' }),
      },
      { description: 'The rule that decided.' },
    ),
  ),
};

/** An event inside of an update: `type` repeats the kind. */
export const StructuredEvent = Type.Union([
  Type.Object({ kind: Type.Literal('text'), type: Type.Literal('text'), ...textMembers }),
  Type.Object({ kind: Type.Literal('thinking'), type: Type.Literal('thinking'), ...textMembers }),
  Type.Object({ kind: Type.Literal('tool_call'), type: Type.Literal('tool_call'), ...toolCallMembers }),
  Type.Object({
    kind: Type.Literal('status'),
    type: Type.Literal('status'),
    ...textMembers,
    status: Type.Optional(
      Type.String({
        description:
          '`permission_allowed` or `permission_denied`; for a question, `permission_answered` or `permission_declined`.',
      }),
    ),
    toolCallId: Type.Optional(Type.String({ description: 'The call that the permission is for.' })),
    reason: Type.Optional(Type.String({ description: 'The reason that the person gave.' })),
    permissionId: Type.Optional(Type.String({ description: 'The request that a user answered.' })),
    ...decisionMembers,
    plan: Type.Optional(Type.Array(PlanEntry, { description: 'The whole plan; `text` is the same as text.' })),
    usage: Type.Optional(Type.Object(usageMembers, { description: 'With an empty `text`, at most once a second.' })),
    modeId: Type.Optional(Type.String({ description: 'The new mode of the agent; `text` is empty.' })),
    steer: Type.Optional(Type.String({ description: 'A message that was sent to the running turn.' })),
    commands: Type.Optional(
      Type.Array(commands.items, { description: 'The new commands of the agent; `text` is empty.' }),
    ),
  }),
]);

/** The result of one step of a multi-agent run. */
export const StepRecord = Type.Object({
  index: Type.Integer(),
  providerId: Type.String(),
  status: Type.Enum(['completed', 'failed', 'cancelled', 'timed_out']),
  durationMs: Type.Integer(),
  output: Type.Optional(Type.String()),
  truncated: Type.Optional(Type.Boolean({ description: 'True: `output` is only the beginning of the text.' })),
  error: Type.Optional(Type.String()),
  conversationTurn: Type.Optional(Type.Integer()),
  workingDirectory: Type.Optional(Type.String({ description: 'Of a step that has its own worktree.' })),
});

/** Of a step that is planned. */
const plannedMembers = {
  prompt: Type.Optional(Type.String({ description: 'At most 1,024 characters.' })),
  outputAs: Type.Optional(Type.String()),
  timeoutMs: Type.Optional(Type.Integer()),
};

export const SessionUpdate = Type.Object({
  sessionId: Type.String(),
  threadId: Type.String(),
  turnId: Type.String(),
  seq: Type.Integer({
    minimum: 1,
    description: 'Counts the updates of a session over all its turns. Gaps are possible.',
  }),
  type: Type.Enum(['status', 'delta']),
  event: Type.String({
    description:
      '`queued`, `started`, `running`, `completed`, `failed`, `cancelled`; `delta`; the kind of `structuredEvent`; or `multi_agent_started`, `multi_agent_step_started`, `multi_agent_step_completed`, `multi_agent_completed`.',
  }),
  message: Type.String({ description: 'A text to show; for a delta, its text.' }),
  delta: Type.Optional(Type.String({ description: 'In a delta: the text to append.' })),
  text: Type.Optional(Type.String({ description: 'The same as `delta`.' })),
  pending: Type.Optional(Type.Boolean({ description: 'In a status: whether the turn continues.' })),
  error: Type.Optional(
    Type.Union([
      Type.Boolean({ description: 'In a status: whether the turn has failed.' }),
      Type.String({ description: 'Of a step that has failed: the reason.' }),
    ]),
  ),
  structuredEvent: Type.Optional(StructuredEvent),
  stepIndex: Type.Optional(Type.Integer({ description: 'Of a multi-agent run: the step that reports it.' })),
  providerId: Type.Optional(Type.String({ description: 'Of a multi-agent run: the agent of the step.' })),
  orchestrationMode: Type.Optional(Type.String({ description: 'Of a multi-agent run that starts or has ended.' })),
  maxTurns: Type.Optional(Type.Integer({ description: 'Of a conversation that starts: its most speeches.' })),
  steps: Type.Optional(
    Type.Array(Type.Object({ ...Type.Partial(StepRecord).properties, ...plannedMembers }), {
      description:
        'Of a run that starts: its steps. Of a run that has ended: the steps as in the result, with at most 65,536 characters of each output.',
    }),
  ),
  sharedWorkspace: Type.Optional(Type.String()),
  stopReason: Type.Optional(Type.String()),
  status: Type.Optional(
    Type.Enum(['completed', 'failed', 'cancelled', 'timed_out'], { description: 'Of a step that has ended.' }),
  ),
  durationMs: Type.Optional(Type.Integer()),
  output: Type.Optional(
    Type.String({ description: 'Of a step that has ended: at most 65,536 characters of its output.' }),
  ),
  truncated: Type.Optional(Type.Boolean()),
  conversationTurn: Type.Optional(Type.Integer()),
  prompt: Type.Optional(Type.String({ description: 'Of a turn that has started: at most 4,096 characters.' })),
  attachments: Type.Optional(Type.Array(TurnAttachment, { description: 'Of a turn that has started.' })),
});

/** A value that its reader does not change. */
type Fixed<Value> = Value extends readonly (infer Item)[]
  ? readonly Fixed<Item>[]
  : Value extends object
    ? { readonly [Member in keyof Value]: Fixed<Value[Member]> }
    : Value;

export type TextEvent = Fixed<Static<typeof TextEvent>>;
export type ThinkingEvent = Fixed<Static<typeof ThinkingEvent>>;
export type ToolCallEvent = Fixed<Static<typeof ToolCallEvent>>;
export type StatusEvent = Fixed<Static<typeof StatusEvent>>;
export type PlanEvent = Fixed<Static<typeof PlanEvent>>;
export type UsageEvent = Fixed<Static<typeof UsageEvent>>;
export type ModeEvent = Fixed<Static<typeof ModeEvent>>;
export type SteerEvent = Fixed<Static<typeof SteerEvent>>;
export type CommandsEvent = Fixed<Static<typeof CommandsEvent>>;
export type FileChange = Fixed<Static<typeof FileChange>>;
export type TurnAttachment = Fixed<Static<typeof TurnAttachment>>;
export type PlanEntry = Fixed<Static<typeof PlanEntry>>;
export type StructuredEvent = Fixed<Static<typeof StructuredEvent>>;
export type SessionUpdate = Fixed<Static<typeof SessionUpdate>>;

/** The longest text of an answer, in characters. */
export const MAX_ANSWER_LENGTH = 16_384;
/** The most fields of a form, and the most options of a field. */
export const MAX_FIELDS = 32;
export const MAX_FIELD_OPTIONS = 100;

/** The value of one field. */
export const QuestionValue = Type.Union([
  Type.String({ maxLength: MAX_ANSWER_LENGTH }),
  Type.Number(),
  Type.Boolean(),
  Type.Array(Type.String({ maxLength: MAX_ANSWER_LENGTH }), { maxItems: MAX_FIELD_OPTIONS }),
]);

export const QuestionField = Type.Object({
  name: Type.String({ description: 'The name of the field in `values`.' }),
  title: Type.String({ description: 'The name to show.' }),
  description: Type.String({ description: 'Empty if the agent gave none.' }),
  type: Type.Enum(['text', 'number', 'integer', 'boolean', 'choice', 'choices'], {
    description: '`choice`: the `value` of one option. `choices`: a list of them.',
  }),
  required: Type.Boolean(),
  secret: Type.Boolean({ description: 'Do not show the answer while it is typed.' }),
  options: Type.Array(Type.Object({ value: Type.String(), title: Type.String(), description: Type.String() }), {
    description: 'Of `choice` and `choices`; otherwise empty.',
  }),
  other: Type.Boolean({ description: 'Of `choice`: any other text is also accepted.' }),
  default: Type.Optional(QuestionValue),
  minLength: Type.Optional(Type.Number()),
  maxLength: Type.Optional(Type.Number()),
  pattern: Type.Optional(
    Type.String({
      description: 'A regular expression that the agent checks. Clients may show or check it; the bridge does not.',
    }),
  ),
  format: Type.Optional(Type.Enum(['email', 'uri', 'date', 'date-time'])),
  minimum: Type.Optional(Type.Number()),
  maximum: Type.Optional(Type.Number()),
  minItems: Type.Optional(Type.Number()),
  maxItems: Type.Optional(Type.Number()),
});

/** What a question of an agent asks for. A form without fields asks for a yes or a no. */
export const QuestionForm = Type.Object({
  fields: Type.Array(QuestionField, { description: `At most ${MAX_FIELDS}, in the order of the agent.` }),
});

export const QuestionValues = Type.Record(Type.String({ maxLength: 200 }), QuestionValue, {
  maxProperties: MAX_FIELDS,
  description: 'The answer to a question: values by the name of their field, with one for each required field.',
});

export type QuestionField = Static<typeof QuestionField>;
export type QuestionForm = Static<typeof QuestionForm>;
export type QuestionValue = Static<typeof QuestionValue>;
export type QuestionValues = Static<typeof QuestionValues>;

export const PermissionOption = Type.Object({
  optionId: Type.String(),
  name: Type.String(),
  kind: Type.String({ description: 'allow_once, allow_always, reject_once or reject_always.' }),
});

/** A request for permission, or a question, that waits for an answer. It is not sent on the first surface. */
export const QuestionEvent = Type.Object({
  kind: Type.Literal('question'),
  permissionId: Type.String(),
  title: Type.String(),
  toolKind: Type.String(),
  toolCallId: Type.Optional(Type.String()),
  options: Type.Array(PermissionOption),
  form: Type.Optional(QuestionForm),
  expiresAt: Type.Integer(),
});
export type QuestionEvent = Fixed<Static<typeof QuestionEvent>>;
