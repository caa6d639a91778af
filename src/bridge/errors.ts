import type { ErrorTable } from '../platform/errors/error-table.ts';
import { platformErrors } from '../platform/errors/platform-errors.ts';

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
  MULTI_AGENT_UNAVAILABLE: {
    status: 200,
    rpc: -32602,
    message: 'Multi-agent runs are not served here: acp.capabilities says so with multiAgent.',
  },
  MODEL_FAILED: { status: 502, rpc: -32603, message: 'The model could not answer: {reason}' },
  TOOL_CALL_REFUSED: { status: 400, rpc: -32602, message: 'The tool call was refused: {reason}' },
} as const satisfies ErrorTable;
