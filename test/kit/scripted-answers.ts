import { setTimeout as pause } from 'node:timers/promises';
import type {
  CallCosts,
  CompleteChat,
  CompletionChunk,
  CompletionDelta,
  CompletionRequest,
} from '../../src/bridge/agents/builtin/complete-chat.ts';

/** One answer of a model: pieces of text, tool calls, or an error in their midst. */
export interface ScriptedAnswer {
  readonly thinking?: string;
  readonly text?: readonly string[];
  readonly calls?: readonly { readonly name: string; readonly input: unknown; readonly id?: string }[];
  /** Pieces as they are, for what no decent model sends. */
  readonly deltas?: readonly CompletionDelta[];
  readonly finish?: string;
  /** Thrown after the rest. */
  readonly error?: Error;
  /** A moment passes between the pieces of text. */
  readonly slow?: boolean;
  /** After the rest nothing comes any more, whatever the signal says. */
  readonly hangs?: boolean;
  /** What the caller is charged; `unknown` where the model has no price. Absent: nobody counts costs. */
  readonly costNano?: number | 'unknown';
}

export interface ScriptedCompletions {
  readonly complete: CompleteChat;
  /** What was asked, as it was at that time. */
  readonly requests: CompletionRequest[];
}

/** A model that answers as it is told, in this process. */
export function createScriptedAnswers(
  answer: (request: CompletionRequest, index: number) => ScriptedAnswer,
): ScriptedCompletions {
  const requests: CompletionRequest[] = [];
  return {
    requests,
    complete(request, _signal, { costs }) {
      requests.push(structuredClone(request));
      return play(answer(request, requests.length - 1), costs);
    },
  };
}

async function* play(answer: ScriptedAnswer, costs: CallCosts | undefined): AsyncGenerator<CompletionChunk> {
  const { costNano } = answer;
  if (costNano !== undefined) costs?.begin();
  try {
    yield* pieces(answer);
  } finally {
    if (costNano !== undefined) costs?.end(costNano === 'unknown' ? undefined : costNano);
  }
}

async function* pieces(answer: ScriptedAnswer): AsyncGenerator<CompletionChunk> {
  const { thinking, text = [], calls = [], deltas = [] } = answer;
  if (thinking !== undefined) yield chunk({ reasoning_content: thinking });
  for (const piece of text) {
    if (answer.slow === true) await pause(1);
    yield chunk({ content: piece });
  }
  for (const [index, { name, input, id = `call_${index}` }] of calls.entries()) {
    const whole = typeof input === 'string' ? input : JSON.stringify(input);
    const half = Math.ceil(whole.length / 2);
    yield chunk({ tool_calls: [{ index, id, function: { name, arguments: whole.slice(0, half) } }] });
    yield chunk({ tool_calls: [{ index, function: { arguments: whole.slice(half) } }] });
  }
  for (const delta of deltas) yield chunk(delta);
  if (answer.error !== undefined) throw answer.error;
  if (answer.hangs === true) await new Promise(() => undefined);
  const finish = answer.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop');
  yield {
    choices: [{ delta: {}, finish_reason: finish }],
    usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
  };
}

function chunk(delta: CompletionDelta): CompletionChunk {
  return { choices: [{ delta, finish_reason: null }] };
}
