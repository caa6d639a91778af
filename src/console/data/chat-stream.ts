import { createParser } from 'eventsource-parser';
import type { ChatRequest } from './chat-code.ts';
import { type Call, listCalls } from './completions.ts';
import { openStream, Problem } from './request.ts';

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
}

/** One event of a stream: what the console reads of it. */
interface ChatChunk {
  readonly choices?: readonly {
    readonly delta: {
      readonly content?: string | null;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly { readonly function?: { readonly name?: string; readonly arguments?: string } }[];
    };
    readonly finish_reason: string | null;
  }[];
  readonly usage?: Usage | null;
}

/** What is known of the answer of a model so far. */
export interface ChatAnswer {
  readonly text: string;
  readonly thinking: string;
  /** Calls of tools, which nobody runs here: shown as they came. */
  readonly tools: string;
  readonly firstMs: number | undefined;
  readonly totalMs: number | undefined;
  readonly usage: Usage | undefined;
  readonly finish: string;
  readonly requestId: string;
  readonly servedBy: string;
  readonly attempts: string;
  /** Whether the server gave an answer that it had kept. */
  readonly isCached: boolean;
}

export const NO_ANSWER: ChatAnswer = {
  text: '',
  thinking: '',
  tools: '',
  firstMs: undefined,
  totalMs: undefined,
  usage: undefined,
  finish: '',
  requestId: '',
  servedBy: '',
  attempts: '',
  isCached: false,
};

/** The server itself gives up on a model before this. */
const SILENCE_MS = 600_000;
const MAX_CHARACTERS = 4_000_000;
const COST_TRIES = 6;
const COST_PAUSE_MS = 500;

/** Asks a model and reports the answer as it grows. Throws a `Problem`, or what the signal throws. */
export async function streamChat(
  request: ChatRequest,
  signal: AbortSignal,
  onChange: (answer: ChatAnswer) => void,
): Promise<void> {
  const startedAt = performance.now();
  const elapsed = () => Math.round(performance.now() - startedAt);
  const silence = new AbortController();
  const ends = AbortSignal.any([signal, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  let answer = NO_ANSWER;
  let problem: Problem | undefined;
  const parser = createParser({
    maxBufferSize: MAX_CHARACTERS,
    onEvent({ data }) {
      if (data === '[DONE]') return;
      const event = JSON.parse(data) as ChatChunk & { readonly error?: { code?: string; message?: string } };
      if (event.error !== undefined) {
        const { code = 'stream_error', message = 'The stream has failed.' } = event.error;
        problem = new Problem(message, { code, requestId: answer.requestId });
      } else {
        answer = withChunk(answer, event, elapsed());
      }
    },
  });
  try {
    const body = { ...request, stream: true, stream_options: { include_usage: true } };
    const response = await openStream('/v1/chat/completions', body, ends);
    const header = (name: string) => response.headers.get(name) ?? '';
    answer = {
      ...answer,
      requestId: header('x-request-id'),
      servedBy: [header('x-model-api'), header('x-model-id')].filter(Boolean).join('/'),
      attempts: header('x-attempts'),
      isCached: header('x-cache') === 'hit',
    };
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const piece = await reader?.read();
      clearTimeout(timer);
      if (piece === undefined || piece.done) break;
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      parser.feed(piece.value);
      if (answer.text.length > MAX_CHARACTERS) throw new Problem('The answer is too long to be shown.');
      onChange(answer);
      if (problem !== undefined) throw problem;
    }
    onChange({ ...answer, totalMs: elapsed() });
  } catch (error) {
    onChange({ ...answer, totalMs: elapsed() });
    if (error instanceof Problem || signal.aborted) throw error;
    throw new Problem('The connection was lost before the answer was complete.', { code: 'connection_lost' });
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

function withChunk(answer: ChatAnswer, { choices = [], usage }: ChatChunk, atMs: number): ChatAnswer {
  const [choice] = choices;
  const { content, reasoning_content: thinking, tool_calls: calls } = choice?.delta ?? {};
  const tools = (calls ?? []).map(({ function: called }) => `${called?.name ?? ''}${called?.arguments ?? ''}`).join('');
  const isFirst = answer.firstMs === undefined && (content || thinking || tools);
  return {
    ...answer,
    text: answer.text + (content ?? ''),
    thinking: answer.thinking + (thinking ?? ''),
    tools: answer.tools + tools,
    firstMs: isFirst ? atMs : answer.firstMs,
    finish: choice?.finish_reason ?? answer.finish,
    usage: usage ?? answer.usage,
  };
}

/** Finds the record of a call, which is there a moment after the answer has ended. Undefined: it did not come. */
export async function findCall(requestId: string): Promise<Call | undefined> {
  for (let tries = 0; tries < COST_TRIES; tries += 1) {
    const [found] = (await listCalls({ request_id: requestId, limit: 1 })).data;
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, COST_PAUSE_MS));
  }
  return undefined;
}
