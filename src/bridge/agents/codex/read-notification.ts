import type { PromptEnd } from '../agent-connection.ts';
import type { AgentEvent, TurnUsage } from '../agent-provider.ts';
import { asObject, shownText } from '../loose-json.ts';
import { createItemReader } from './read-item.ts';

export interface Taken {
  readonly events: readonly AgentEvent[];
  /** Set by the notification that ends the turn. */
  readonly end?: PromptEnd;
}

/** Reads the notifications of one turn, in order. Those of kinds that have no place in the contract give nothing. */
export interface CodexReader {
  read(method: string, params: Fields): Taken;
}

type Fields = Readonly<Record<string, unknown>>;
type Tokens = Readonly<Record<'inputTokens' | 'outputTokens' | 'totalTokens', number>>;

const NOTHING: Taken = { events: [] };

export function createCodexReader(): CodexReader {
  const items = createItemReader();
  let before: Tokens | undefined;
  let latest: Tokens | undefined;
  let lastError = '';

  const readers: Readonly<Record<string, (params: Fields) => Taken>> = {
    'item/started': ({ item }) => ({ events: items.started(item) }),
    'item/completed': ({ item }) => ({ events: items.completed(item) }),
    'item/agentMessage/delta': ({ itemId, delta }) => ({ events: items.delta('text', itemId, delta) }),
    'item/reasoning/textDelta': ({ itemId, delta }) => ({ events: items.delta('thinking', itemId, delta) }),
    'item/reasoning/summaryTextDelta': ({ itemId, delta }) => ({ events: items.delta('thinking', itemId, delta) }),
    'item/commandExecution/outputDelta': ({ itemId, delta }) => ({ events: items.output(itemId, delta) }),
    'turn/plan/updated': ({ plan }) => status(planText(plan)),
    warning: ({ message }) => status(message),
    guardianWarning: ({ message }) => status(message),
    'model/rerouted': ({ fromModel, toModel }) =>
      status(`${shownText(toModel)} answers instead of ${shownText(fromModel)}`),
    'thread/tokenUsage/updated': ({ tokenUsage }) => takeUsage(tokenUsage),
    error: takeError,
    'turn/completed': takeEnd,
  };

  function takeUsage(value: unknown): Taken {
    const { total, last } = asObject(value);
    latest = readTokens(total);
    // Totals count from the thread's start: what stood there before the first model call of this turn is not its own.
    before ??= minus(latest, readTokens(last));
    return NOTHING;
  }

  /** Codex tries again by itself where it says so; otherwise the turn ends with the error. */
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
  };
}

function status(text: unknown): Taken {
  return typeof text === 'string' && text !== '' ? { events: [{ kind: 'status', text }] } : NOTHING;
}

function planText(plan: unknown): string {
  if (!Array.isArray(plan)) return '';
  const lines = plan.map((entry: unknown) => {
    const { step, status: state } = asObject(entry);
    return `- [${state === 'completed' ? 'x' : ' '}] ${shownText(step)}`;
  });
  return lines.join('\n');
}

function readTokens(value: unknown): Tokens {
  const { inputTokens, outputTokens, totalTokens } = asObject(value);
  return { inputTokens: count(inputTokens), outputTokens: count(outputTokens), totalTokens: count(totalTokens) };
}

function minus(one: Tokens, other: Tokens): Tokens {
  return {
    inputTokens: one.inputTokens - other.inputTokens,
    outputTokens: one.outputTokens - other.outputTokens,
    totalTokens: one.totalTokens - other.totalTokens,
  };
}

function count(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}
