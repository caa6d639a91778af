import { type Static, Type } from 'typebox';
import { RoutingResolution, TurnRouting } from './routing.ts';
import { StepRecord } from './session-update.ts';

/** Of one session. */
export const MAX_MCP_SERVERS = 16;
/** Of all servers of a session together, as JSON. */
export const MAX_MCP_BYTES = 64 * 1024;

const MAX_NAME = 64;
const NO_CONTROLS = '^[^\\u0000-\\u001f\\u007f]*$';
/** No program accepts a NUL byte in its arguments or its environment. */
const NO_ZERO = '^[^\\u0000]*$';

const serverName = Type.String({
  minLength: 1,
  maxLength: MAX_NAME,
  pattern: NO_CONTROLS,
  description: 'Its name, which the agent also sees. Each server of a session has a different name.',
});

/** The members are those of the Agent Client Protocol, so that the servers of an editor can be passed on as they are. */
export const McpServer = Type.Object({
  name: Type.Optional(serverName),
  type: Type.Optional(
    Type.Enum(['stdio', 'http', 'sse', 'trestle'], {
      description: 'How it is reached. `stdio` (the default) is a program, `trestle` is this program itself.',
    }),
  ),
  trestle: Type.Optional(
    Type.Boolean({
      description:
        'True, instead of the other members: the tools of this program, with which the agent can ask other agents, submit jobs and send messages. Its default name is `trestle`; all other servers need a `name`.',
    }),
  ),
  command: Type.Optional(
    Type.String({
      maxLength: 4096,
      pattern: NO_ZERO,
      description: 'Of a program: a name to look up in PATH, or a path.',
    }),
  ),
  args: Type.Optional(Type.Array(Type.String({ maxLength: 8192, pattern: NO_ZERO }), { maxItems: 128 })),
  env: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({ maxLength: 256, pattern: '^[A-Za-z_][A-Za-z0-9_]*$' }),
        value: Type.String({ maxLength: 16_384, pattern: NO_ZERO }),
      }),
      { maxItems: 128, description: 'Additional variables of the program. They are never shown again.' },
    ),
  ),
  url: Type.Optional(Type.String({ maxLength: 4096, description: 'Of `http` and `sse`.' })),
  headers: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({ maxLength: 256, pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }),
        value: Type.String({ maxLength: 16_384, pattern: '^[\\t\\u0020-\\u007e]*$' }),
      }),
      { maxItems: 64, description: 'Of `http` and `sse`, sent with each request. They are never shown again.' },
    ),
  ),
});

/** What a session shows of a server: never its arguments, variables, headers or the path of its address. */
export const ShownMcpServer = Type.Object({
  name: Type.String(),
  type: Type.Enum(['stdio', 'http', 'sse', 'trestle']),
  target: Type.String({ description: 'The program, or the origin of the address. Of `trestle`: empty.' }),
});

export type McpServer = Static<typeof McpServer>;
export type ShownMcpServer = Static<typeof ShownMcpServer>;

/** A file that a turn produced. */
export const Artifact = Type.Object({
  relativePath: Type.String({ description: 'A path from the working directory, or the file name for a gateway task.' }),
  label: Type.String({ description: 'The name to show.' }),
  contentType: Type.String(),
  sizeBytes: Type.Integer(),
  sha256: Type.String({ description: 'In hex.' }),
  downloadUrl: Type.String({ description: 'A path at this bridge. It works for 24 hours, without a credential.' }),
});

/** A name that callers give, such as that of a session. */
const name = (description: string, minLength: number) =>
  // No control characters: a session's name may end up in a header.
  Type.String({ minLength, maxLength: 256, pattern: '^[^\\u0000-\\u001f\\u007f]*$', description });

/** Of all files that one call carries in itself, decoded. Larger ones are uploaded before: `POST /api/bridge/attachments`. */
export const MAX_INLINE_BYTES = 5 * 1024 * 1024;
export const MAX_ATTACHMENTS = 32;

/** A file that comes with a prompt: one that was uploaded, one that the call carries, or one that it only names. */
export const GivenAttachment = Type.Object({
  attachmentId: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'As returned by `POST /api/bridge/attachments`. Otherwise give `data`.',
    }),
  ),
  name: Type.Optional(Type.String({ maxLength: 1024, description: 'The file name.' })),
  contentType: Type.Optional(Type.String({ maxLength: 256, description: 'Default: derived from the name.' })),
  data: Type.Optional(Type.String({ description: 'In base64; at most 5 MiB in one call, decoded.' })),
  path: Type.Optional(Type.String({ maxLength: 4096, description: 'Without `data`: names a file that is not sent.' })),
  description: Type.Optional(Type.String({ maxLength: 4096, description: 'Not used.' })),
});

/** The result of an upload: `POST /api/bridge/attachments`. */
export const UploadedAttachment = Type.Object({
  attachmentId: Type.String({
    description: 'For `attachments` of session.start, session.message and app.jobs.submit.',
  }),
  name: Type.String(),
  contentType: Type.String(),
  sizeBytes: Type.Integer(),
  sha256: Type.String({ description: 'In hex.' }),
  expiresAt: Type.Integer({ description: 'Sessions that have used the file before then keep their own copy.' }),
});

const attachments = {
  attachments: Type.Optional(
    Type.Array(GivenAttachment, {
      maxItems: MAX_ATTACHMENTS,
      description:
        'Files that come with the prompt. An agent that supports images and texts gets them as part of the prompt; all others are files that it can read at the paths named in the prompt.',
    }),
  ),
  inlineAttachments: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({ maxLength: 1024 }),
        mimeType: Type.Optional(Type.String({ maxLength: 256 })),
        content: Type.String({ description: 'In base64.' }),
        sizeBytes: Type.Optional(Type.Number({ description: 'Not used.' })),
      }),
      { maxItems: MAX_ATTACHMENTS, description: 'The same as `attachments` with `data`, under older names.' },
    ),
  ),
};

const team = {
  team: Type.Optional(
    Type.String({
      maxLength: 64,
      description:
        'The id of a team of the caller: the session then belongs to the team. The header `x-team` does the same.',
    }),
  ),
};

export const TurnParams = Type.Object({
  sessionId: name('Chosen by the app.', 1),
  threadId: Type.Optional(name('Groups sessions. Default: the session id.', 0)),
  taskPrompt: Type.Optional(
    Type.String({ description: 'The task. Optional only in a multi-agent run in which every step has a prompt.' }),
  ),
  workingDirectory: Type.Optional(
    Type.String({ description: 'An absolute path inside the allowed roots. Empty: a private folder of the session.' }),
  ),
  routing: Type.Optional(TurnRouting),
  multiAgent: Type.Optional(Type.Boolean()),
  mode: Type.Optional(Type.String({ maxLength: 64, description: '`multi-agent` asks for a multi-agent run.' })),
  ...attachments,
  ...team,
});

/** The params of `session.start`. Only these contain what applies to all turns of the session. */
export const StartParams = Type.Object({
  ...TurnParams.properties,
  mcpServers: Type.Optional(
    Type.Array(McpServer, {
      maxItems: MAX_MCP_SERVERS,
      description:
        'MCP servers for the agent of a new session; they also apply when the session is continued or copied. Their programs run where the agent runs, in the same sandbox.',
    }),
  ),
});

export const SessionName = Type.Object({
  sessionId: Type.Optional(name('The session.', 0)),
  threadId: Type.Optional(name('All sessions of the thread; used only if no session is named.', 0)),
  owner: Type.Optional(
    Type.String({
      maxLength: 256,
      description:
        'The owner of the session or thread. Default: the caller, or another owner if the caller has no such session.',
    }),
  ),
  ...team,
});

/** Members of any result whose call had members of `params` that the method does not know. */
const Warnings = Type.Array(Type.Object({ path: Type.String(), message: Type.String() }), {
  description: 'Members of `params` that were ignored, because the method does not know them.',
});

export const Accepted = Type.Object({ accepted: Type.Literal(true) });

export const TurnUsage = Type.Object({
  inputTokens: Type.Optional(Type.Number()),
  outputTokens: Type.Optional(Type.Number()),
  totalTokens: Type.Optional(Type.Number()),
  costUsd: Type.Optional(
    Type.Number({
      description:
        'Computed from the calls to our models if no other turn of the process overlaps; otherwise as the agent reports it, or absent.',
    }),
  ),
});

const { status: _ofRoute, ...resolutionFields } = RoutingResolution.properties;

export const SessionResult = Type.Object({
  ...resolutionFields,
  success: Type.Boolean(),
  status: Type.Enum(['completed', 'failed', 'cancelled', 'unavailable']),
  turnId: Type.String(),
  sessionId: Type.String(),
  threadId: Type.String(),
  mode: Type.Enum(['single-agent', 'multi-agent', 'gateway-chat']),
  output: Type.String({ description: 'The final text; at most 4,000,000 characters of it.' }),
  truncated: Type.Optional(
    Type.Boolean({
      description: 'True: `output`, or that of a step, is only the beginning; the whole text is among the artifacts.',
    }),
  ),
  summary: Type.String({ description: 'The beginning of a long output, or all of a short one.' }),
  message: Type.String({ description: 'The same as `output`.' }),
  error: Type.Optional(Type.String()),
  code: Type.Optional(
    Type.String({ description: 'AGENT_FAILED, AGENT_EXITED, AGENT_TIMEOUT, EMPTY_OUTPUT, TURN_INTERRUPTED, ...' }),
  ),
  stopReason: Type.Optional(Type.String()),
  usage: Type.Optional(TurnUsage),
  artifacts: Type.Array(Artifact),
  orchestrationMode: Type.Optional(Type.String({ description: 'Of a multi-agent run.' })),
  sharedWorkspace: Type.Optional(Type.String({ description: 'The folder in which all steps of a run worked.' })),
  steps: Type.Optional(Type.Array(StepRecord)),
  resolvedWorkingDirectory: Type.String(),
  warnings: Type.Optional(Warnings),
});

export type UploadedAttachment = Static<typeof UploadedAttachment>;
export type GivenAttachment = Static<typeof GivenAttachment>;
export type Artifact = Static<typeof Artifact>;
export type TurnParams = Static<typeof TurnParams>;
export type StartParams = Static<typeof StartParams>;
export type SessionName = Static<typeof SessionName>;
export type SessionResult = Static<typeof SessionResult>;
