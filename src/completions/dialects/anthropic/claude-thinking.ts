import type { JsonObject } from '../json-value.ts';
import type { ClaudeModel } from './claude-model.ts';

const SMALLEST_BUDGET = 1024;

const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['minimal', SMALLEST_BUDGET],
  ['low', 2048],
  ['medium', 8192],
  ['high', 16_384],
  ['xhigh', 32_768],
  ['max', 32_768],
]);

const EFFORTS: ReadonlyMap<string, string> = new Map([
  ['none', 'low'],
  ['minimal', 'low'],
  ['low', 'low'],
  ['medium', 'medium'],
  ['high', 'high'],
]);

export interface ThinkingWish {
  /** OpenAI's `reasoning_effort`. */
  readonly effort: string | undefined;
  readonly model: ClaudeModel;
  readonly limit: number;
  /** The last turn that called tools does not begin with its thinking, as it must with a budget. */
  readonly lacksThinking: boolean;
  readonly forced: boolean;
  /** Gets `reasoning_effort` when it cannot be had. */
  readonly dropped: Set<string>;
}

export interface EncodedThinking {
  readonly thinking?: JsonObject;
  readonly effort?: string;
}

/** An effort becomes Claude's own effort, or a budget that leaves room for the answer. */
export function encodeThinking({
  effort,
  model,
  limit,
  lacksThinking,
  forced,
  dropped,
}: ThinkingWish): EncodedThinking {
  if (effort === undefined) return {};
  if (effort === 'none') {
    if (!model.adaptive) return {};
    if (model.mayStopThinking) return { thinking: { type: 'disabled' } };
  }
  const named = model.adaptive ? effortOf(effort, model) : undefined;
  if (named !== undefined) {
    return { effort: named, ...(!forced && { thinking: { type: 'adaptive', display: 'summarized' } }) };
  }
  const budget = Math.min(BUDGETS.get(effort) ?? 0, Math.floor(limit * 0.75));
  if (model.adaptive || forced || budget < SMALLEST_BUDGET || lacksThinking) {
    dropped.add('reasoning_effort');
    return {};
  }
  return { thinking: { type: 'enabled', budget_tokens: budget } };
}

function effortOf(effort: string, { knowsExtraEffort }: ClaudeModel): string | undefined {
  if (effort === 'xhigh' || effort === 'max') return knowsExtraEffort ? effort : 'high';
  return EFFORTS.get(effort);
}
