import { AppError } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import { toJsonText } from '../../platform/json-rpc/envelope.ts';
import type { Dispatch, MethodCall } from '../../platform/json-rpc/method-table.ts';
import { asObject, objectsIn, textOf } from '../agents/agent-text.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { GivenAttachment, McpServer } from '../contract/session.ts';
import type { SessionPast } from '../sessions/create-sessions.ts';
import { readMcpServers, type SessionMcpServer } from '../sessions/mcp-servers.ts';

/** The `update` of a `session/update` notification of the Agent Client Protocol. */
type EditorUpdate = Readonly<Record<string, unknown>> & { readonly sessionUpdate: string };

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
/** The maximum number of tool calls that are remembered as sent to the editor. */
const MAX_REMEMBERED = 10_000;

/** A kind of tool that the protocol knows. */
export function editorToolKind(kind: unknown): unknown {
  return TOOL_KINDS.has(kind) ? kind : 'other';
}

function messageChunk(
  kind: 'user_message_chunk' | 'agent_message_chunk' | 'agent_thought_chunk',
  text: string,
): EditorUpdate {
  return { sessionUpdate: kind, content: { type: 'text', text } };
}

/**
 * Reads the updates of one session as an editor understands them. Undefined: the update only tells how
 * the turn progresses, which an editor gets with the response to its prompt.
 */
export function createEditorUpdates(): (params: Fields) => EditorUpdate | undefined {
  const announced = new Set<string>();

  function toolCall(event: Fields): EditorUpdate {
    const toolCallId = textOf(event.toolCallId);
    const isNew = !announced.has(toolCallId);
    if (announced.size >= MAX_REMEMBERED) announced.clear();
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

/** Turns the members of a status of the first surface into the update that the protocol has for them. */
function memberUpdate({ plan, usage, modeId, commands, steer }: Fields): EditorUpdate | undefined {
  if (plan !== undefined) return { sessionUpdate: 'plan', entries: plan };
  if (modeId !== undefined) return { sessionUpdate: 'current_mode_update', currentModeId: modeId };
  if (commands !== undefined)
    return { sessionUpdate: 'available_commands_update', availableCommands: editorCommands(commands) };
  if (typeof steer === 'string') return messageChunk('user_message_chunk', steer);
  const { contextUsed: used, contextSize: size, costUsd: amount } = asObject(usage);
  if (used === undefined || size === undefined) return undefined;
  const cost = amount === undefined ? {} : { cost: { amount, currency: 'USD' } };
  return { sessionUpdate: 'usage_update', used, size, ...cost };
}

function editorCommands(commands: unknown): readonly object[] {
  return objectsIn(commands).map(({ hint, ...command }) =>
    hint === undefined ? command : { ...command, input: { hint } },
  );
}

function textContent(text: string) {
  return { type: 'content', content: { type: 'text', text } };
}

/** Returns changes as diffs of the protocol, and unified diffs as text. */
function diffContents(changes: unknown): readonly object[] {
  if (!Array.isArray(changes)) return [];
  return changes.map(asObject).flatMap(({ path, oldText, newText, unified }): object[] => {
    if (newText !== undefined) return [{ type: 'diff', path, oldText: oldText ?? null, newText }];
    return typeof unified === 'string' ? [textContent(unified)] : [];
  });
}

type Call = MethodCall<BridgeClient>;

/** The sessions of one editor, which are sessions of the bridge. */
export interface EditorSessions {
  open(folder: string, mcpServers: readonly McpServer[]): Promise<Fields>;
  takeUp(sessionId: string, folder: string, mcpServers: readonly McpServer[], withPast: boolean): Promise<Fields>;
  choose(sessionId: string, option: string, value: unknown): Fields;
  prompt(sessionId: string, blocks: readonly unknown[], call: Call): Promise<Fields>;
  cancel(sessionId: string, call: Call): Promise<Fields>;
  close(sessionId: string, call: Call): Promise<Fields>;
  /** Takes the parameters of a `session.update` of the bridge. */
  update(params: Fields): void;
}

export interface EditorSessionsOptions {
  /** Of the bridge's own method family. */
  readonly dispatch: Dispatch<BridgeClient>;
  readonly agents: readonly { readonly id: string; readonly label: string }[];
  /** Whether sessions may have MCP servers: where agents may only read, they may not. */
  readonly takesServers: boolean;
  /** The agent of new sessions. Empty: the routing decides. */
  readonly agent: string;
  readonly makeId: MakeId;
  checkDirectory(path: string): Promise<string>;
  /** Returns what is stored of an open session; undefined when there is no such session. */
  past(sessionId: string): Promise<SessionPast | undefined>;
  /** Sends all earlier updates of a session, and resolves when that is done. */
  replay(sessionId: string): Promise<void>;
  send(sessionId: string, update: EditorUpdate): void;
  warn(message: string): void;
}

interface EditorSession {
  readonly folder: string;
  /** Of a session that has not begun. */
  readonly mcpServers: readonly SessionMcpServer[];
  agent: string;
  /** Whether its agent has a conversation: until then, each prompt starts the session again. */
  hasBegun: boolean;
  readonly read: (params: Fields) => EditorUpdate | undefined;
  /** While the past is replayed: the prompt of each turn, until that was sent too. */
  past: Map<string, string> | undefined;
}

const AGENT_OPTION = 'agent';
const ANY_AGENT = 'auto';
/** The least recently opened is forgotten; it can be loaded again. */
const MAX_SESSIONS = 1000;

export function createEditorSessions(options: EditorSessionsOptions): EditorSessions {
  const { dispatch, agents, makeId, send } = options;
  const sessions = new Map<string, EditorSession>();

  function add(sessionId: string, given: Pick<EditorSession, 'folder' | 'mcpServers' | 'hasBegun'>): EditorSession {
    const session: EditorSession = { ...given, agent: options.agent, read: createEditorUpdates(), past: undefined };
    sessions.set(sessionId, session);
    const [oldest] = sessions.keys();
    if (sessions.size > MAX_SESSIONS && oldest !== undefined) sessions.delete(oldest);
    return session;
  }

  function find(sessionId: string): EditorSession {
    const session = sessions.get(sessionId);
    if (session === undefined) throw new AppError('EDITOR_SESSION_UNKNOWN', { sessionId });
    return session;
  }

  /** A call of the bridge's own family on behalf of the editor's call. */
  async function callBridge(method: string, params: Fields, call: Call): Promise<Fields> {
    const { id, caller, signal, requestId } = call;
    const outcome = await dispatch({
      method,
      params,
      id,
      caller,
      signal,
      requestId,
      notify: (_method, update) => show(JSON.parse(toJsonText(update)) as Fields),
      accept: () => undefined,
    });
    return JSON.parse(toJsonText(outcome)) as Fields;
  }

  function show(params: Fields): void {
    const sessionId = String(params.sessionId);
    const session = sessions.get(sessionId);
    if (session === undefined) return;
    const turnId = String(params.turnId);
    const asked = session.past?.get(turnId);
    if (asked !== undefined) {
      session.past?.delete(turnId);
      send(sessionId, messageChunk('user_message_chunk', asked));
    }
    const update = session.read(params);
    if (update !== undefined) send(sessionId, update);
  }

  /** A session of another node is not known here: there, one that no agent could serve was never stored. */
  async function hasConversation(sessionId: string, status: unknown): Promise<boolean> {
    if (status === 'completed' || status === 'unavailable') return status === 'completed';
    return (await options.past(sessionId))?.hasConversation ?? true;
  }

  function configOptions({ agent }: EditorSession): Fields {
    const choices = agents.map(({ id, label }) => ({ value: id, name: label }));
    const option = {
      id: AGENT_OPTION,
      name: 'Agent',
      description: 'Who does the work; fixed once the session has begun.',
      type: 'select',
      currentValue: agent === '' ? ANY_AGENT : agent,
      options: [{ value: ANY_AGENT, name: 'Automatic' }, ...choices],
    };
    return { configOptions: [option] };
  }

  function serversOf(given: readonly McpServer[]): readonly SessionMcpServer[] {
    const mcpServers = readMcpServers(given);
    if (mcpServers.length === 0 || options.takesServers) return mcpServers;
    options.warn('MCP servers of the editor are not handed on, because bridge.permissions is deny');
    return [];
  }

  return {
    update: show,
    async open(folder, mcpServers) {
      const given = serversOf(mcpServers);
      const sessionId = makeId('editor-');
      const place = await options.checkDirectory(folder);
      const session = add(sessionId, { folder: place, mcpServers: given, hasBegun: false });
      return { sessionId, ...configOptions(session) };
    },
    async takeUp(sessionId, folder, mcpServers, withPast) {
      const past = await options.past(sessionId);
      if (past === undefined) throw new AppError('EDITOR_SESSION_UNKNOWN', { sessionId });
      const place = await options.checkDirectory(folder);
      const names = (servers: readonly { readonly name: string }[]) => servers.map(({ name }) => name).join(', ');
      if (past.hasConversation && names(readMcpServers(mcpServers)) !== names(past.mcpServers)) {
        options.warn(`the session keeps the MCP servers that it was started with: ${names(past.mcpServers) || 'none'}`);
      }
      const hasBegun = past.hasConversation;
      const session = add(sessionId, { folder: place, mcpServers: hasBegun ? [] : serversOf(mcpServers), hasBegun });
      session.agent = past.providerId;
      if (withPast) {
        session.past = new Map(past.prompts);
        await options.replay(sessionId);
        session.past = undefined;
      }
      return configOptions(session);
    },
    choose(sessionId, option, value) {
      const session = find(sessionId);
      if (option !== AGENT_OPTION) throw new AppError('INVALID_PARAMS', { reason: 'configId: there is only "agent"' });
      if (value !== ANY_AGENT && !agents.some(({ id }) => id === value)) {
        throw new AppError('INVALID_PARAMS', { reason: 'value: there is no such agent' });
      }
      if (session.hasBegun) {
        throw new AppError('INVALID_PARAMS', { reason: 'the session has begun, and stays with its agent' });
      }
      session.agent = value === ANY_AGENT ? '' : String(value);
      return configOptions(session);
    },
    async prompt(sessionId, blocks, call) {
      const session = find(sessionId);
      const { taskPrompt, attachments } = readPrompt(blocks);
      const stop = () => void callBridge('session.cancel', { sessionId }, call).catch(() => undefined);
      call.signal.addEventListener('abort', stop, { once: true });
      const result = await callBridge(
        session.hasBegun ? 'session.message' : 'session.start',
        {
          sessionId,
          taskPrompt,
          ...(attachments.length > 0 && { attachments }),
          workingDirectory: session.folder,
          ...(!session.hasBegun && session.mcpServers.length > 0 && { mcpServers: session.mcpServers }),
          ...(!session.hasBegun && session.agent !== '' && { routing: { explicitProviderId: session.agent } }),
        },
        call,
      );
      // An agent that could not be started, or was stopped before it began, has nothing that a message could continue.
      session.hasBegun ||= await hasConversation(sessionId, result.status);
      return turnAnswer(result);
    },
    async cancel(sessionId, call) {
      find(sessionId);
      await callBridge('session.cancel', { sessionId }, call);
      return {};
    },
    async close(sessionId, call) {
      find(sessionId);
      sessions.delete(sessionId);
      await callBridge('session.close', { sessionId }, call);
      return {};
    },
  };
}

interface EditorPrompt {
  readonly taskPrompt: string;
  readonly attachments: readonly GivenAttachment[];
}

/** Reads the prompt of an editor: texts for the agent, and files. Refuses kinds of blocks that were not announced. */
export function readPrompt(blocks: readonly unknown[]): EditorPrompt {
  const attachments = blocks.flatMap((block, index) => readFile(asObject(block), index + 1));
  const isFile = (block: unknown) => readFile(asObject(block), 0).length > 0;
  const text = blocks
    .filter((block) => !isFile(block))
    .map(blockText)
    .join('\n\n')
    .trim();
  if (text === '' && attachments.length === 0) {
    throw new AppError('INVALID_PARAMS', { reason: 'prompt: there is nothing in it' });
  }
  return { taskPrompt: text === '' ? 'See the attached files.' : text, attachments };
}

/** Reads an image, or an embedded file that is not text; empty for any other block. */
function readFile({ type, data, mimeType, uri, resource }: Fields, number: number): readonly GivenAttachment[] {
  const { blob, mimeType: ofResource, uri: resourceUri } = asObject(resource);
  if (type === 'image' && typeof data === 'string') return [fileOf(data, mimeType, uri, number)];
  if (type === 'resource' && typeof blob === 'string') return [fileOf(blob, ofResource, resourceUri, number)];
  return [];
}

function fileOf(data: string, type: unknown, uri: unknown, number: number): GivenAttachment {
  const contentType = textOf(type);
  const [, extension = 'bin'] = /^\w+\/(\w+)/.exec(contentType) ?? [];
  const name = textOf(uri).split('/').at(-1) || `attachment-${number}.${extension}`;
  return { name, contentType, data };
}

function blockText(value: unknown): string {
  const block = asObject(value);
  switch (block.type) {
    case 'text':
      return textOf(block.text);
    case 'resource_link':
      return `[${textOf(block.name) || textOf(block.uri)}](${textOf(block.uri)})`;
    case 'resource': {
      const { uri, text } = asObject(block.resource);
      if (typeof text === 'string') return `${textOf(uri)}:\n\n${text}`;
      throw refused('a resource without text');
    }
    default:
      throw refused(typeof block.type === 'string' ? block.type.slice(0, 40) : 'a block without a type');
  }
}

function refused(what: string): AppError {
  return new AppError('INVALID_PARAMS', { reason: `prompt: ${what} is not taken; text, images, links and files are` });
}

const STOP_REASONS: ReadonlySet<unknown> = new Set(['end_turn', 'max_tokens', 'max_turn_requests', 'refusal']);

/** Turns the result of a turn into the response to `session/prompt`. A turn that failed is an error with the message of the result. */
export function turnAnswer(result: Readonly<Record<string, unknown>>): { readonly stopReason: string } {
  const { status, stopReason, code } = result;
  if (status === 'cancelled') return { stopReason: 'cancelled' };
  // An agent that only used tools has completed its task, and the editor has seen the tool calls.
  if (status === 'completed' || code === 'EMPTY_OUTPUT') {
    return { stopReason: STOP_REASONS.has(stopReason) ? textOf(stopReason) : 'end_turn' };
  }
  const reason = textOf(result.error) || textOf(result.unavailableMessage) || 'The agent failed.';
  throw new AppError('EDITOR_TURN_FAILED', { reason, turnCode: textOf(code) || textOf(result.unavailableCode) });
}
