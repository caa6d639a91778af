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
  MODEL_FAILED: { status: 502, rpc: -32603, message: 'The model could not answer: {reason}' },
  TOOL_CALL_REFUSED: { status: 400, rpc: -32602, message: 'The tool call was refused: {reason}' },
} as const satisfies ErrorTable;
