import type { Generated } from 'kysely';

/** An issued key. The key itself is nowhere: only its digest. */
export interface KeyRow {
  readonly id: string;
  /** The user that the key belongs to; empty for none. */
  readonly owner: string;
  /** Id of the team that every call with it is for; empty for none. */
  readonly team: string;
  readonly name: string;
  /** SHA-256 of the key, in base64url. */
  readonly digest: string;
  /** How the key begins, so that people can tell theirs apart. */
  readonly hint: string;
  /** JSON: patterns of the models that it may use; an empty list stands for all. */
  readonly models: string;
  /** `,a,b,`: what all its calls are marked with; empty for nothing. */
  readonly tags: string;
  readonly requests_per_minute: number | null;
  readonly tokens_per_minute: number | null;
  /** Calls that may run at the same time. */
  readonly max_parallel: number | null;
  /** `none`, `errors` or `all`; empty: as configured. */
  readonly store_content: string;
  readonly budget_usd: number | null;
  readonly budget_period: string | null;
  readonly expires_at: number | null;
  readonly created_at: number;
  /** Who issued it: a user, or `master`, `command` and the like. Empty: before this was recorded. */
  readonly issued_by: string;
  /** 0: the key is refused. */
  readonly enabled: number;
  /** Digest of the key before the last rotation, which works until `previous_until`. */
  readonly previous_digest: string | null;
  readonly previous_until: number | null;
  /** Grows with each change, so that other instances notice it. */
  readonly revision: number;
}

/** What a key with a budget, or a person with a plan, has spent in a period: `2030-01-31`, `2030-01` or `total`. */
export interface SpendingRow {
  /** Id of the key, `user:<id>` or `team:<id>`. */
  readonly key_id: string;
  readonly period: string;
  /** A whole number of nano-USD. */
  readonly cost_nano_usd: number;
}

/** Also what instances have set aside of a budget and not spent yet. An instance that dies leaves its part there. */
interface SharedSpendingRow extends SpendingRow {
  readonly leased_nano_usd: Generated<number>;
  /** What the last statement set aside: how a statement returns it. */
  readonly granted_nano_usd: Generated<number>;
}

/** One call. */
export interface UsageRecordRow {
  readonly id: string;
  readonly at: number;
  readonly key_id: string;
  readonly owner: string;
  /** `team:<id>` of the team that it was for; empty for none. */
  readonly team: string;
  /** `,a,b,`: what the call was marked with; empty for nothing. */
  readonly tags: string;
  readonly model: string;
  readonly api: string;
  readonly upstream_model: string;
  readonly operation: string;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  /** A whole number of nano-USD. */
  readonly cost_nano_usd: number;
  /** 0: the price is unknown, so the cost counts as 0. */
  readonly price_known: number;
  /** 1: the tokens were counted by us. */
  readonly estimated: number;
  readonly outcome: string;
  readonly status: number;
  readonly attempts: number;
  readonly duration_ms: number;
  readonly first_token_ms: number;
  readonly request_id: string;
  /** Of the prompt, read from a cache and written into one; of the completion, spent on reasoning. */
  readonly cached_tokens: number;
  readonly cache_write_tokens: number;
  readonly reasoning_tokens: number;
  /** JSON: the attempts that failed. Empty when none did. */
  readonly failures: string;
}

/** What was asked and answered; only where the operator wants it stored. */
export interface UsageContentRow {
  readonly record_id: string;
  readonly request: string;
  readonly answer: string;
}

/**
 * The calls of a quarter of an hour that have everything else in common, added up. Some time zones begin their hours and
 * days at a quarter.
 */
export interface UsageQuarterRow {
  /** Quarters of an hour since 1970. */
  readonly quarter: number;
  /** Digest of the columns from `key_id` to `tags`: together they are too long for an index. */
  readonly id: string;
  readonly key_id: string;
  readonly owner: string;
  readonly team: string;
  readonly model: string;
  readonly api: string;
  readonly outcome: string;
  readonly tags: string;
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  /** A whole number of nano-USD. */
  readonly cost_nano_usd: number;
}

/**
 * Sums per day in UTC, from before there were sums per quarter of an hour: they are read, and not written any more. `scope`
 * is empty for all calls, a key, or `owner:<owner>`; `dimension` says what `value` is: a key, a model, an API, an owner, a
 * team, or nothing (`day`).
 */
export interface UsageTotalRow {
  readonly scope: string;
  readonly dimension: string;
  readonly day: string;
  readonly value: string;
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  /** A whole number of nano-USD. */
  readonly cost_nano_usd: number;
}

/** Sums that were added. One whose storing was in doubt is not added twice. */
export interface UsageFlushRow {
  readonly id: string;
}

/** Something that a model API keeps in the operator's account, and whose it is: all callers share that account. */
export interface UpstreamObjectRow {
  /** The API's own id: `resp_...`, `container_...`. */
  readonly id: string;
  /** `<api>`, or `<api>#<key>` for the account of one key of a pool. */
  readonly api: string;
  /** A user, or a key that belongs to nobody. */
  readonly owner: string;
  readonly created_at: number;
  /** `file` or `batch`, which stay until they are deleted. Empty: a response, an item, a container. */
  readonly kind: string;
  /** JSON: what the lines of a file for a batch ask for. Empty for anything else. */
  readonly detail: string;
}

/** An update of the catalogue of models that was valid when it was stored. */
export interface CatalogueRow {
  /** Its version; ids sort by time. */
  readonly id: string;
  readonly source: string;
  /** When its source was last seen to say this. */
  readonly checked_at: number;
  readonly body: string;
}

/** How far an export of calls has come. */
export interface ExportCursorRow {
  readonly name: string;
  /** Of the last call that was exported. */
  readonly last_id: string;
  /** An instance works on it until then. */
  readonly busy_until: number;
}

export interface CompletionsSchema {
  export_cursors: ExportCursorRow;
  catalogues: CatalogueRow;
  keys: KeyRow;
  key_spending: SharedSpendingRow;
  usage_records: UsageRecordRow;
  usage_contents: UsageContentRow;
  usage_quarters: UsageQuarterRow;
  usage_totals: UsageTotalRow;
  usage_flushes: UsageFlushRow;
  upstream_objects: UpstreamObjectRow;
}
