import { asObject, textOf } from '../agents/agent-text.ts';

/** The `update` of a `session/update` notification of the Agent Client Protocol. */
export type EditorUpdate = Readonly<Record<string, unknown>> & { readonly sessionUpdate: string };

type Fields = Readonly<Record<string, unknown>>;

const TOOL_KINDS: ReadonlySet<unknown> = new Set([
  'read',
  'edit',
  'delete',
  'move',
  'search',
  'execute',
  'think',
  'fetch',
  'switch_mode',
  'other',
]);
/** The tool calls of one turn that were sent to the editor. */
const MOST_REMEMBERED = 10_000;

/** A kind of tool that the protocol knows. */
export function editorToolKind(kind: unknown): unknown {
  return TOOL_KINDS.has(kind) ? kind : 'other';
}

export function messageChunk(
  kind: 'user_message_chunk' | 'agent_message_chunk' | 'agent_thought_chunk',
  text: string,
): EditorUpdate {
  return { sessionUpdate: kind, content: { type: 'text', text } };
}

/**
 * Reads the updates of one session (contract/bridge 4) as an editor understands them. Undefined: the update only tells how
 * the turn progresses, which an editor gets with the response to its prompt.
 */
export function createEditorUpdates(): (params: Fields) => EditorUpdate | undefined {
  const announced = new Set<string>();

  function toolCall(event: Fields): EditorUpdate {
    const toolCallId = textOf(event.toolCallId);
    const isNew = !announced.has(toolCallId);
    if (announced.size >= MOST_REMEMBERED) announced.clear();
    announced.add(toolCallId);
    const { input, output, locations } = event;
    const content = [...(typeof output === 'string' ? [textContent(output)] : []), ...diffContents(event.changes)];
    return {
      sessionUpdate: isNew ? 'tool_call' : 'tool_call_update',
      toolCallId,
      title: textOf(event.title),
      kind: editorToolKind(event.toolKind),
      status: event.status,
      ...(input !== undefined && { rawInput: input }),
      ...(output !== undefined && { rawOutput: output }),
      ...(content.length > 0 && { content }),
      ...(locations !== undefined && { locations }),
    };
  }

  return (params) => {
    const event = asObject(params.structuredEvent);
    const text = textOf(event.text);
    switch (event.kind) {
      case 'text':
        return text === '' ? undefined : messageChunk('agent_message_chunk', text);
      case 'thinking':
        return text === '' ? undefined : messageChunk('agent_thought_chunk', text);
      case 'status': {
        const member = memberUpdate(event);
        if (member !== undefined) return member;
        // The protocol has no update for a status or a granted permission, so both are sent as text.
        return text === '' ? undefined : messageChunk('agent_thought_chunk', `${text}\n`);
      }
      case 'tool_call':
        return toolCall(event);
      default:
        return undefined;
    }
  };
}

/** What the first surface tells as members of a status is an update of its own in the protocol. */
function memberUpdate({ plan, usage, modeId, commands, steer }: Fields): EditorUpdate | undefined {
  if (plan !== undefined) return { sessionUpdate: 'plan', entries: plan };
  if (modeId !== undefined) return { sessionUpdate: 'current_mode_update', currentModeId: modeId };
  if (commands !== undefined) return { sessionUpdate: 'available_commands_update', availableCommands: commands };
  if (typeof steer === 'string') return messageChunk('user_message_chunk', steer);
  const { contextUsed: used, contextSize: size, costUsd: amount } = asObject(usage);
  if (used === undefined || size === undefined) return undefined;
  const cost = amount === undefined ? {} : { cost: { amount, currency: 'USD' } };
  return { sessionUpdate: 'usage_update', used, size, ...cost };
}

function textContent(text: string) {
  return { type: 'content', content: { type: 'text', text } };
}

/** Returns diffs as the protocol has them; of a change that comes as a unified diff, its text. */
function diffContents(changes: unknown): readonly object[] {
  if (!Array.isArray(changes)) return [];
  return changes.map(asObject).flatMap(({ path, oldText, newText, unified }): object[] => {
    if (newText !== undefined) return [{ type: 'diff', path, oldText: oldText ?? null, newText }];
    return typeof unified === 'string' ? [textContent(unified)] : [];
  });
}
