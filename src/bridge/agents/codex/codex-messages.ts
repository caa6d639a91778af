import type { FileChange, QuestionValues } from '../../contract/session-update.ts';
import { PLAIN_OPTIONS, type PromptEnd } from '../agent-connection.ts';
import type { AgentEvent, PermissionQuestion, TurnUsage } from '../agent-provider.ts';
import { asObject, objectsIn, shownText, textOf, tokenCount, withinBounds } from '../agent-text.ts';
import { changeOfDiff, changeOfTexts, readPlan, withinChangeBounds, withPaths } from '../file-changes.ts';
import { formQuestion, readForm, readQuestions } from '../question-form.ts';

interface Taken {
  readonly events: readonly AgentEvent[];
  /** Set by the notification that ends the turn. */
  readonly end?: PromptEnd;
}

/** Reads the notifications of one turn, in order. Those of kinds that have no place in the contract give nothing. */
export interface CodexReader {
  read(method: string, params: Fields): Taken;
  /** Something that Codex has begun to do, and not ended. */
  begun(itemId: unknown): ToolCall | undefined;
}

type Fields = Readonly<Record<string, unknown>>;
type Tokens = Readonly<Record<'inputTokens' | 'outputTokens' | 'totalTokens', number>>;

const NOTHING: Taken = { events: [] };

export function createCodexReader(): CodexReader {
  const items = createItemReader();
  let before: Tokens | undefined;
  let latest: Tokens | undefined;
  let cached = 0;
  let lastError = '';

  const readers: Readonly<Record<string, (params: Fields) => Taken>> = {
    'item/started': ({ item }) => ({ events: items.started(item) }),
    'item/completed': ({ item }) => ({ events: items.completed(item) }),
    'item/agentMessage/delta': ({ itemId, delta }) => ({ events: items.delta('text', itemId, delta) }),
    'item/reasoning/textDelta': ({ itemId, delta }) => ({ events: items.delta('thinking', itemId, delta) }),
    'item/reasoning/summaryTextDelta': ({ itemId, delta }) => ({ events: items.delta('thinking', itemId, delta) }),
    'item/commandExecution/outputDelta': ({ itemId, delta }) => ({ events: items.output(itemId, delta) }),
    'turn/plan/updated': ({ plan }) => ({ events: [{ kind: 'plan', entries: readPlan(plan) }] }),
    warning: ({ message }) => status(message),
    guardianWarning: ({ message }) => status(message),
    'model/rerouted': ({ fromModel, toModel }) =>
      status(`${shownText(toModel)} answers instead of ${shownText(fromModel)}`),
    'thread/tokenUsage/updated': ({ tokenUsage }) => takeUsage(tokenUsage),
    error: takeError,
    'turn/completed': takeEnd,
  };

  function takeUsage(value: unknown): Taken {
    const { total, last, modelContextWindow } = asObject(value);
    const contextSize = tokenCount(modelContextWindow);
    latest = readTokens(total);
    const ofLast = readTokens(last);
    // Totals count from the thread's start: what stood there before the first model call of this turn is not its own.
    before ??= minus(latest, ofLast);
    cached += count(asObject(last).cachedInputTokens);
    const { inputTokens, outputTokens } = minus(latest, before);
    const tokens = { inputTokens, outputTokens, cachedTokens: cached, contextUsed: ofLast.totalTokens };
    return { events: [{ kind: 'usage', ...tokens, ...(contextSize !== undefined && { contextSize }) }] };
  }

  /** Codex retries by itself when it announces that; otherwise the turn ends with the error. */
  function takeError({ error, willRetry }: Fields): Taken {
    const { message } = asObject(error);
    lastError = typeof message === 'string' ? message : '';
    return willRetry === true ? status(lastError) : NOTHING;
  }

  function takeEnd({ turn }: Fields): Taken {
    const { status: outcome, error } = asObject(turn);
    const usage = turnUsage();
    const used = usage === undefined ? {} : { usage };
    if (outcome === 'completed') {
      const output = items.lastMessage();
      const said = output === undefined ? {} : { output };
      return { events: [], end: { kind: 'completed', stopReason: 'end_turn', ...said, ...used } };
    }
    if (outcome === 'interrupted') return { events: [], end: { kind: 'cancelled', ...used } };
    const { message } = asObject(error);
    const words = typeof message === 'string' ? message : lastError;
    return { events: [], end: { kind: 'failed', error: words === '' ? 'the turn failed' : words, ...used } };
  }

  function turnUsage(): TurnUsage | undefined {
    return latest === undefined || before === undefined ? undefined : minus(latest, before);
  }

  return {
    read: (method, params) => (Object.hasOwn(readers, method) ? (readers[method]?.(params) ?? NOTHING) : NOTHING),
    begun: items.begun,
  };
}

function status(text: unknown): Taken {
  return typeof text === 'string' && text !== '' ? { events: [{ kind: 'status', text }] } : NOTHING;
}

function readTokens(value: unknown): Tokens {
  const { inputTokens, outputTokens, totalTokens } = asObject(value);
  return { inputTokens: count(inputTokens), outputTokens: count(outputTokens), totalTokens: count(totalTokens) };
}

function minus(one: Tokens, other: Tokens): Tokens {
  return {
    inputTokens: Math.max(0, one.inputTokens - other.inputTokens),
    outputTokens: Math.max(0, one.outputTokens - other.outputTokens),
    totalTokens: Math.max(0, one.totalTokens - other.totalTokens),
  };
}

function count(value: unknown): number {
  return tokenCount(value) ?? 0;
}

type ToolCall = Extract<AgentEvent, { kind: 'tool_call' }>;
type Described = Pick<
  ToolCall,
  'title' | 'toolKind' | 'input' | 'output' | 'locations' | 'changes' | 'exitCode' | 'durationMs'
>;

/** Reads the items of a turn: messages, thoughts, and what Codex does. */
interface ItemReader {
  started(item: unknown): readonly AgentEvent[];
  completed(item: unknown): readonly AgentEvent[];
  delta(kind: 'text' | 'thinking', itemId: unknown, delta: unknown): readonly AgentEvent[];
  /** What a running command printed. */
  output(itemId: unknown, delta: unknown): readonly AgentEvent[];
  begun(itemId: unknown): ToolCall | undefined;
  /** The last message of Codex that was completed: its final one, if the turn is over. */
  lastMessage(): string | undefined;
}

const MAX_OUTPUT = 65_536;

/** The items that are something done, each with how it is shown. All others are left out. */
const DEEDS: Readonly<Record<string, (item: Fields) => Described>> = {
  commandExecution: ({ command, cwd, aggregatedOutput, exitCode, durationMs }) => ({
    title: shownText(command),
    toolKind: 'execute',
    input: { command, cwd },
    ...given('output', aggregatedOutput),
    ...(typeof exitCode === 'number' && { exitCode }),
    ...(typeof durationMs === 'number' && { durationMs }),
  }),
  fileChange: ({ changes }) => {
    const paths = objectsIn(changes).flatMap(pathsOfChange);
    const locations = paths.map((path) => ({ path }));
    const told = objectsIn(changes).map(readChange);
    const shown = { input: withinBounds(changes), locations, changes: withinChangeBounds(told) };
    return { title: `edit ${paths.join(', ')}`, toolKind: 'edit', ...shown };
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

/** A file that is moved has two. */
function pathsOfChange({ path, kind }: Fields): readonly string[] {
  const { movePath, move_path: to = movePath } = asObject(kind);
  return typeof to === 'string' ? [shownText(path), to] : [shownText(path)];
}

/** The diff of a file that is new, or gone, is its text. */
function readChange({ path, kind, diff }: Fields): FileChange {
  const { type } = asObject(kind);
  const [name, text] = [shownText(path), shownText(diff)];
  if (type === 'add') return changeOfTexts(name, undefined, text);
  return type === 'delete' ? changeOfTexts(name, text, '') : changeOfDiff(name, text);
}

const STATUS: Readonly<Record<string, ToolCall['status']>> = {
  inProgress: 'in_progress',
  completed: 'completed',
  failed: 'failed',
  declined: 'failed',
};

function createItemReader(): ItemReader {
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
      if (entry === undefined || typeof delta !== 'string' || entry.printed.length >= MAX_OUTPUT) return [];
      entry.printed = (entry.printed + delta).slice(0, MAX_OUTPUT);
      return [{ ...entry.call, output: entry.printed }];
    },
    begun: (itemId) => running.get(shownText(itemId))?.call,
    lastMessage: () => lastMessage,
  };
}

function wordsOf(kind: 'text' | 'thinking' | 'status', text: unknown): readonly AgentEvent[] {
  return typeof text === 'string' && text !== '' ? [{ kind, text }] : [];
}

function given<Name extends string>(name: Name, value: unknown): { readonly [Key in Name]?: unknown } {
  return value === null || value === undefined ? {} : ({ [name]: value } as { readonly [Key in Name]?: unknown });
}

/** A request of Codex as a question, with the responses that Codex takes. */
interface CodexRequest {
  readonly question: PermissionQuestion;
  readonly decline: unknown;
  /** `values`: of a question with a form. */
  accept(values: QuestionValues): unknown;
}

const ACCEPT = { accept: () => ({ decision: 'accept' }), decline: { decision: 'decline' } };

const REQUESTS: Readonly<Record<string, (params: Fields, item: ToolCall | undefined) => CodexRequest>> = {
  'item/commandExecution/requestApproval': (params, item) => ({
    question: approval({ ...asObject(item?.input), ...withoutNulls(params) }, 'execute', [
      params.command,
      item?.title,
      params.reason,
    ]),
    ...ACCEPT,
  }),
  // Which files they are stands in the item alone.
  'item/fileChange/requestApproval': (params, item) => ({
    question: approval(
      withPaths(
        params,
        (item?.locations ?? []).map(({ path }) => path),
      ),
      'edit',
      [params.reason, item?.title, 'change files'],
    ),
    ...ACCEPT,
  }),
  'item/permissions/requestApproval': (params) => ({
    question: approval(withPaths(params, pathsGranted(params)), 'other', [params.reason, 'further permissions']),
    accept: () => ({ permissions: withoutNulls(params.permissions), scope: 'turn' }),
    decline: { permissions: {}, scope: 'turn' },
  }),
  // A server of the Model Context Protocol asks, through Codex.
  'mcpServer/elicitation/request'({ message, mode, requestedSchema }) {
    // A page to open, and the forms of extensions, cannot be shown.
    const form = mode === 'form' ? readForm(requestedSchema) : undefined;
    return {
      question: formQuestion('', textOf(message), form),
      accept: (content) => ({ action: 'accept', content, _meta: null }),
      decline: { action: 'decline', content: null, _meta: null },
    };
  },
  'item/tool/requestUserInput'({ itemId, questions }) {
    const form = readQuestions(questions);
    const title = form?.fields.map(({ description, title: short }) => description || short).join(' ') ?? '';
    return {
      question: formQuestion(textOf(itemId), title, form),
      accept: (values) => ({
        answers: Object.fromEntries(
          Object.entries(values).map(([id, value]) => [id, { answers: [value].flat().map(String) }]),
        ),
      }),
      decline: { answers: {} },
    };
  },
};

/** Reads a request of Codex; undefined when Codex asks for something else. `item`: what it asks about, if it has begun. */
export function readRequest(method: string, params: Fields, item?: ToolCall): CodexRequest | undefined {
  return Object.hasOwn(REQUESTS, method) ? REQUESTS[method]?.(params, item) : undefined;
}

function approval(input: unknown, toolKind: string, titles: readonly unknown[]): PermissionQuestion {
  const title = titles.map(textOf).find((one) => one !== '') ?? 'a command';
  return { toolCallId: textOf(asObject(input).itemId), title, toolKind, input, options: PLAIN_OPTIONS };
}

/** The files and folders that Codex wants to use from now on: in two lists, or as entries of several kinds, by its version. */
function pathsGranted({ permissions }: Fields): readonly string[] {
  return textsIn(asObject(permissions).fileSystem).filter((text) => text.includes('/'));
}

const MAX_DEPTH = 6;

function textsIn(value: unknown, depth = 0): readonly string[] {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return [];
  return Object.values(value).flatMap((each) => textsIn(each, depth + 1));
}

/** What is asked for has null where nothing is asked; what is granted leaves it out. */
function withoutNulls(permissions: unknown): object {
  return Object.fromEntries(Object.entries(asObject(permissions)).filter(([, value]) => value !== null));
}
