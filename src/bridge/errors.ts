import { type ErrorTable, platformErrors } from '../platform/errors/error-table.ts';

/** What can be wrong with installing agents, for commands and for routes. */
export const agentProgramErrors = {
  AGENT_NOT_INSTALLABLE: {
    status: 409,
    message: '{name}@{version} has no program for this machine ({machine}); install the agent with its own installer.',
  },
  AGENT_INSTALLING: {
    status: 409,
    message:
      'Another installation of the agent "{agent}" is running; wait for it to finish, then check the agent again.',
  },
  NPM_MISSING: {
    status: 503,
    message: 'Installing agents needs npm, which is not in PATH; install Node.js with npm.',
  },
  NPM_FAILED: { status: 502, message: 'npm could not install the agent: {reason}' },
  AGENT_REGISTRY_FAILED: {
    status: 502,
    message: 'The agent registry could not be read: {reason}. Check agents.registry.',
  },
  AGENT_UNKNOWN: {
    status: 404,
    message:
      'There is no agent "{agent}". Known agents: {known}. "trestle agents" lists all agents, including those you can install.',
  },
} as const satisfies ErrorTable;

/** Every error of the bridge. */
export const bridgeErrors = {
  ...platformErrors,
  ...agentProgramErrors,
  LOGIN_REQUIRED: {
    status: 403,
    message: 'An access token is not enough for this; log in, and send the session token or cookie.',
  },
  REAUTHENTICATION_REQUIRED: { status: 401, message: 'Confirm this with {fields}.' },
  AGENT_WITHOUT_LOGIN: {
    status: 409,
    message: 'Logging in to the agent "{agent}" is not possible here: {reason}.',
  },
  AGENT_LOGGING_IN: {
    status: 409,
    message: 'Someone else is logging in to the agent "{agent}"; try again in two minutes.',
  },
  LOGIN_METHOD_UNKNOWN: {
    status: 400,
    message: 'The agent has no login method "{method}"; set methodId to one it offers: {offered}.',
  },
  UNAUTHORIZED: {
    status: 401,
    rpc: -32001,
    message: 'A valid token is required: send "Authorization: Bearer <token>".',
  },
  ORIGIN_NOT_ALLOWED: {
    status: 403,
    rpc: -32003,
    message: 'The origin "{origin}" is not allowed; add it to ACP_ALLOWED_ORIGINS.',
  },
  FORBIDDEN: {
    status: 403,
    rpc: -32004,
    message:
      "This credential is not allowed to do this: the work belongs to someone else, or the credential's scopes or its owner's plan do not include agents. Use a credential of the owner of the work, or ask an administrator for a plan with agents.",
  },
  NOT_IN_TEAM: {
    status: 403,
    rpc: -32004,
    message: 'You are not a member of the team "{team}"; GET /api/auth/teams lists your teams.',
  },
  TEAM_WITHOUT_BRIDGE: {
    status: 403,
    rpc: -32004,
    message: 'The plan of the team "{team}" does not include agents; ask an administrator for a plan that does.',
  },
  SESSION_CONTINUATION_UNAVAILABLE: {
    status: 200,
    rpc: -32002,
    message: 'SESSION_CONTINUATION_UNAVAILABLE: this session cannot be continued; start a new one with session.start.',
  },
  SESSION_BUSY: {
    status: 200,
    rpc: -32020,
    message: 'The session is busy; wait for its turn to end, or cancel it.',
  },
  OWNER_UNREACHABLE: {
    status: 503,
    rpc: -32020,
    message:
      'The instance that has this session cannot be reached: {reason}. Try again; data.outcome says whether the call may already have been processed.',
  },
  NOT_OWNER: { status: 503, rpc: -32020, message: 'This instance does not have the session.' },
  RUNNER_CONNECTED: {
    status: 409,
    rpc: -32602,
    message:
      'The runner "{name}" is already connected, from the machine {host}. Each runner needs a key of its own: trestle runner create.',
  },
  RUNNER_UNKNOWN: {
    status: 404,
    rpc: -32602,
    message: 'There is no runner "{name}"; trestle runner list shows all runners.',
  },
  RELAY_REFUSED: { status: 401, rpc: -32001, message: 'The relayed request was not accepted: {reason}.' },
  RESUME_NOT_FOUND: {
    status: 200,
    rpc: -32602,
    message:
      'No turn of this session in the last 24 hours belongs to this call; send it as a new call, without Last-Event-ID and with another Idempotency-Key.',
  },
  TOO_MANY_JOBS: {
    status: 200,
    rpc: -32020,
    message: '{of} allows {most} waiting or running jobs; wait for one to end, or cancel one.',
  },
  IDEMPOTENCY_KEY_REUSED: {
    status: 200,
    rpc: -32602,
    message: 'This idempotencyKey was used for job "{jobId}" with different params; use a new key for a new job.',
  },
  WORKING_DIRECTORY_REFUSED: {
    status: 200,
    rpc: -32602,
    message: 'workingDirectory cannot be used: {reason}.',
  },
  WORKTREE_REFUSED: {
    status: 200,
    rpc: -32602,
    message: 'routing.worktree cannot be used with this folder: {reason}.',
  },
  MCP_SERVER_REFUSED: {
    status: 200,
    rpc: -32602,
    message: 'The MCP server "{name}" cannot be used: {reason}. Leave it out of mcpServers.',
  },
  ATTACHMENT_REFUSED: { status: 200, rpc: -32602, message: 'An attachment cannot be used: {reason}.' },
  ATTACHMENT_NOT_FOUND: {
    status: 200,
    rpc: -32602,
    message:
      'There is no attachment "{attachmentId}" of yours; it is kept for 24 hours, so upload it again with POST /api/bridge/attachments.',
  },
  ATTACHMENTS_FULL: {
    status: 413,
    rpc: -32602,
    message:
      'Your uploaded attachments use {used} of {limit} bytes; wait for older ones to expire, 24 hours after their upload.',
  },
  GATEWAY_PROVIDER_REQUIRED: {
    status: 200,
    rpc: -32602,
    message: 'A gateway task needs routing.preferredGatewayProviderId; acp.capabilities lists the gateways.',
  },
  GATEWAY_MULTI_AGENT_CONFLICT: {
    status: 200,
    rpc: -32602,
    message: 'A gateway task cannot be a multi-agent run; leave out multiAgent, or routing.explicitExecutionTarget.',
  },
  MULTI_AGENT_INVALID_MODE: {
    status: 200,
    rpc: -32602,
    message: 'routing.orchestrationMode is "{mode}"; it can be {modes}.',
  },
  MULTI_AGENT_STEPS_REQUIRED: { status: 200, rpc: -32602, message: 'A multi-agent run needs {list}.' },
  MULTI_AGENT_PROVIDER_REQUIRED: {
    status: 200,
    rpc: -32602,
    message: 'Step {index} names no agent: give its providerId, one of those that acp.capabilities lists.',
  },
  MULTI_AGENT_PROMPT_REQUIRED: {
    status: 200,
    rpc: -32602,
    message: 'Step {index} has nothing to do: give it a prompt, or give taskPrompt.',
  },
  PROVIDER_UNKNOWN: {
    status: 200,
    rpc: -32602,
    message: 'There is no provider "{providerId}"; choose one of {known}.',
  },
  CALLBACK_URL_REFUSED: {
    status: 200,
    rpc: -32602,
    message: 'callbackUrl cannot be called: {reason}.',
  },
  TASK_FORWARD_HOP_LIMIT_EXCEEDED: {
    status: 502,
    rpc: -32060,
    message:
      'The call was forwarded between bridges too often: {reason}. Check distributed.forwarding.routes for a loop.',
  },
  TASK_FORWARD_PEER_UNKNOWN: {
    status: 502,
    rpc: -32060,
    message: 'No bridge can take this call: {reason}. Check distributed.nodes and distributed.forwarding.',
  },
  TASK_FORWARD_ENDPOINT_REFUSED: {
    status: 502,
    rpc: -32060,
    message: 'The bridge_endpoint of node "{nodeId}" is not allowed: {reason}.',
  },
  TASK_FORWARD_UNREACHABLE: {
    status: 502,
    rpc: -32060,
    message: 'Node "{nodeId}" cannot be reached: {reason}. Nothing was started.',
  },
  TASK_FORWARD_FAILED: {
    status: 502,
    rpc: -32060,
    message: 'Node "{nodeId}" failed: {reason}. data.outcome says whether the work may have started.',
  },
  FORWARD_PERSON_REFUSED: {
    status: 403,
    rpc: -32004,
    message: 'The node that received the forwarded call does not accept the caller: {reason}.',
  },
  EDITOR_SESSION_UNKNOWN: {
    status: 404,
    rpc: -32002,
    message: 'There is no session "{sessionId}"; open one with session/new.',
  },
  EDITOR_TURN_FAILED: { status: 502, rpc: -32603, message: '{reason}' },
  GATEWAY_FAILED: { status: 200, rpc: -32010, message: 'The gateway failed: {reason}.' },
  DEVICE_KEY_INVALID: { status: 500, rpc: -32603, message: 'The device key for the gateway cannot be used: {reason}.' },
  TOOL_REQUIRED: { status: 200, rpc: -32602, message: 'Set "tool" to the name of the tool to call.' },
  TOOL_NOT_ALLOWED: {
    status: 200,
    rpc: -32602,
    message: 'The tool "{tool}" is not allowed here; gateway.tools_allow lists the allowed tools.',
  },
  GATEWAY_METHOD_NOT_ALLOWED: {
    status: 200,
    rpc: -32602,
    message:
      'This credential may not call the gateway method "{method}"; use an allowed method, or add it to gateway.methods_allow.',
  },
  GATEWAY_NOT_FOR_PEOPLE: {
    status: 403,
    rpc: -32004,
    message:
      'The gateway is not open to users with an account. Ask the operator to set gateway.people, or use another agent.',
  },
  TOOLS_INVOKE_FAILED: { status: 200, rpc: -32011, message: 'The tool call failed: {detail}.' },
  ARTIFACT_LINK_INVALID: {
    status: 403,
    rpc: -32003,
    message: 'This link was not created by this server, or it was changed.',
  },
  ARTIFACT_EXPIRED: { status: 410, rpc: -32600, message: 'This link has expired; it was valid for 24 hours.' },
  ARTIFACT_UNREACHABLE: {
    status: 502,
    rpc: -32060,
    message: 'The file is on another bridge ("{place}"), which cannot send it now: {reason}. Try again later.',
  },
  OWN_ORIGIN_REQUIRED: {
    status: 403,
    rpc: -32003,
    message: 'Pages from "{origin}" may not call /api/bridge; use a page of this server, or a program.',
  },
  SESSION_NOT_FOUND: {
    status: 404,
    rpc: -32602,
    message: 'There is no open session "{sessionId}" that you can see; GET /api/bridge/sessions lists them.',
  },
  PERMISSION_NOT_FOUND: {
    status: 404,
    rpc: -32602,
    message:
      'There is no permission request "{permissionId}" that you can see; GET /api/bridge/permissions lists them.',
  },
  PERMISSION_ANSWERED: {
    status: 409,
    rpc: -32602,
    message: 'This permission request has already been answered; `details.permission` has the answer.',
  },
  PERMISSION_EXPIRED: {
    status: 410,
    rpc: -32602,
    message: 'This permission request has expired: its turn has ended, or nobody answered in time.',
  },
  PERMISSION_NOT_REMEMBERED: {
    status: 400,
    rpc: -32602,
    message:
      'This answer cannot be remembered, because the request names neither a plain command nor paths without links; answer with scope "once".',
  },
  PERMISSION_RULE_NOT_FOUND: {
    status: 404,
    rpc: -32602,
    message: 'There is no such rule that you can see; GET /api/bridge/permission-rules lists them.',
  },
  SCHEDULE_NOT_FOUND: {
    status: 404,
    rpc: -32602,
    message: 'There is no schedule "{scheduleId}" that you can see; GET /api/bridge/schedules lists them.',
  },
  SCHEDULE_TASK_REFUSED: {
    status: 400,
    rpc: -32602,
    message: 'This task cannot run on a schedule: {reason}',
  },
  TOO_MANY_SCHEDULES: {
    status: 409,
    rpc: -32020,
    message: 'This owner already has {max} schedules, the maximum (jobs.max_schedules_per_owner); remove one first.',
  },
  TOO_MANY_FOLLOWED: {
    status: 429,
    rpc: -32020,
    message: 'A connection can follow at most {limit} sessions; call unfollow, or open another connection.',
  },
  FOLDER_REFUSED: { status: 403, rpc: -32602, message: 'The folder cannot be listed: {reason}.' },
  FILE_REFUSED: { status: 403, rpc: -32602, message: 'The file cannot be read: {reason}' },
  FILE_NOT_FOUND: {
    status: 404,
    rpc: -32602,
    message: 'There is no file "{path}" in the working directory of the session.',
  },
  TURN_NOT_FOUND: {
    status: 404,
    rpc: -32602,
    message: 'The session has no turn "{turnId}"; GET /api/bridge/sessions/{sessionId}/turns lists its turns.',
  },
  TURN_RUNNING: {
    status: 409,
    rpc: -32020,
    message: 'The session has a running or waiting turn; wait for it to end, or cancel it.',
  },
  TURN_NOT_WAITING: {
    status: 409,
    rpc: -32020,
    message:
      'The turn "{turnId}" is not waiting: it has started or ended. Only a waiting turn can be removed; session.cancel stops a running one.',
  },
  NOT_STEERABLE: {
    status: 409,
    rpc: -32020,
    message:
      'The message was not accepted: {reason}. Send it with session.message, so that it waits for the running turn to end.',
  },
  UNKNOWN_MODE: {
    status: 400,
    rpc: -32602,
    message: 'The agent of the session does not have the mode "{mode}". Its modes: {offered}.',
  },
  UNKNOWN_MODEL: {
    status: 400,
    rpc: -32602,
    message: 'The agent of the session does not offer the model "{model}". Its models: {offered}.',
  },
  UNKNOWN_THINKING: {
    status: 400,
    rpc: -32602,
    message: 'The agent of the session does not have the thinking level "{thinking}". Its levels: {offered}.',
  },
  NOT_FORKABLE: {
    status: 409,
    rpc: -32602,
    message: 'The session cannot be forked: {reason}.',
  },
  FILES_CHANGED: {
    status: 409,
    rpc: -32602,
    message:
      'Nothing was undone, because files have changed since the turn; `details.files` lists them. Undo later turns first, or put these files back.',
  },
  FILE_NOT_CHANGED: {
    status: 404,
    rpc: -32602,
    message: 'No turn has changed "{path}"; GET /api/bridge/sessions/{sessionId}/changes lists the changed files.',
  },
  UNDO_UNAVAILABLE: { status: 409, rpc: -32602, message: 'This turn cannot be undone: {reason}.' },
  MERGE_REFUSED: { status: 409, rpc: -32602, message: 'The worktree cannot be merged: {reason}.' },
  GIT_FAILED: { status: 503, rpc: -32603, message: 'Git failed in the folder: {reason}.' },
  CHECKPOINT_FAILED: { status: 503, rpc: -32603, message: 'The folder could not be saved: {reason}.' },
  BUDGET_EXCEEDED: { status: 402, rpc: -32603, message: '{reason}' },
  PERSON_NOT_CHARGED: {
    status: 403,
    rpc: -32004,
    message: 'Users cannot use the built-in agent here: {reason}',
  },
  MODEL_FAILED: { status: 502, rpc: -32603, message: 'The model could not answer: {reason}' },
  TOOL_CALL_REFUSED: { status: 400, rpc: -32602, message: 'The tool call was refused: {reason}' },
} as const satisfies ErrorTable;

export type BridgeErrorCode = keyof typeof bridgeErrors;

declare module '../platform/errors/app-error.ts' {
  interface ErrorCodes extends Record<BridgeErrorCode, unknown> {}
}
