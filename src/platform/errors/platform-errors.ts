import type { ErrorTable } from './error-table.ts';

/** What the platform itself throws. Each service's table starts from these rows and may reword them. */
export const platformErrors = {
  INTERNAL_ERROR: { status: 500, rpc: -32603, message: 'Something went wrong on our side; quote the request id.' },
  INVALID_REQUEST: { status: 400, rpc: -32600, message: 'The request is not valid: {reason}' },
  PARSE_ERROR: { status: 400, rpc: -32700, message: 'The body is not valid JSON: {reason}' },
  METHOD_NOT_FOUND: { status: 404, rpc: -32601, message: 'There is no method "{method}".' },
  INVALID_PARAMS: { status: 400, rpc: -32602, message: 'The parameters are not valid: {reason}' },
  NOT_FOUND: { status: 404, rpc: -32600, message: 'There is nothing at this address.' },
  METHOD_NOT_ALLOWED: { status: 405, rpc: -32600, message: 'This address takes {allow}.' },
  UPGRADE_REQUIRED: { status: 426, rpc: -32600, message: 'This address is a WebSocket: ask for an upgrade.' },
  BODY_TOO_LARGE: { status: 413, rpc: -32600, message: 'The body is larger than {limit} bytes.' },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, rpc: -32600, message: 'Send the body as application/json in UTF-8.' },
  REQUEST_TIMEOUT: { status: 408, rpc: -32600, message: 'The request took too long to arrive.' },
  HEADERS_TOO_LARGE: { status: 431, rpc: -32600, message: 'The request headers are too large.' },
  HOST_NOT_ALLOWED: {
    status: 421,
    rpc: -32600,
    message: 'The Host "{host}" is not served here; list it in allowed_hosts.',
  },
  OVERLOADED: { status: 503, rpc: -32020, message: 'Too much is under way; try again in a moment.' },
  SHUTTING_DOWN: { status: 503, rpc: -32020, message: 'The server is shutting down; try again in a moment.' },
  STORAGE_UNAVAILABLE: { status: 503, rpc: -32603, message: 'The database cannot be reached; try again in a moment.' },
  STORAGE_FULL: { status: 503, rpc: -32603, message: 'The disk of the database is full; nothing was stored.' },
  CONNECTION_CLOSED: { status: 503, rpc: -32603, message: 'The connection was closed before the answer came.' },
  CALL_TIMEOUT: { status: 504, rpc: -32603, message: 'No answer came within {timeoutMs} ms.' },
  CALL_CANCELLED: { status: 499, rpc: -32603, message: 'The call was cancelled.' },
} as const satisfies ErrorTable;
