import type { KeyInfo } from '../contract/keys.ts';
import type { KeyRow } from '../storage/completions-schema.ts';
import type { KeyHolder, KeyLimits } from './admission.ts';
import type { Budget } from './budget-period.ts';
import { matchesAny } from './model-pattern.ts';

/** An issued key that was looked up. */
export interface FoundKey {
  readonly holder: KeyHolder;
  /** Undefined: never. */
  readonly expiresAt: number | undefined;
}

/** What a stored key allows its holder. */
export function readKey(row: KeyRow): FoundKey {
  const models = JSON.parse(row.models) as string[];
  const limits = limitsOf(row);
  const holder: KeyHolder = {
    id: row.id,
    owner: row.owner,
    isMaster: false,
    mayUse: (model) => matchesAny(models, model),
    ...(Object.keys(limits).length > 0 && { limits }),
  };
  return { holder, expiresAt: row.expires_at ?? undefined };
}

/** A key as those see it who may manage it. */
export function describeKey(row: KeyRow): KeyInfo {
  const { budget } = limitsOf(row);
  return {
    id: row.id,
    object: 'key',
    name: row.name,
    owner: row.owner,
    hint: row.hint,
    models: JSON.parse(row.models) as string[],
    requests_per_minute: row.requests_per_minute,
    tokens_per_minute: row.tokens_per_minute,
    budget: budget === undefined ? null : { ...budget },
    expires_at: row.expires_at === null ? null : new Date(row.expires_at).toISOString(),
    created_at: new Date(row.created_at).toISOString(),
  };
}

function limitsOf(row: KeyRow): KeyLimits {
  return {
    ...(row.requests_per_minute !== null && { requestsPerMinute: row.requests_per_minute }),
    ...(row.tokens_per_minute !== null && { tokensPerMinute: row.tokens_per_minute }),
    ...(row.budget_usd !== null && {
      budget: { usd: row.budget_usd, period: row.budget_period as Budget['period'] },
    }),
  };
}
