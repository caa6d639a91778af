import type { AgentEvent } from '../agents/agent-provider.ts';
import { withinBounds } from '../agents/event-bounds.ts';
import { asObject, textOf } from '../agents/loose-json.ts';
import type { GatewayEvent } from './gateway-connection.ts';

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
/** The gateway names its tools; what kind of deed each is the other agents say by themselves. */
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
