import { pathToFileURL } from 'node:url';
import type { AnyMessage, ClientContext, ContentBlock, McpServer, Stream } from '@agentclientprotocol/sdk';
import type { ReachableMcpServer } from '../../sessions/mcp-servers.ts';
import type { AgentChannel, RpcMessage } from '../agent-connection.ts';
import type { AgentEvent, PermissionOption, PermissionQuestion, TurnUsage } from '../agent-provider.ts';
import {
  asObject,
  contentOf,
  contentText,
  cutText,
  objectsIn,
  shownText,
  textOf,
  tokenCount,
  withinBounds,
} from '../agent-text.ts';
import { keptInput, pathsOf, readDiffs, readLocations, readPlan, withPaths } from '../file-changes.ts';
import type { PromptPart } from '../prompt-content.ts';

const UPDATE = 'session/update';

/**
 * An agent's messages as the protocol's SDK wants them. Updates are taken out on the way: the SDK refuses those of kinds
 * that it does not know, and checks each of them at a cost. So are answers to questions that nobody asked, on which it
 * writes to our own standard error.
 */
export function createAcpStream(channel: AgentChannel, onUpdate: (params: unknown) => void): Stream {
  const unanswered = new Set<unknown>();
  let isOpen = true;

  const readable = new ReadableStream<AnyMessage>({
    start(controller) {
      channel.onMessage((message) => {
        if (!isOpen || message.jsonrpc !== '2.0') return;
        if (message.method === UPDATE && message.id === undefined) onUpdate(message.params);
        else if (message.method !== undefined || unanswered.delete(message.id)) controller.enqueue(toMessage(message));
      });
      channel.onEnd(() => {
        if (isOpen) controller.close();
        isOpen = false;
      });
    },
    cancel() {
      isOpen = false;
      channel.close();
    },
  });

  const writable = new WritableStream<AnyMessage>({
    write(message) {
      if ('method' in message && 'id' in message) unanswered.add(message.id);
      channel.send(JSON.stringify(message));
    },
  });

  return { readable, writable };
}

function toMessage(message: RpcMessage): AnyMessage {
  return message as AnyMessage;
}

type ToolCall = Extract<AgentEvent, { kind: 'tool_call' }>;
type Fields = Readonly<Record<string, unknown>>;

/** Reads the updates of one turn, in order. */
export interface UpdateReader {
  /** The event to report; undefined for kinds that are unknown or not in the contract. */
  read(update: unknown): AgentEvent | undefined;
  /** What the agent asks permission for. */
  readonly asked: ToolCalls['asked'];
  /** How many tokens the conversation takes up now; undefined when the agent did not say. */
  tokensInUse(): number | undefined;
  /** What the conversation has cost so far, in US dollars; undefined when the agent did not say. */
  costUsd(): number | undefined;
}

/**
 * Kinds with an event of their own are in the table. Left out on purpose:
 * user_message_chunk repeats the prompt; config_option and session_info describe the agent and not the turn;
 * compaction_summary_chunk is the agent's note to itself.
 */
export function createUpdateReader(): UpdateReader {
  const toolCalls = createToolCalls();
  let used: number | undefined;
  let cost: number | undefined;

  const readers: Readonly<Record<string, (update: Fields) => AgentEvent | undefined>> = {
    agent_message_chunk: (update) => textEvent('text', contentText(update.content)),
    agent_thought_chunk: (update) => textEvent('thinking', contentText(update.content)),
    tool_call: toolCalls.read,
    tool_call_update: toolCalls.read,
    plan: ({ entries }) => (Array.isArray(entries) ? { kind: 'plan', entries: readPlan(entries) } : undefined),
    current_mode_update: ({ currentModeId }) =>
      typeof currentModeId === 'string' ? { kind: 'mode', modeId: currentModeId } : undefined,
    available_commands_update: ({ availableCommands: listed }) =>
      Array.isArray(listed) ? { kind: 'commands', commands: readCommands(listed) } : undefined,
    notice: ({ title, description }) => textEvent('status', joined([title, description])),
    compaction_update: ({ status, error }) => textEvent('status', joined(['compaction', status, error])),
    usage_update(update) {
      used = tokenCount(update.used) ?? used;
      const { amount, currency } = asObject(update.cost);
      if (currency === 'USD' && typeof amount === 'number' && Number.isFinite(amount) && amount >= 0) cost = amount;
      const size = tokenCount(update.size);
      if (used === undefined) return undefined;
      const context = { contextUsed: used, ...(size !== undefined && { contextSize: size }) };
      return { kind: 'usage', ...context, ...(cost !== undefined && { costUsd: cost }) };
    },
  };

  return {
    read(update) {
      const fields = asObject(update);
      const reader = typeof fields.sessionUpdate === 'string' ? ownReader(readers, fields.sessionUpdate) : undefined;
      return reader?.(fields);
    },
    asked: toolCalls.asked,
    tokensInUse: () => used,
    costUsd: () => cost,
  };
}

function ownReader<Reader>(readers: Readonly<Record<string, Reader>>, kind: string): Reader | undefined {
  return Object.hasOwn(readers, kind) ? readers[kind] : undefined;
}

/** The usage of a turn: as the protocol has it, as Gemini CLI has it, or only the size of the conversation. */
export function readUsage(response: unknown, tokensInUse: number | undefined): TurnUsage | undefined {
  const { usage, _meta } = asObject(response);
  const told = asObject(usage);
  const inputTokens = tokenCount(told.inputTokens);
  const outputTokens = tokenCount(told.outputTokens);
  if (inputTokens !== undefined && outputTokens !== undefined) {
    return { inputTokens, outputTokens, totalTokens: tokenCount(told.totalTokens) ?? inputTokens + outputTokens };
  }
  const { token_count: count } = asObject(asObject(_meta).quota);
  const input = tokenCount(asObject(count).input_tokens);
  const output = tokenCount(asObject(count).output_tokens);
  if (input !== undefined && output !== undefined) {
    return { inputTokens: input, outputTokens: output, totalTokens: input + output };
  }
  return tokensInUse === undefined ? undefined : { totalTokens: tokensInUse };
}

/** The tool calls of one turn, as far as they were told. */
interface ToolCalls {
  /** An update names what has changed only, and may come for a call that was never announced. */
  read(update: Fields): ToolCall | undefined;
  /** The question that asks for a call. Agents repeat in it only a part of what they have told of the call before. */
  asked(toolCall: Fields): Pick<PermissionQuestion, 'toolCallId' | 'title' | 'toolKind' | 'input'>;
}

interface Told {
  readonly call: ToolCall;
  /** The input, for rules. Undefined: there is none, or the call has ended. */
  readonly input: unknown;
  /** All files that it was told to be about. */
  readonly paths: readonly string[];
}

const STATUSES: ReadonlySet<unknown> = new Set(['pending', 'in_progress', 'completed', 'failed']);
/** An agent that calls more tools in one turn has the first ones forgotten. */
const MAX_TOOL_CALLS = 1000;
const MAX_PATHS = 10_000;

function createToolCalls(): ToolCalls {
  const toldCalls = new Map<string, Told>();

  return {
    read(update) {
      const { toolCallId } = update;
      if (typeof toolCallId !== 'string') return undefined;
      const before = toldCalls.get(toolCallId);
      const call = mergeToolCall(before?.call, toolCallId, update);
      const isOver = call.status === 'completed' || call.status === 'failed';
      const told = {
        call,
        // An older input is no longer true.
        input: keptInput(update.rawInput) ?? before?.input,
        paths: [...(before?.paths ?? []), ...pathsOf(update)],
      };
      toldCalls.delete(toolCallId);
      toldCalls.set(
        toolCallId,
        isOver
          ? { call, input: undefined, paths: [] }
          : { ...told, paths: [...new Set(told.paths)].slice(0, MAX_PATHS) },
      );
      const [oldest] = toldCalls.keys();
      if (toldCalls.size > MAX_TOOL_CALLS && oldest !== undefined) toldCalls.delete(oldest);
      return call;
    },
    asked(toolCall) {
      const toolCallId = textOf(toolCall.toolCallId);
      const { call, input, paths = [] } = toldCalls.get(toolCallId) ?? {};
      return {
        toolCallId,
        title: textOr(toolCall.title, call?.title ?? 'a tool'),
        toolKind: textOr(toolCall.kind, call?.toolKind ?? 'other'),
        input: withPaths(toolCall.rawInput ?? input ?? call?.input, [...paths, ...pathsOf(toolCall)]),
      };
    },
  };
}

function mergeToolCall(before: ToolCall | undefined, toolCallId: string, update: Fields): ToolCall {
  const input = update.rawInput ?? before?.input;
  const output = update.rawOutput ?? contentOf(update.content) ?? before?.output;
  const locations = readLocations(update.locations) ?? before?.locations;
  const changes = readDiffs(update.content) ?? before?.changes;
  const status = STATUSES.has(update.status) ? (update.status as ToolCall['status']) : before?.status;
  return {
    kind: 'tool_call',
    toolCallId,
    title: textOr(update.title, before?.title ?? textOr(update.name, toolCallId)),
    status: status ?? 'pending',
    toolKind: textOr(update.kind, before?.toolKind ?? 'other'),
    ...(input !== undefined && { input: withinBounds(input) }),
    ...(output !== undefined && { output: withinBounds(output) }),
    ...(locations !== undefined && { locations }),
    ...(changes !== undefined && { changes }),
  };
}

function textOr(value: unknown, fallback: string): string {
  return typeof value === 'string' && value !== '' ? value : fallback;
}

const MAX_COMMANDS = 100;
const MAX_COMMAND_LENGTH = 500;

export function readCommands(value: readonly unknown[]): Extract<AgentEvent, { kind: 'commands' }>['commands'] {
  return value.slice(0, MAX_COMMANDS).map((command: unknown) => {
    const { name, description, input } = asObject(command);
    const { hint } = asObject(input);
    const cut = (text: unknown) => cutText(shownText(text), MAX_COMMAND_LENGTH);
    return { name: cut(name), description: cut(description), ...(typeof hint === 'string' && { hint: cut(hint) }) };
  });
}

function textEvent(kind: 'text' | 'thinking' | 'status', text: string): AgentEvent | undefined {
  return text === '' ? undefined : { kind, text };
}

function joined(parts: readonly unknown[]): string {
  return parts.filter((part) => typeof part === 'string' && part !== '').join(': ');
}

/** A capability is there when its member is, whatever stands in it. */
export function isOffered(capability: unknown): boolean {
  return capability !== undefined && capability !== null;
}

/** A server as the protocol has it: a program has no type there. */
export function toServer(server: ReachableMcpServer): McpServer {
  const { name } = server;
  if (server.type !== 'stdio') return { type: server.type, name, url: server.url, headers: [...server.headers] };
  const { command, args, env } = server;
  return { name, command, args: [...args], env: [...env] };
}

/** A file as the protocol shows it. */
export function toBlock(part: PromptPart): ContentBlock {
  const uri = pathToFileURL(part.path).href;
  if (part.kind === 'image') return { type: 'image', mimeType: part.contentType, data: part.data, uri };
  return { type: 'resource', resource: { uri, mimeType: part.contentType, text: part.text } };
}

/** What a conversation lets people choose, by the names of the protocol for its options. */
type ChoiceKind = 'model' | 'mode' | 'thought_level';

/** How a conversation of an agent lets one of them be chosen, and from what. */
export interface SessionChoice {
  /** Through an option of the session, or through the older method for this choice alone. */
  readonly way: { readonly kind: 'option'; readonly configId: string } | { readonly kind: 'method' };
  readonly current: string;
  readonly values: readonly string[];
  /** The values as people see them. */
  readonly shown: readonly { readonly id: string; readonly name: string }[];
}

/** Where the older form of each choice stands in the answer to opening a session. */
const OLDER_FORMS = {
  model: { member: 'models', list: 'availableModels', id: 'modelId', current: 'currentModelId' },
  mode: { member: 'modes', list: 'availableModes', id: 'id', current: 'currentModeId' },
} as const;

/** Reads the answer to opening or taking up a session; undefined when the agent offers no such choice. */
export function readChoice(answer: unknown, category: ChoiceKind): SessionChoice | undefined {
  const fields = asObject(answer);
  const option = objectsIn(fields.configOptions).find((one) => one.category === category && one.type === 'select');
  if (option !== undefined && typeof option.id === 'string') {
    return {
      way: { kind: 'option', configId: option.id },
      current: shownText(option.currentValue),
      ...valuesOf(objectsIn(option.options).flatMap(flatOption), 'value'),
    };
  }
  if (category === 'thought_level') return undefined;
  const { member, list, id, current } = OLDER_FORMS[category];
  const older = asObject(fields[member]);
  const offered = valuesOf(objectsIn(older[list]), id);
  if (offered.values.length === 0) return undefined;
  return { way: { kind: 'method' }, current: shownText(older[current]), ...offered };
}

/** What can be chosen in a session. Absent: the agent does not offer that choice. */
export interface SessionChoices {
  readonly models?: SessionChoice | undefined;
  readonly modes?: SessionChoice | undefined;
  readonly thinking?: SessionChoice | undefined;
}

export function readChoices(answer: unknown): SessionChoices {
  const models = readChoice(answer, 'model');
  const modes = readChoice(answer, 'mode');
  const thinking = readChoice(answer, 'thought_level');
  return { ...(models && { models }), ...(modes && { modes }), ...(thinking && { thinking }) };
}

/** Asks the agent to make a choice. */
export function setChoice(
  agent: ClientContext,
  sessionId: string,
  kind: ChoiceKind,
  way: SessionChoice['way'],
  value: string,
): Promise<unknown> {
  if (way.kind === 'option') {
    return agent.request('session/set_config_option', { sessionId, configId: way.configId, value });
  }
  return agent.request(`session/set_${kind}`, { sessionId, [`${kind}Id`]: value });
}

/** The agent's own name of a model: as it was asked for, or without the vendor in front if only one fits. */
export function findModel({ values }: SessionChoice, wanted: string): string | undefined {
  if (values.includes(wanted)) return wanted;
  const ending = values.filter((model) => model.endsWith(`/${wanted}`));
  return ending.length === 1 ? ending[0] : undefined;
}

/** Read-only as Codex calls it, plan as the others do; some write a URL in front of the name. */
const READ_ONLY_MODES = [/(?:^|[#/:])read[-_]?only$/i, /(?:^|[#/:])plan$/i];

/** The mode in which the agent changes nothing; undefined when it has none. */
export function findReadOnlyMode({ values }: SessionChoice): string | undefined {
  return READ_ONLY_MODES.flatMap((name) => values.find((mode) => name.test(mode)) ?? []).at(0);
}

/** Options come as a list, or as groups of lists. */
function flatOption(option: Fields): readonly Fields[] {
  return typeof option.value === 'string' ? [option] : objectsIn(option.options);
}

const MAX_SHOWN = 200;
const MAX_NAME = 200;

function valuesOf(entries: readonly Fields[], member: string): Pick<SessionChoice, 'values' | 'shown'> {
  const named = entries.flatMap(({ [member]: id, name }) => (typeof id === 'string' ? [{ id, name }] : []));
  const shown = named.slice(0, MAX_SHOWN).map(({ id, name }) => ({
    id: cutText(id, MAX_NAME),
    name: cutText(typeof name === 'string' && name !== '' ? name : id, MAX_NAME),
  }));
  return { values: named.map(({ id }) => id), shown };
}

/** The options of a request, as far as they can be read. */
export function readPermissionOptions(value: unknown): readonly PermissionOption[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((option: unknown) => {
    const { optionId, kind, name } = asObject(option);
    if (typeof optionId !== 'string' || typeof kind !== 'string') return [];
    // An id is sent back whole, or not offered.
    if (optionId.length > MAX_NAME || kind.length > MAX_NAME) return [];
    return [{ optionId, kind, name: typeof name === 'string' ? cutText(name, MAX_NAME) : kind }];
  });
}

/** What an agent does otherwise than its capabilities say. One row per agent, by the name that it gives itself. */
interface AcpQuirks {
  /** Whether another process really finds a conversation again. */
  readonly keepsConversations: boolean;
}

const ORDINARY: AcpQuirks = { keepsConversations: true };

const TABLE: Readonly<Record<string, AcpQuirks>> = {
  // It announces `loadSession`, but a later process does not find the session, and trying may cost the stored chat.
  'gemini-cli': { keepsConversations: false },
};

export function acpQuirks(agentName: string): AcpQuirks {
  return Object.hasOwn(TABLE, agentName) ? (TABLE[agentName] ?? ORDINARY) : ORDINARY;
}
