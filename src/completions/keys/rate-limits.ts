import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Limits } from '../../platform/identity/owner.ts';
import type { SharedBucket, SharedBuckets } from '../../platform/limits/shared-buckets.ts';

/** The limits of one bucket: requests and tokens a minute. */
export interface RateLimits {
  /** Throws RATE_LIMIT_EXCEEDED when one request with that many tokens has no room now. */
  check(tokens: number): void;
  /** Takes one request and that many tokens. */
  take(tokens: number): TakenRate;
  /** As OpenAI's API has them: `x-ratelimit-limit-requests`, `x-ratelimit-reset-tokens: 1m30s`. */
  headers(): Record<string, string>;
  /** Returns whether nothing is taken, so that the limits can be forgotten. */
  isIdle(): boolean;
}

/** What a call has taken of limits. */
export interface TakenRate {
  /** Replaces the tokens that were taken by those that the call really used. */
  settle(tokens: number): void;
  /** Returns everything that was taken, because the call is not made. */
  undo(): void;
}

type Unit = 'requests' | 'tokens';

interface Limit<Kind extends Pick<TokenBucket, 'remaining' | 'fullAfterMs'>> {
  readonly unit: Unit;
  readonly names: { readonly limit: string; readonly remaining: string; readonly reset: string };
  readonly perMinute: number;
  readonly bucket: Kind;
}

function limitsOf<Kind extends Pick<TokenBucket, 'remaining' | 'fullAfterMs'>>(
  { requestsPerMinute, tokensPerMinute }: Limits,
  create: (unit: Unit, perMinute: number) => Kind,
): readonly Limit<Kind>[] {
  const limit = (unit: Unit, perMinute: number | undefined): Limit<Kind>[] =>
    perMinute === undefined ? [] : [{ unit, names: headerNames(unit), perMinute, bucket: create(unit, perMinute) }];
  return [...limit('requests', requestsPerMinute), ...limit('tokens', tokensPerMinute)];
}

function rateHeaders(limits: readonly Limit<Pick<TokenBucket, 'remaining' | 'fullAfterMs'>>[]): Record<string, string> {
  const all: Record<string, string> = {};
  for (const { names, perMinute, bucket } of limits) {
    all[names.limit] = String(perMinute);
    all[names.remaining] = String(bucket.remaining());
    all[names.reset] = spanText(bucket.fullAfterMs());
  }
  return all;
}

function exceeded(
  { perMinute, unit }: Pick<Limit<TokenBucket>, 'perMinute' | 'unit'>,
  waitMs: number,
  headers: Readonly<Record<string, string>>,
): AppError {
  const retryAfterSeconds = Math.ceil(waitMs / 1000);
  return new AppError('RATE_LIMIT_EXCEEDED', { limit: perMinute, unit, retryAfterSeconds, headers });
}

export function createRateLimits(given: Limits, clock: Pick<Clock, 'monotonic'>): RateLimits {
  const { tokensPerMinute } = given;
  const limits = limitsOf(given, (_unit, perMinute) => createTokenBucket(perMinute, clock));
  let underWay = 0;

  return {
    headers: () => rateHeaders(limits),
    check(tokens) {
      for (const limit of limits) {
        const wait = limit.bucket.waitMs(limit.unit === 'requests' ? 1 : tokens);
        if (wait > 0) throw exceeded(limit, wait, rateHeaders(limits));
      }
    },
    take(tokens) {
      underWay += 1;
      const reserved = Math.min(tokens, tokensPerMinute ?? tokens);
      for (const { unit, bucket } of limits) bucket.take(unit === 'requests' ? 1 : reserved);
      return {
        settle(used) {
          underWay -= 1;
          for (const { unit, bucket } of limits) {
            if (unit !== 'tokens') continue;
            if (used < reserved) bucket.giveBack(reserved - used);
            else bucket.take(used - reserved);
          }
        },
        undo() {
          underWay -= 1;
          for (const { unit, bucket } of limits) bucket.giveBack(unit === 'requests' ? 1 : reserved);
        },
      };
    },
    isIdle: () => underWay === 0 && limits.every(({ bucket }) => bucket.fullAfterMs() === 0),
  };
}

/** The limits of one bucket that several instances count together. */
export interface SharedRates {
  /** Starts to take one request and that many tokens: a part for each limit. */
  begin(tokens: number): readonly SharedPart[];
  headers(): Record<string, string>;
}

interface SharedPart {
  readonly unit: Unit;
  readonly bucket: SharedBucket;
  readonly amount: number;
  readonly waitMs: number | Promise<number>;
  refusal(waitMs: number): AppError;
}

export function createSharedRates(id: string, given: Limits, buckets: SharedBuckets): SharedRates {
  const limits = limitsOf(given, (unit, perMinute) => buckets.of(`${unit} ${id}`, perMinute));
  return {
    headers: () => rateHeaders(limits),
    begin: (tokens) =>
      limits.map((limit) => {
        const { unit, bucket, perMinute } = limit;
        const amount = unit === 'requests' ? 1 : Math.min(Math.ceil(tokens), perMinute);
        const refusal = (waitMs: number) => exceeded(limit, waitMs, rateHeaders(limits));
        return { unit, bucket, amount, waitMs: startTaking(bucket, amount), refusal };
      }),
  };
}

/** Starts to take. A refusal of an unavailable store becomes a rejection, so that parts of other limits are returned. */
function startTaking(bucket: SharedBucket, amount: number): number | Promise<number> {
  try {
    return bucket.take(amount);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Takes of all limits, or of none. Throws RATE_LIMIT_EXCEEDED. */
export function takeShared(rates: readonly SharedRates[], tokens: number): TakenRate | Promise<TakenRate> {
  const parts = rates.flatMap((rate) => rate.begin(tokens));
  const isKnown = parts.every(({ waitMs }) => typeof waitMs === 'number');
  return isKnown
    ? joinParts(
        parts,
        parts.map(({ waitMs }) => waitMs as number),
      )
    : joinLater(parts);
}

async function joinLater(parts: readonly SharedPart[]): Promise<TakenRate> {
  const results = await Promise.allSettled(parts.map(({ waitMs }) => waitMs));
  const failed = results.find((result) => result.status === 'rejected');
  const waits = results.map((result) => (result.status === 'fulfilled' ? result.value : Number.POSITIVE_INFINITY));
  if (failed === undefined) return joinParts(parts, waits);
  undoParts(parts, waits);
  throw failed.reason;
}

function undoParts(parts: readonly SharedPart[], waits: readonly number[]): void {
  for (const [index, { bucket, amount }] of parts.entries()) if (waits[index] === 0) bucket.giveBack(amount);
}

function joinParts(parts: readonly SharedPart[], waits: readonly number[]): TakenRate {
  const refused = waits.findIndex((waitMs) => waitMs > 0);
  if (refused >= 0) {
    undoParts(parts, waits);
    throw parts[refused]?.refusal(waits[refused] ?? 0);
  }
  return {
    settle(used) {
      for (const { unit, bucket, amount } of parts) {
        if (unit !== 'tokens' || used === amount) continue;
        if (used < amount) bucket.giveBack(amount - used);
        else bucket.owe(used - amount);
      }
    },
    undo: () => undoParts(parts, waits),
  };
}

/** What was taken for one call of a target. */
export interface SharedTake {
  /** 0: taken. */
  readonly waitMs: number;
  /** Puts what the call used in the place of what was taken. */
  correct(used: number): void;
  /** The call is not made. */
  undo(): void;
}

interface TargetPart {
  readonly bucket: SharedBucket;
  readonly amount: number;
  readonly isTokens: boolean;
}

/** Limits of a target, or of a key of an API. 0: none. */
interface NamedLimits {
  readonly name: string;
  readonly limits: { readonly requestsPerMinute: number; readonly tokensPerMinute: number };
}

/** Takes one request and that many tokens of all limits, or of none. Undefined: there are none. */
export function takeLimits(
  buckets: SharedBuckets,
  named: readonly NamedLimits[],
  tokens: number,
): Promise<SharedTake> | undefined {
  const part = (name: string, perMinute: number, amount: number, isTokens: boolean): TargetPart[] => {
    if (perMinute === 0) return [];
    const bucket = buckets.of(`target ${isTokens ? 'tokens' : 'requests'} ${name}`, perMinute);
    return [{ bucket, amount: Math.min(Math.ceil(amount), perMinute), isTokens }];
  };
  const parts = named.flatMap(({ name, limits }) => [
    ...part(name, limits.requestsPerMinute, 1, false),
    ...part(name, limits.tokensPerMinute, tokens, true),
  ]);
  return parts.length === 0 ? undefined : takeParts(parts);
}

/** Takes all parts, or none. */
async function takeParts(parts: readonly TargetPart[]): Promise<SharedTake> {
  const waits = await Promise.all(parts.map(({ bucket, amount }) => takePart(bucket, amount)));
  const taken = parts.filter((_part, index) => waits[index] === 0);
  const undo = () => {
    for (const { bucket, amount } of taken) bucket.giveBack(amount);
  };
  const waitMs = Math.max(0, ...waits.map((wait) => wait ?? 0));
  if (waitMs > 0) undo();
  return {
    waitMs,
    undo,
    correct(used) {
      for (const { bucket, amount, isTokens } of taken) {
        if (!isTokens) continue;
        if (used > amount) bucket.owe(used - amount);
        else bucket.giveBack(amount - used);
      }
    },
  };
}

/** Undefined: it cannot be counted now. */
async function takePart(bucket: SharedBucket, amount: number): Promise<number | undefined> {
  try {
    return await bucket.take(amount);
  } catch {
    return undefined;
  }
}

function headerNames(unit: Unit): Limit<TokenBucket>['names'] {
  const name = (what: string) => `x-ratelimit-${what}-${unit}`;
  return { limit: name('limit'), remaining: name('remaining'), reset: name('reset') };
}

/** As OpenAI writes it: `120ms`, `6s`, `1m30s`. */
function spanText(ms: number): string {
  if (ms < 1000) return `${Math.ceil(ms)}ms`;
  const seconds = Math.ceil(ms / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

/** A token bucket: fills steadily, up to the limit of a minute, which is also the largest burst. */
export interface TokenBucket {
  /** How long until `amount` is there; 0 when it is there now. More than it can ever hold counts as all of it. */
  waitMs(amount: number): number;
  /** Takes it whether it is there or not: what is owed is filled up first. */
  take(amount: number): void;
  /** Gives back what was taken and not used. */
  giveBack(amount: number): void;
  /** What may be taken now. */
  remaining(): number;
  /** How long until it is full again. */
  fullAfterMs(): number;
}

const MINUTE_MS = 60_000;

export function createTokenBucket(perMinute: number, clock: Pick<Clock, 'monotonic'>): TokenBucket {
  const perMs = perMinute / MINUTE_MS;
  let level = perMinute;
  let at = clock.monotonic();

  function fill(): void {
    const now = clock.monotonic();
    level = Math.min(perMinute, level + (now - at) * perMs);
    at = now;
  }

  return {
    waitMs(amount) {
      fill();
      const lacking = Math.min(amount, perMinute) - level;
      return lacking <= ROUNDING ? 0 : lacking / perMs;
    },
    take(amount) {
      fill();
      level -= amount;
    },
    giveBack(amount) {
      fill();
      level = Math.min(perMinute, level + amount);
    },
    remaining() {
      fill();
      return Math.max(0, Math.floor(level + ROUNDING));
    },
    fullAfterMs() {
      fill();
      return (perMinute - level) / perMs;
    },
  };
}

/** Tolerates rounding errors: the sum of sixty sixtieths is not exactly one. */
const ROUNDING = 1e-9;
