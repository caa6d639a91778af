/** A sum of money for a period (UTC). 0 USD pays for nothing: only what is known to be free passes. */
export interface Budget {
  readonly usd: number;
  readonly period: 'day' | 'month' | 'total';
}

/** What may be used up. A member that is absent has no limit. */
export interface Limits {
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly budget?: Budget;
}

/** Whose limits apply to a call: a key's own, or those of the person that the key belongs to. */
export interface Bucket {
  /** What usage is counted under, such as `key_...` or `user:usr_...`. It outlives any single key. */
  readonly id: string;
  /** How a refusal names it: "this key", "the plan free". */
  readonly name: string;
  readonly limits: Limits;
}

/**
 * The person that a key belongs to. One object stands for a person as long as it is kept in memory, and its members
 * change with the person: whoever holds it sees a pause without asking again. `revision` changes with any of them.
 */
export interface Owner {
  readonly id: string;
  /** Only an active person's keys work. */
  readonly state: 'active' | 'paused' | 'blocked' | 'closing' | 'gone';
  readonly role: string;
  /** Name of the plan; empty for a role without one, which has no limits. */
  readonly plan: string;
  /** Patterns of what the plan includes. Undefined: everything. */
  readonly allowed: readonly string[] | undefined;
  readonly buckets: readonly Bucket[];
  readonly revision: number;
}

/** Returns the owner immediately when it is in memory, otherwise after one read. Undefined for an id of nobody here. */
export type OwnerOf = (id: string) => Owner | undefined | Promise<Owner | undefined>;

/** Calls the listener after each change of an owner that was asked for. Returns a function that stops it. */
export type WatchOwners = (listener: (owner: Owner) => void) => () => void;
