import type { TurnUsage } from '../agent-provider.ts';
import type { CompletionUsage } from './complete-chat.ts';

export interface UsageSum {
  add(usage: CompletionUsage | undefined): void;
  /** To be spread into the end of a turn; empty while no model has told anything. */
  total(): { readonly usage?: TurnUsage };
}

/** Adds up what all requests of a turn used. */
export function createUsageSum(): UsageSum {
  let isKnown = false;
  let inputTokens = 0;
  let outputTokens = 0;
  let totalTokens = 0;
  return {
    add(usage) {
      if (usage === undefined) return;
      isKnown = true;
      inputTokens += usage.prompt_tokens;
      outputTokens += usage.completion_tokens;
      totalTokens += usage.total_tokens;
    },
    total: () => (isKnown ? { usage: { inputTokens, outputTokens, totalTokens } } : {}),
  };
}
