import type { ChatRequest, Usage } from '../../contract/chat.ts';
import { usageOf } from '../answer.ts';
import { type DialectContext, nearestEffort, type ThinkingFacts, takenBy, thinkingOf } from '../dialect.ts';
import { asCount, asObject, type JsonObject } from '../json-value.ts';

/** What a model's row of the catalogue, else its name, tells about what its API takes. Claude's versions differ, and say so by refusing. */
export interface ClaudeModel {
  /** Undefined: it does not think. `adaptive` ones decide themselves how much, guided by an effort; older ones get a budget. */
  readonly thinking: ThinkingFacts | undefined;
  /** How many of temperature and top_p it takes together. */
  readonly samplingFields: 0 | 1 | 2;
  /** It follows a schema by itself (`output_config.format`, strict tools). */
  readonly followsSchema: boolean;
  readonly defaultMaxTokens: number;
}

/** How others think that speak Claude's dialect. */
const UNKNOWN_THINKING: ThinkingFacts = { style: 'budget', efforts: ['none'] };
const UNKNOWN_MAX_TOKENS = 8192;

export function claudeModel(context: Pick<DialectContext, 'model' | 'facts'>): ClaudeModel {
  const { reasoning, temperature } = context.facts ?? {};
  const { isClaude, sampling = 2, structuredOutput = false, defaultMaxTokens = UNKNOWN_MAX_TOKENS } = takenBy(context);
  // Of a Claude that neither the row nor the table says more of, one that thinks is known by its row alone.
  const unknown = isClaude !== true || reasoning === true ? UNKNOWN_THINKING : undefined;
  return {
    thinking: reasoning === false ? undefined : (thinkingOf(context) ?? unknown),
    samplingFields: temperature === false ? 0 : temperature === true && sampling === 0 ? 1 : sampling,
    followsSchema: structuredOutput,
    defaultMaxTokens,
  };
}

/** Returns the temperature, at most `warmest`, and top_p that the model supports, and adds what it loses to `dropped`. */
export function readSampling(
  request: ChatRequest,
  { samplingFields }: ClaudeModel,
  hasBudget: boolean,
  dropped: Set<string>,
  warmest = 1,
): { readonly temperature?: number; readonly topP?: number } {
  const temperature = request.temperature ?? undefined;
  const topP = request.top_p ?? undefined;
  const takesTemperature = samplingFields > 0 && !hasBudget;
  const takesTopP = takesTemperature && (samplingFields > 1 || temperature === undefined);
  if (temperature !== undefined && !takesTemperature) dropped.add('temperature');
  if (topP !== undefined && !takesTopP) dropped.add('top_p');
  if (temperature !== undefined && temperature > warmest) dropped.add('temperature');
  return {
    ...(temperature !== undefined && takesTemperature && { temperature: Math.min(warmest, temperature) }),
    ...(topP !== undefined && takesTopP && { topP }),
  };
}

const MIN_BUDGET = 1024;

const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['minimal', MIN_BUDGET],
  ['low', 2048],
  ['medium', 8192],
  ['high', 16_384],
  ['xhigh', 32_768],
  ['max', 32_768],
]);

interface ThinkingWish {
  /** OpenAI's `reasoning_effort`. */
  readonly effort: string | undefined;
  /** How many tokens a caller of another API wants thought. */
  readonly budget: number | undefined;
  readonly model: ClaudeModel;
  readonly limit: number;
  /** The last turn that called tools does not begin with its thinking, as it must with a budget. */
  readonly lacksThinking: boolean;
  readonly forced: boolean;
  /** Gets `reasoning_effort` when it cannot be had. */
  readonly dropped: Set<string>;
}

interface EncodedThinking {
  readonly thinking?: JsonObject;
  readonly effort?: string;
}

/** An effort becomes Claude's own effort, or a budget that leaves room for the answer. */
export function encodeThinking({
  effort,
  budget: given,
  model,
  limit,
  lacksThinking,
  forced,
  dropped,
}: ThinkingWish): EncodedThinking {
  if (effort === undefined) return {};
  const { thinking } = model;
  const isAdaptive = thinking?.style === 'adaptive';
  if (effort === 'none') {
    if (!isAdaptive) return {};
    if (thinking.efforts.includes('none')) return { thinking: { type: 'disabled' } };
  }
  if (thinking === undefined) {
    dropped.add('reasoning_effort');
    return {};
  }
  const named = isAdaptive ? nearestEffort(thinking, effort) : undefined;
  if (named !== undefined) {
    return { effort: named, ...(!forced && { thinking: { type: 'adaptive', display: 'summarized' } }) };
  }
  const budget =
    given === undefined ? Math.min(BUDGETS.get(effort) ?? 0, Math.floor(limit * 0.75)) : Math.min(given, limit - 1);
  if (isAdaptive || forced || budget < MIN_BUDGET || lacksThinking) {
    dropped.add('reasoning_effort');
    return {};
  }
  return { thinking: { type: 'enabled', budget_tokens: budget } };
}

/** Converts usage. Claude's input tokens do not include cache reads and writes; OpenAI's prompt tokens do. */
export function claudeUsage(usage: JsonObject): Usage {
  const cached = asCount(usage.cache_read_input_tokens);
  const cacheWritten = asCount(usage.cache_creation_input_tokens);
  return usageOf({
    prompt: asCount(usage.input_tokens) + cached + cacheWritten,
    completion: asCount(usage.output_tokens),
    cached,
    cacheWritten,
    cacheWritten1h: asCount(asObject(usage.cache_creation)?.ephemeral_1h_input_tokens),
    reasoning: asCount(asObject(usage.output_tokens_details)?.thinking_tokens),
    searches: asCount(asObject(usage.server_tool_use)?.web_search_requests),
    // Code ran in a container, whose time Anthropic may charge.
    otherTools: asObject(usage.container) === undefined ? 0 : 1,
  });
}

const DETAILS = ['output_tokens_details', 'cache_creation', 'server_tool_use'] as const;
const COUNTS = ['input_tokens', 'output_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'] as const;

/** Merges the usage of an event, because each event has only some of the numbers, and they grow. The container is not inside the usage. */
export function mergeClaudeUsage(figures: JsonObject, value: unknown, container?: unknown): void {
  const usage = asObject(value);
  if (asObject(container) !== undefined) figures.container = container;
  if (usage === undefined) return;
  for (const name of COUNTS) if (asCount(usage[name]) > 0) figures[name] = usage[name];
  for (const name of DETAILS) if (asObject(usage[name]) !== undefined) figures[name] = usage[name];
}
