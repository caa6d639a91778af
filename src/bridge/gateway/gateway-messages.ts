import { AppError } from '../../platform/errors/app-error.ts';
import type { AgentEvent } from '../agents/agent-provider.ts';
import { asObject, textOf, withinBounds } from '../agents/agent-text.ts';

export interface GatewayEvent {
  readonly name: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** Why a call to the gateway failed: OFFLINE, RPC_TIMEOUT, SOCKET_CLOSED, OVERLOADED or the gateway's own code. */
export interface GatewayFailure {
  readonly code: string;
  readonly message: string;
  /** The gateway refuses and will refuse again: a retry makes it worse. */
  readonly isRefusal: boolean;
}

const LONGEST_MESSAGE = 500;
/** Prefixes of the codes with which a gateway refuses our device or token. */
const REFUSALS = ['AUTH_', 'DEVICE_', 'PAIRING_', 'CONTROL_UI_'];

export function gatewayFailed(code: string, message: string, isRefusal = false): AppError {
  return new AppError('GATEWAY_FAILED', {
    reason: message.slice(0, LONGEST_MESSAGE),
    gatewayCode: code,
    ...(isRefusal && { isRefusal }),
  });
}

/** From the `error` of an answer: the code in its details is the exact one. */
export function readGatewayError(value: unknown): AppError {
  const { code, message, details } = asObject(value);
  const own = typeof code === 'string' && code !== '' ? code : 'UNKNOWN';
  const detailed = asObject(details).code;
  const exact = typeof detailed === 'string' && detailed !== '' ? detailed : own;
  const isRefusal = own === 'NOT_PAIRED' || REFUSALS.some((word) => exact.startsWith(word));
  return gatewayFailed(exact, typeof message === 'string' && message !== '' ? message : exact, isRefusal);
}

/** Describes a failure for the caller. A fault of ours is not explained. */
export function describeGatewayFailure(error: unknown): GatewayFailure {
  const details = error instanceof AppError && error.code === 'GATEWAY_FAILED' ? error.details : {};
  const { gatewayCode, reason, isRefusal } = details;
  return {
    code: typeof gatewayCode === 'string' ? gatewayCode : 'INTERNAL_ERROR',
    message: typeof reason === 'string' ? reason : 'The call could not be made.',
    isRefusal: isRefusal === true,
  };
}

export function isSocketLoss(error: unknown): boolean {
  const { code } = describeGatewayFailure(error);
  return code === 'SOCKET_CLOSED' || code === 'OFFLINE';
}

/** What an event of a run means for its session; undefined for what has no place there. */
export function readGatewayEvent({ name, payload }: GatewayEvent): AgentEvent | undefined {
  if (name !== 'agent') return undefined;
  const data = asObject(payload.data);
  switch (payload.stream) {
    case 'assistant':
      return said('text', data.delta);
    case 'thinking':
    case 'reasoning':
      return said('thinking', data.delta);
    case 'tool':
      return readToolCall(data);
    case 'run_status':
      return said('status', textOf(data.phase).replaceAll('_', ' '));
    default:
      return undefined;
  }
}

function said(kind: 'text' | 'thinking' | 'status', text: unknown): AgentEvent | undefined {
  return typeof text === 'string' && text !== '' ? { kind, text } : undefined;
}

const STATUSES = { start: 'in_progress', update: 'in_progress', result: 'completed' } as const;
/** The kind of each tool by its name, because the gateway does not send the kind. */
const TOOL_KINDS: Readonly<Record<string, string>> = {
  read: 'read',
  ls: 'read',
  find: 'search',
  grep: 'search',
  write: 'edit',
  edit: 'edit',
  apply_patch: 'edit',
  exec: 'execute',
  process: 'execute',
  web_fetch: 'fetch',
  web_search: 'fetch',
};

function readToolCall(data: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const { phase, args, result, partialResult, isError } = data;
  const toolCallId = textOf(data.toolCallId);
  const tool = textOf(data.name);
  if (toolCallId === '' || (phase !== 'start' && phase !== 'update' && phase !== 'result')) return undefined;
  const output = phase === 'result' ? result : partialResult;
  return {
    kind: 'tool_call',
    toolCallId,
    title: tool || 'tool',
    status: phase === 'result' && isError === true ? 'failed' : STATUSES[phase],
    toolKind: (Object.hasOwn(TOOL_KINDS, tool) ? TOOL_KINDS[tool] : undefined) ?? 'other',
    ...(args !== undefined && { input: withinBounds(args) }),
    ...(output !== undefined && { output: withinBounds(output) }),
  };
}

/** The text of a message as gateways write it: a string, or a list of parts. */
export function messageText(message: unknown): string {
  const { content, text } = asObject(message);
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return textOf(text);
  return content.map((part) => (asObject(part).type === 'text' ? textOf(asObject(part).text) : '')).join('');
}
