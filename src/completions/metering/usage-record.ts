import type { SettledCall } from '../keys/settled-call.ts';
import type { UsageRecordRow } from '../storage/completions-schema.ts';

const LONGEST_NAME = 200;

/** A call as it is stored. Whatever callers and upstreams named, it can be. */
export function usageRecord(call: SettledCall, id: string, now: number): UsageRecordRow {
  const { holder, outcome } = call;
  return {
    id,
    at: now,
    key_id: holder.id,
    owner: holder.owner,
    model: nameOf(outcome.model),
    api: nameOf(outcome.api),
    upstream_model: nameOf(outcome.upstreamModel),
    operation: outcome.operation ?? 'chat',
    prompt_tokens: call.promptTokens,
    completion_tokens: call.completionTokens,
    cost_nano_usd: call.costNano,
    price_known: call.priceKnown ? 1 : 0,
    estimated: outcome.estimated ? 1 : 0,
    outcome: outcome.outcome,
    status: whole(outcome.status),
    attempts: whole(outcome.attempts),
    duration_ms: whole(outcome.durationMs),
    first_token_ms: whole(outcome.firstTokenMs),
    request_id: nameOf(outcome.requestId),
  };
}

/** Text that both engines store: without the NUL character. */
export function storableText(text: string): string {
  return text.replaceAll('\0', '');
}

function nameOf(text: string): string {
  return storableText(text.slice(0, LONGEST_NAME));
}

function whole(number: number): number {
  return Number.isFinite(number) ? Math.max(0, Math.round(number)) : 0;
}
