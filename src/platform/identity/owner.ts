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
  /** Calls to models that run at the same time; others are refused. */
  readonly parallelCalls?: number;
  /** Turns of agents that run at the same time; others wait. */
  readonly runningTurns?: number;
  /** Jobs that wait or run. */
  readonly jobs?: number;
}

/** Whose limits apply to a call: a key's own, or those of the person that the key belongs to. */
export interface Bucket {
  /** What usage is counted under, such as `key_...` or `user:usr_...`. It outlives any single key. */
  readonly id: string;
  /** How a refusal names it: "this key", "the plan free". */
  readonly name: string;
  readonly limits: Limits;
}

/** A team, as it limits the work that its members do for it. */
export interface OwnerTeam {
  /** `team_...`; what is done for it has the owner `team:<id>`, which is also the id of its bucket. */
  readonly id: string;
  /** Patterns of what its plan includes. Undefined: everything. */
  readonly allowed: readonly string[] | undefined;
  /** Whether agents may work for it. */
  readonly bridge: boolean;
  /** Name of its plan; empty: none. */
  readonly plan: string;
  /** Its own, in the place of that of its plan. */
  readonly budget: Budget | undefined;
  readonly bucket: Bucket;
}

/** The lowest limit of a kind among buckets. Undefined: none of them limits it. */
export function lowestLimit(buckets: readonly Bucket[], kind: 'runningTurns' | 'jobs'): Bucket | undefined {
  let lowest: Bucket | undefined;
  for (const bucket of buckets) {
    const limit = bucket.limits[kind];
    if (limit !== undefined && limit < (lowest?.limits[kind] ?? Number.POSITIVE_INFINITY)) lowest = bucket;
  }
  return lowest;
}

/** Who is charged for work: its owner, and where that is a team, the member who asked for it as well. */
export interface Payer {
  readonly owner: string;
  readonly member?: string | undefined;
}

/** One word for a payer; ids have no spaces. */
export function payerName({ owner, member }: Payer): string {
  return member === undefined ? owner : `${owner} ${member}`;
}

export function payerOf(name: string): Payer {
  const [owner = '', member] = name.split(' ');
  return { owner, member };
}

/**
 * The person that a key belongs to, or a team. One object stands for a person as long as it is kept in memory, and its members
 * change with the person: a holder sees a pause without asking again. `revision` changes with any of them.
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
  /** The teams that they are in. */
  readonly teams: readonly OwnerTeam[];
  /** Whether agents may work for them. */
  readonly bridge: boolean;
  readonly revision: number;
}

/** The team of a person by the owner that its work has, `team:<id>`. Undefined: they are not in it. */
export function teamOfOwner({ teams }: Pick<Owner, 'teams'>, owner: string): OwnerTeam | undefined {
  return teams.find(({ bucket }) => bucket.id === owner);
}

/** The owner that an id stands for: `usr_...`, which 0.1.0 stored as the owner of a key, is `user:usr_...`. */
export function ownerIdOf(id: string): string {
  return id.startsWith('usr_') ? `user:${id}` : id;
}

/** Returns the owner immediately when it is in memory, otherwise after one read. Undefined for an id of nobody here. */
export type OwnerOf = (id: string) => Owner | undefined | Promise<Owner | undefined>;

/**
 * Calls the listener after each change of an owner. Returns a function that stops it. For one who is not kept in memory it gets
 * an object of its own.
 */
export type WatchOwners = (listener: (owner: Owner) => void) => () => void;
