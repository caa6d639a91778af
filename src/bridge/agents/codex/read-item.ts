import type { AgentEvent } from '../agent-provider.ts';
import { withinBounds } from '../event-bounds.ts';
import { asObject, shownText } from '../loose-json.ts';

type ToolCall = Extract<AgentEvent, { kind: 'tool_call' }>;
type Fields = Readonly<Record<string, unknown>>;
type Described = Pick<ToolCall, 'title' | 'toolKind' | 'input' | 'output' | 'locations'>;

/** Reads the items of a turn: messages, thoughts, and what Codex does. */
export interface ItemReader {
  started(item: unknown): readonly AgentEvent[];
  completed(item: unknown): readonly AgentEvent[];
  delta(kind: 'text' | 'thinking', itemId: unknown, delta: unknown): readonly AgentEvent[];
  /** What a running command printed. */
  output(itemId: unknown, delta: unknown): readonly AgentEvent[];
  /** The last message of Codex that was completed: its final one, if the turn is over. */
  lastMessage(): string | undefined;
}

const MOST_OUTPUT = 65_536;

/** The items that are something done, each with how it is shown. All others are left out (contract/bridge 4). */
const DEEDS: Readonly<Record<string, (item: Fields) => Described>> = {
  commandExecution: ({ command, cwd, aggregatedOutput }) => ({
    title: shownText(command),
    toolKind: 'execute',
    input: { command, cwd },
    ...given('output', aggregatedOutput),
  }),
  fileChange: ({ changes }) => {
    const paths = listOf(changes).map(({ path }) => shownText(path));
    const locations = paths.map((path) => ({ path }));
    return { title: `edit ${paths.join(', ')}`, toolKind: 'edit', input: withinBounds(changes), locations };
  },
  mcpToolCall: ({ server, tool, arguments: input, result, error }) => ({
    title: `${shownText(server)}: ${shownText(tool)}`,
    toolKind: 'other',
    input: withinBounds(input),
    ...given('output', withinBounds(error ?? result)),
  }),
  dynamicToolCall: ({ tool, arguments: input, contentItems }) => ({
    title: shownText(tool),
    toolKind: 'other',
    input: withinBounds(input),
    ...given('output', withinBounds(contentItems)),
  }),
  collabAgentToolCall: ({ tool, prompt }) => ({ title: shownText(tool), toolKind: 'other', ...given('input', prompt) }),
  webSearch: ({ query }) => ({ title: shownText(query), toolKind: 'fetch', input: { query } }),
  imageView: ({ path }) => ({ title: shownText(path), toolKind: 'read', locations: [{ path: shownText(path) }] }),
};

const STATUS: Readonly<Record<string, ToolCall['status']>> = {
  inProgress: 'in_progress',
  completed: 'completed',
  failed: 'failed',
  declined: 'failed',
};

export function createItemReader(): ItemReader {
  /** Items whose text came in pieces: the whole is not said again. */
  const spoken = new Set<string>();
  let lastMessage: string | undefined;
  const running = new Map<string, { readonly call: ToolCall; printed: string }>();

  function readDeed(item: Fields, otherwise: ToolCall['status']): ToolCall | undefined {
    const { id, type, status } = item;
    const describe = typeof type === 'string' && Object.hasOwn(DEEDS, type) ? DEEDS[type] : undefined;
    if (describe === undefined || typeof id !== 'string') return undefined;
    const known = typeof status === 'string' && Object.hasOwn(STATUS, status) ? STATUS[status] : undefined;
    return { kind: 'tool_call', toolCallId: id, status: known ?? otherwise, ...describe(item) };
  }

  return {
    started(item) {
      const call = readDeed(asObject(item), 'in_progress');
      if (call === undefined) return [];
      running.set(call.toolCallId, { call, printed: '' });
      return [call];
    },
    completed(item) {
      const fields = asObject(item);
      const call = readDeed(fields, 'completed');
      if (call !== undefined) {
        running.delete(call.toolCallId);
        return [call];
      }
      const { id, type, text, summary } = fields;
      if (type === 'agentMessage' && typeof text === 'string') lastMessage = text;
      if (spoken.delete(shownText(id))) return [];
      if (type === 'agentMessage') return wordsOf('text', text);
      if (type === 'reasoning')
        return wordsOf('thinking', Array.isArray(summary) ? summary.map(shownText).join('\n') : '');
      return type === 'plan' ? wordsOf('status', text) : [];
    },
    delta(kind, itemId, delta) {
      spoken.add(shownText(itemId));
      return wordsOf(kind, delta);
    },
    output(itemId, delta) {
      const entry = running.get(shownText(itemId));
      if (entry === undefined || typeof delta !== 'string' || entry.printed.length >= MOST_OUTPUT) return [];
      entry.printed = (entry.printed + delta).slice(0, MOST_OUTPUT);
      return [{ ...entry.call, output: entry.printed }];
    },
    lastMessage: () => lastMessage,
  };
}

function wordsOf(kind: 'text' | 'thinking' | 'status', text: unknown): readonly AgentEvent[] {
  return typeof text === 'string' && text !== '' ? [{ kind, text }] : [];
}

function listOf(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.map((entry) => asObject(entry)) : [];
}

function given<Name extends string>(name: Name, value: unknown): { readonly [Key in Name]?: unknown } {
  return value === null || value === undefined ? {} : ({ [name]: value } as { readonly [Key in Name]?: unknown });
}
