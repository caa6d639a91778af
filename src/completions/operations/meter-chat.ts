import type { Clock } from '../../platform/clock/clock.ts';
import { costOf, isFree, type PriceOf } from '../apis/prices.ts';
import type { ChatRequest, Usage } from '../contract/chat.ts';
import { statusOf } from '../errors.ts';
import type { Admissions, KeyHolder } from '../keys/admission.ts';
import {
  estimatedUsage,
  estimatePromptTokens,
  expectedAnswerTokens,
  tokensOfCharacters,
} from '../relay/token-usage.ts';
import { type CallEnd, CallerPresence, createCallRecord, type MeasuredUsage } from '../routing/call-record.ts';
import { notAllowed } from './chat-pipeline.ts';

/** A chat that another part of this program sends to an API of its own, for someone whose limits are kept here. */
export interface OutsideChat {
  readonly holder: KeyHolder;
  readonly requestId: string;
  /** The name of the API: the call is recorded, priced and allowed as `<api>/<model>`. */
  readonly api: string;
  readonly request: ChatRequest;
  readonly signal: AbortSignal;
}

/** What is read of a chunk. */
interface MeteredChunk {
  readonly choices: readonly { readonly delta: object }[];
  readonly usage?: Usage | null;
}

/**
 * Lets such a chat in by the limits and budgets of its holder, passes the answer on, and settles what it has cost, as for
 * calls of our own. Throws what the pipeline throws for a call that is not let in. `answer` is called once it is.
 */
export type MeterChat = <Chunk extends MeteredChunk>(
  chat: OutsideChat,
  answer: (signal: AbortSignal) => AsyncIterable<Chunk>,
) => AsyncIterable<Chunk>;

interface MeterChatOptions {
  readonly admissions: Admissions;
  readonly priceOf: PriceOf;
  readonly clock: Pick<Clock, 'monotonic'>;
}

export function createMeterChat({ admissions, priceOf, clock }: MeterChatOptions): MeterChat {
  return async function* meterChat({ holder, requestId, api, request, signal }, answer) {
    const model = `${api}/${request.model}`;
    if (!holder.mayUse(model)) throw notAllowed(model);
    const price = priceOf(api, request.model);
    const prompt = estimatePromptTokens(request);
    const expected = expectedAnswerTokens(request);
    const presence = new CallerPresence();
    const admission = admissions.admit(holder, {
      estimatedTokens: prompt + expected,
      estimatedCostNano: costOf(price, { prompt, completion: expected }),
      mayCost: !isFree(price),
      call: presence,
    });
    const record = createCallRecord({ admission, model, requestId, operation: 'chat', clock });
    record.attempts = 1;
    record.target = { apiId: api, model: request.model };
    const ended = new AbortController();
    presence.watch(() => ended.abort());
    let characters = 0;
    let usage: Usage | undefined;
    let end: CallEnd = { outcome: 'aborted', status: 499 };
    try {
      for await (const chunk of answer(AbortSignal.any([signal, ended.signal]))) {
        record.firstToken();
        for (const { delta } of chunk.choices) characters += charactersIn(delta);
        usage = chunk.usage ?? usage;
        yield chunk;
      }
      end = { outcome: 'ok', status: 200 };
    } catch (error) {
      const failure = presence.reason ?? error;
      if (!signal.aborted) end = { outcome: characters > 0 ? 'partial' : 'error', status: statusOf(failure) };
      throw failure;
    } finally {
      record.settle({ ...end, measured: measure(usage, prompt, characters) });
    }
  };
}

/** An answer that broke off has no figures, although it has cost something. */
function measure(usage: Usage | undefined, prompt: number, characters: number): MeasuredUsage | undefined {
  if (usage !== undefined) return { usage, estimated: false };
  if (characters === 0) return undefined;
  return { usage: estimatedUsage(prompt, tokensOfCharacters(characters)), estimated: true };
}

/** All texts of a delta: what is said, thought, and asked of tools. */
function charactersIn(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, member) => sum + charactersIn(member), 0);
}
