import type { AgentEvent } from '../agent-provider.ts';
import { asObject, textOf } from '../loose-json.ts';

type ToolCallEvent = Extract<AgentEvent, { kind: 'tool_call' }>;

const TOOL_STATUS: readonly string[] = [
  'pending',
  'in_progress',
  'completed',
  'failed',
] satisfies ToolCallEvent['status'][];
const MAX_LOCATIONS = 100;

/**
 * What the parameters of a `session.update` (contract/bridge 4) mean to us. Undefined for what only tells how the other
 * bridge is getting on (our own says that itself) and for kinds that are not known.
 */
export function readUpdate(params: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const event = asObject(params.structuredEvent);
  const text = textOf(event.text);
  switch (event.kind) {
    case 'text':
      return text === '' ? undefined : { kind: 'text', text };
    case 'thinking':
      return text === '' ? undefined : { kind: 'thinking', text };
    case 'status':
      return readStatus(event, text);
    case 'tool_call':
      return readToolCall(event);
    default:
      return params.type === 'delta' && textOf(params.delta) !== ''
        ? { kind: 'text', text: textOf(params.delta) }
        : undefined;
  }
}

/** A permission is a status too, and says so; it is one of ours again, so that our own records have it as well. */
function readStatus(event: Readonly<Record<string, unknown>>, text: string): AgentEvent | undefined {
  const decision = textOf(event.status).replace('permission_', '');
  if (decision !== 'allowed' && decision !== 'denied') return text === '' ? undefined : { kind: 'status', text };
  const toolCallId = textOf(event.toolCallId);
  const title = text.replace(/^(?:Allowed|Denied): /, '');
  return { kind: 'permission', title, decision, ...(toolCallId !== '' && { toolCallId }) };
}

function readToolCall(event: Readonly<Record<string, unknown>>): AgentEvent | undefined {
  const toolCallId = textOf(event.toolCallId);
  const { status } = event;
  if (toolCallId === '' || !isToolStatus(status)) return undefined;
  const locations = readLocations(event.locations);
  return {
    kind: 'tool_call',
    toolCallId,
    title: textOf(event.title),
    status,
    toolKind: textOf(event.toolKind) || 'other',
    ...(event.input !== undefined && { input: event.input }),
    ...(event.output !== undefined && { output: event.output }),
    ...(locations.length > 0 && { locations }),
  };
}

function isToolStatus(value: unknown): value is ToolCallEvent['status'] {
  return typeof value === 'string' && TOOL_STATUS.includes(value);
}

function readLocations(value: unknown): NonNullable<ToolCallEvent['locations']> {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MAX_LOCATIONS).flatMap((location: unknown) => {
    const { path, line } = asObject(location);
    if (typeof path !== 'string') return [];
    return [typeof line === 'number' ? { path, line } : { path }];
  });
}
