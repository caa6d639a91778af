import { type ErrorTable, platformErrors } from '../platform/errors/error-table.ts';

/** Every error of the bridge: contract/bridge section 3. */
export const bridgeErrors = {
  ...platformErrors,
  UNAUTHORIZED: {
    status: 401,
    rpc: -32001,
    message: 'A valid token is needed: send "Authorization: Bearer <token>".',
  },
  ORIGIN_NOT_ALLOWED: {
    status: 403,
    rpc: -32003,
    message: 'The origin "{origin}" is not allowed; list it in ACP_ALLOWED_ORIGINS.',
  },
  SESSION_CONTINUATION_UNAVAILABLE: {
    status: 200,
    rpc: -32002,
    message: 'SESSION_CONTINUATION_UNAVAILABLE: this session cannot be continued; start a new one with session.start.',
  },
  SESSION_BUSY: {
    status: 200,
    rpc: -32020,
    message: 'The session is busy; wait until its turn has ended, or cancel it.',
  },
  RESUME_NOT_FOUND: {
    status: 200,
    rpc: -32602,
    message:
      'No turn of this session from the last 24 hours belongs to this call; send it without Last-Event-ID as a new one.',
  },
  IDEMPOTENCY_KEY_REUSED: {
    status: 200,
    rpc: -32602,
    message: 'This idempotencyKey belongs to job "{jobId}", which has other params; use a new key for a new job.',
  },
  WORKING_DIRECTORY_REFUSED: {
    status: 200,
    rpc: -32602,
    message: 'workingDirectory cannot be used: {reason}.',
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
    message: 'There is no provider "{providerId}"; there is {known}.',
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
      'The call went from bridge to bridge too often: {reason}. Look for a circle in distributed.forwarding.routes.',
  },
  TASK_FORWARD_PEER_UNKNOWN: {
    status: 502,
    rpc: -32060,
    message: 'There is no bridge for this call: {reason}. See distributed.nodes and distributed.forwarding.',
  },
  TASK_FORWARD_ENDPOINT_REFUSED: {
    status: 502,
    rpc: -32060,
    message: 'The bridge_endpoint of node "{nodeId}" must not be used: {reason}.',
  },
  TASK_FORWARD_UNREACHABLE: {
    status: 502,
    rpc: -32060,
    message: 'Node "{nodeId}" cannot be reached: {reason}. Nothing was started.',
  },
  TASK_FORWARD_FAILED: {
    status: 502,
    rpc: -32060,
    message: 'Node "{nodeId}" failed: {reason}. data.outcome says whether it may have started.',
  },
  EDITOR_SESSION_UNKNOWN: {
    status: 404,
    rpc: -32002,
    message: 'There is no session "{sessionId}"; open one with session/new.',
  },
  EDITOR_TURN_FAILED: { status: 502, rpc: -32603, message: '{reason}' },
  GATEWAY_FAILED: { status: 200, rpc: -32010, message: 'The gateway failed: {reason}.' },
  DEVICE_KEY_INVALID: { status: 500, rpc: -32603, message: 'The device key for the gateway cannot be used: {reason}.' },
  TOOL_REQUIRED: { status: 200, rpc: -32602, message: 'Name the tool to call in "tool".' },
  TOOL_NOT_ALLOWED: {
    status: 200,
    rpc: -32602,
    message: 'The tool "{tool}" may not be called here; gateway.tools_allow says which may.',
  },
  GATEWAY_METHOD_NOT_ALLOWED: {
    status: 200,
    rpc: -32602,
    message:
      'The gateway method "{method}" may not be called with this credential; use an allowed one, or list it in gateway.methods_allow.',
  },
  TOOLS_INVOKE_FAILED: { status: 200, rpc: -32011, message: 'The tool call failed: {detail}.' },
  ARTIFACT_LINK_INVALID: { status: 403, rpc: -32003, message: 'This link was not made here, or was changed.' },
  ARTIFACT_EXPIRED: { status: 410, rpc: -32600, message: 'This link was good for 24 hours, which are over.' },
  ARTIFACT_UNREACHABLE: {
    status: 502,
    rpc: -32060,
    message: 'The file is on another bridge ("{place}"), which cannot give it now: {reason}. Try again later.',
  },
  MODEL_FAILED: { status: 502, rpc: -32603, message: 'The model could not answer: {reason}' },
  TOOL_CALL_REFUSED: { status: 400, rpc: -32602, message: 'The tool call was refused: {reason}' },
} as const satisfies ErrorTable;
