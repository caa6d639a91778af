import type { JsonObject } from '../json-value.ts';

const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['minimal', 512],
  ['low', 1024],
  ['medium', 8192],
  ['high', 24_576],
  ['xhigh', 24_576],
]);

/** What Gemini 2.5 Pro thinks at the least. */
const SMALLEST_PRO_BUDGET = 128;

/** 205 for `gemini-2.5-flash`, 300 for `gemini-3-pro-preview`; 0 for what is no Gemini. */
export function geminiVersion(model: string): number {
  const [, major, minor] = /gemini-(\d{1,2})(?:\.(\d{1,2}))?/.exec(model) ?? [];
  return major === undefined ? 0 : Number(major) * 100 + Number(minor ?? 0);
}

/** Models since 2.5, and names without a version (`gemini-flash-latest`), take JSON Schema as it is. */
export function takesJsonSchema(model: string): boolean {
  const version = geminiVersion(model);
  return version === 0 ? model.includes('gemini') : version >= 205;
}

/** OpenAI's `reasoning_effort` as a budget or, from Gemini 3 on, as a level. Undefined: the model has neither. */
export function thinkingConfig(model: string, effort: string): JsonObject | undefined {
  const version = geminiVersion(model);
  if (version >= 300) {
    const level = thinkingLevel(model, effort);
    return level === undefined ? undefined : { thinkingLevel: level, includeThoughts: effort !== 'none' };
  }
  if (version < 205) return undefined;
  if (effort === 'none') return { thinkingBudget: model.includes('pro') ? SMALLEST_PRO_BUDGET : 0 };
  const budget = BUDGETS.get(effort);
  return budget === undefined ? undefined : { thinkingBudget: budget, includeThoughts: true };
}

/** Only the fast models go below `low`, and the first Pro knew nothing between `low` and `high`. */
function thinkingLevel(model: string, effort: string): string | undefined {
  switch (effort) {
    case 'none':
    case 'minimal':
      return model.includes('flash') ? 'minimal' : 'low';
    case 'low':
      return 'low';
    case 'medium':
      return model.includes('gemini-3-pro') ? 'high' : 'medium';
    case 'high':
    case 'xhigh':
    case 'max':
      return 'high';
    default:
      return undefined;
  }
}
