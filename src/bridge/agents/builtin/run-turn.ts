import { withinTime } from '../../../platform/clock/clock.ts';
import { errorCode } from '../../../platform/errors/app-error.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { AgentEvent, AgentTurn, SupervisedTurn, TurnEnd, TurnUsage } from '../agent-provider.ts';
import { type AskingOptions, createAskAgentTool, createRequests } from './ask-agent.ts';
import type {
  CallCosts,
  CompleteChat,
  CompletionChunk,
  CompletionUsage,
  ConversationMessage,
  RequestedToolCall,
} from './complete-chat.ts';
import { fitConversation, needsSummary, resultOf, type StoredMessage, summarise, withImages } from './conversation.ts';
import { emptyAnswer, readAnswer, toMessage } from './read-answer.ts';
import { runToolCall } from './run-tool-call.ts';
import { type FolderInstructions, systemPrompt } from './system-prompt.ts';
import type { Confine } from './tools/confinement.ts';
import type { CommandLimits, ConversationCommands, Tool, ToolContext, WebAccess } from './tools/tool.ts';

interface TurnOptions {
  readonly turn: SupervisedTurn;
  readonly model: string;
  readonly signal: AbortSignal;
  readonly complete: CompleteChat;
  readonly permissions: 'allow' | 'deny';
  /** Requests to the model in one turn. */
  readonly maxRequests: number;
  /** Of the conversation, as far as it is sent to the model. */
  readonly contextCharacters: number;
  readonly confine: Confine;
  readonly commands: CommandLimits;
  readonly background: ConversationCommands;
  readonly web?: WebAccess | undefined;
  /** What the folder gives to the model: its rules files and its skills. */
  readonly instructions: FolderInstructions;
  /** Whether the model takes images. */
  readonly seesImages: boolean;
  /** All that the model may ask for. */
  readonly tools: readonly Tool[];
  readonly makeId: MakeId;
  /** How other agents are asked. Undefined: there are none. */
  readonly asking?: Pick<AskingOptions, 'agents' | 'clock' | 'keep'> | undefined;
  /** The conversation so far, the prompt of this turn included. */
  readonly messages: readonly ConversationMessage[];
  /** Stores messages that were added; resolves when they are kept. */
  append(messages: readonly StoredMessage[]): Promise<void>;
  /** What a failure is called outside. Throws it again when it is a fault of ours. */
  describe(error: unknown): string;
}

const STOP_REASONS: ReadonlyMap<string, string> = new Map([
  ['length', 'max_tokens'],
  ['content_filter', 'refusal'],
]);
const NOT_RUN = 'Not run: this turn has used up its requests to the model. Ask for it again in the next turn.';

/** Tool calls that run at the same time. */
const MAX_AT_ONCE = 8;

/** A call that was stopped is charged shortly after; a turn waits this long for it. */
const LAST_COST_MS = 250;

/** Messages to a running turn that the model has not seen yet. */
const MAX_WAITING_MESSAGES = 32;

/** One turn: the model is asked, what it asks for is done, and so on until it has nothing more to ask for. */
export async function runTurn(given: TurnOptions): Promise<TurnEnd> {
  const { signal, makeId, maxRequests, turn, model } = given;
  const usage = createUsageSum();
  const requests = turn.requests ?? createRequests(maxRequests);
  const asking = turn.requests === undefined ? given.asking : undefined;
  const askTools =
    asking === undefined
      ? []
      : [createAskAgentTool({ ...asking, turn, agent: 'builtin', model, requests, used: usage.addTurn })];
  const { owner, member, trace } = turn;
  const caller = { owner, member, trace, costs: usage.costs };
  const complete: CompleteChat = (request, stop) => given.complete(request, stop, caller);
  const options: TurnOptions = { ...given, complete, tools: [...given.tools, ...askTools] };
  const speech = createSpeech(options.turn);
  let messages = options.messages;
  let answer = emptyAnswer();
  /** The last thing that was said. */
  let output = '';
  let mayCompact = true;
  const further = createInbox();
  options.turn.steerable?.(further.steer);

  async function used(): Promise<ReturnType<UsageSum['total']>> {
    await withinTime(options.commands.clock, LAST_COST_MS, usage.charged(), () => undefined);
    return usage.total();
  }

  async function keep(...added: readonly ConversationMessage[]): Promise<void> {
    if (added.length === 0) return;
    await options.append(added);
    messages = [...messages, ...added];
  }

  /** Replaces a long conversation by a summary. Where the model gives none, the oldest parts are left out as before. */
  async function compact(): Promise<void> {
    const { contextCharacters, turn } = options;
    if (!mayCompact || !needsSummary(messages, contextCharacters)) return;
    const complete = (sent: ConversationMessage[]) => untilAborted(requestAnswer(options, sent, []), signal);
    const compacted = await summarise(messages, { complete, contextCharacters, signal });
    usage.add(compacted?.answer.usage);
    if (compacted === undefined) {
      mayCompact = false;
      return;
    }
    await options.append([compacted.row]);
    messages = compacted.messages;
    const { length } = compacted.row.content;
    void turn.report({
      kind: 'status',
      text: `The earlier conversation was replaced by a summary of ${length} characters.`,
    });
  }

  async function askModel(): Promise<void> {
    signal.throwIfAborted();
    await compact();
    messages = fitConversation(messages, options.contextCharacters);
    answer = emptyAnswer();
    speech.beginAnswer();
    try {
      const { confine, turn, seesImages: isShown } = options;
      const sent = await withImages(messages, { confine, folder: turn.fileFolder, isShown });
      await readAnswer(untilAborted(startAnswer(options, sent), signal), answer, speech.report);
    } finally {
      usage.add(answer.usage);
      output = answer.text + answer.refusal || output;
    }
  }

  /** What only reads is done at the same time, the rest in its order. Results are kept in the order of the calls. */
  async function runCalls(calls: readonly RequestedToolCall[]): Promise<void> {
    const { permissions, tools, turn } = options;
    const { report } = speech;
    const { permit, deniedPaths } = turn;
    const context = toolContext(options);
    await turn.ready;
    for (const batch of batchesOf(calls, tools)) {
      signal.throwIfAborted();
      const running = batch.map((call) =>
        runToolCall({ call, eventId: makeId('tool-'), permissions, context, tools, report, permit, deniedPaths }),
      );
      // Nothing may still run when the turn ends, so all have ended before one of them fails the turn.
      await Promise.allSettled(running);
      const texts = await Promise.all(running);
      await keep(...batch.map(({ id }, index) => resultOf(id, texts[index] ?? '')));
    }
  }

  async function usedUp(): Promise<TurnEnd> {
    await keep(...further.close());
    output ||= speech.say(`I stopped after ${maxRequests} requests to the model, before the work was done.`);
    return { kind: 'completed', output, stopReason: 'max_turn_requests', ...(await used()) };
  }

  try {
    for (;;) {
      if (!requests.take()) return await usedUp();
      await askModel();
      const message = toMessage(answer, makeId);
      const calls = message?.tool_calls ?? [];
      const isLast = requests.left() === 0;
      // Answers the tool calls that will not run, so that the next turn finds a complete conversation.
      if (message !== undefined) await keep(message, ...(isLast ? calls.map(({ id }) => resultOf(id, NOT_RUN)) : []));
      const stopReason = STOP_REASONS.get(answer.finishReason) ?? 'end_turn';
      answer = emptyAnswer();
      if (calls.length === 0 && (isLast || further.isEmpty())) {
        await keep(...further.close());
        return { kind: 'completed', output, stopReason, ...(await used()) };
      }
      if (isLast) return await usedUp();
      await runCalls(calls);
      await keep(...further.take());
    }
  } catch (error) {
    // What was said stays said; calls that were not complete are forgotten.
    const said = toMessage({ ...answer, toolCalls: [] }, makeId);
    if (said !== undefined) await keep(said).catch(() => undefined);
    await keep(...further.close()).catch(() => undefined);
    if (signal.aborted) return { kind: 'cancelled', output, ...(await used()) };
    const known = errorCode(error);
    const code = known === 'BUDGET_EXCEEDED' || known === 'PERSON_NOT_CHARGED' ? known : 'AGENT_FAILED';
    return { kind: 'failed', code, error: options.describe(error), output, ...(await used()) };
  }
}

/** Neighbours that may run at the same time, such as those that only read, make a batch; every other call is one by itself. */
function batchesOf(calls: readonly RequestedToolCall[], tools: readonly Tool[]): readonly RequestedToolCall[][] {
  const parallel = new Set(
    tools.flatMap(({ name, needsPermission, isParallel = !needsPermission }) => (isParallel ? [name] : [])),
  );
  const batches: RequestedToolCall[][] = [];
  let isOpen = false;
  for (const call of calls) {
    const isParallel = parallel.has(call.function.name);
    const last = batches.at(-1);
    if (isParallel && isOpen && last !== undefined && last.length < MAX_AT_ONCE) last.push(call);
    else batches.push([call]);
    isOpen = isParallel;
  }
  return batches;
}

function startAnswer(options: TurnOptions, messages: readonly ConversationMessage[]): AsyncIterable<CompletionChunk> {
  const { turn, permissions, tools, instructions } = options;
  const { workingDirectory } = turn;
  const system = { role: 'system' as const, content: systemPrompt({ workingDirectory, permissions, ...instructions }) };
  // What would be refused is not offered.
  const offered = tools.filter(({ needsPermission }) => permissions === 'allow' || !needsPermission);
  return requestAnswer(options, [system, ...messages], offered);
}

function requestAnswer(
  { complete, model, turn, signal }: TurnOptions,
  messages: ConversationMessage[],
  tools: readonly Tool[],
): AsyncIterable<CompletionChunk> {
  const offered = tools.map(({ name, description, parameters, shownParameters = parameters }) => ({
    type: 'function' as const,
    function: { name, description, parameters: shownParameters },
  }));
  const request = {
    model,
    messages,
    ...(offered.length > 0 && { tools: offered }),
    ...(turn.thinking !== undefined && { reasoning_effort: turn.thinking }),
  };
  return complete({ ...request, stream: true, stream_options: { include_usage: true } }, signal, turn);
}

function toolContext({ turn, signal, makeId, commands, background, web, confine }: TurnOptions): ToolContext {
  return {
    root: confine(turn.workingDirectory),
    ...(turn.fileFolder !== undefined && { files: confine(turn.fileFolder) }),
    signal,
    commands,
    background,
    web,
    makeTemporaryName: () => makeId('.trestle-'),
  };
}

/** What is said to a turn while it runs. The model sees it with its next request; what comes too late stays in the conversation. */
function createInbox() {
  const waiting: string[] = [];
  let isOpen = true;
  const take = (): ConversationMessage[] => waiting.splice(0).map((content) => ({ role: 'user', content }));
  return {
    async steer(text: string): Promise<boolean> {
      const isTaken = isOpen && waiting.length < MAX_WAITING_MESSAGES;
      if (isTaken) waiting.push(text);
      return isTaken;
    },
    isEmpty: () => waiting.length === 0,
    take,
    close(): ConversationMessage[] {
      isOpen = false;
      return take();
    },
  };
}

/** Reports text. Each answer of the model that has text begins a new paragraph. */
function createSpeech(turn: AgentTurn) {
  let last = '';
  let isNewAnswer = false;
  function report(event: AgentEvent): Promise<void> | undefined {
    if (event.kind === 'text') {
      if (isNewAnswer && last !== '' && !last.endsWith('\n')) turn.report({ kind: 'text', text: '\n\n' });
      isNewAnswer = false;
      last = event.text;
    }
    return turn.report(event);
  }
  return {
    report,
    beginAnswer() {
      isNewAnswer = true;
    },
    say(text: string): string {
      isNewAnswer = true;
      void report({ kind: 'text', text });
      return text;
    },
  };
}

/** Yields the same items until the signal aborts; then throws immediately, even while the source is silent, and ends the source. */
async function* untilAborted<Item>(source: AsyncIterable<Item>, signal: AbortSignal): AsyncGenerator<Item> {
  const iterator = source[Symbol.asyncIterator]();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  aborted.catch(() => undefined);
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener('abort', onAbort);
  let isOver = false;
  try {
    signal.throwIfAborted();
    for (;;) {
      const next = iterator.next();
      // Ignores a failure of the source after the iteration has ended.
      next.catch(() => undefined);
      const step = await Promise.race([next, aborted]);
      if (step.done === true) {
        isOver = true;
        return;
      }
      yield step.value;
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
    // Not waited for: a source that hangs would hold us too.
    if (!isOver) void Promise.resolve(iterator.return?.()).catch(() => undefined);
  }
}

interface UsageSum {
  /** Gets what each call of the model cost. */
  readonly costs: CallCosts;
  /** Resolves when no call is under way. */
  charged(): Promise<void>;
  add(usage: CompletionUsage | undefined): void;
  /** Of an agent that was asked. */
  addTurn(usage: TurnUsage | undefined): void;
  /** To be spread into the end of a turn; empty while no model has reported usage. */
  total(): { readonly usage?: TurnUsage };
}

const NANO_PER_USD = 1e9;

/** Adds up what all requests of a turn used. The cost is there only where that of each of them is known: a part of it would mislead. */
function createUsageSum(): UsageSum {
  let isKnown = false;
  const tokens = { inputTokens: 0, outputTokens: 0, totalTokens: 0 };
  const cost = { nano: 0, calls: 0, underWay: 0, isUnknown: false };
  const idle = new Set<() => void>();
  function addTokens({ inputTokens = 0, outputTokens = 0, totalTokens }: TurnUsage): void {
    isKnown = true;
    tokens.inputTokens += inputTokens;
    tokens.outputTokens += outputTokens;
    tokens.totalTokens += totalTokens ?? inputTokens + outputTokens;
  }
  function addCost(nano: number | undefined): void {
    if (nano === undefined) cost.isUnknown = true;
    else cost.nano += nano;
  }
  return {
    costs: {
      begin() {
        cost.calls += 1;
        cost.underWay += 1;
      },
      end(nano) {
        cost.underWay -= 1;
        addCost(nano);
        if (cost.underWay === 0) for (const resolve of idle) resolve();
      },
    },
    async charged() {
      if (cost.underWay > 0) await new Promise<void>((resolve) => idle.add(resolve));
    },
    add(usage) {
      if (usage === undefined) return;
      const { prompt_tokens, completion_tokens, total_tokens } = usage;
      addTokens({ inputTokens: prompt_tokens, outputTokens: completion_tokens, totalTokens: total_tokens });
    },
    addTurn(usage) {
      addCost(usage?.costUsd === undefined ? undefined : usage.costUsd * NANO_PER_USD);
      if (usage !== undefined) addTokens(usage);
    },
    total() {
      const hasCost = cost.calls > 0 && cost.underWay === 0 && !cost.isUnknown;
      if (!isKnown && !hasCost) return {};
      return { usage: { ...tokens, ...(hasCost && { costUsd: cost.nano / NANO_PER_USD }) } };
    },
  };
}
