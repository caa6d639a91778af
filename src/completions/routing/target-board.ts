import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { SharedBuckets } from '../../platform/limits/shared-buckets.ts';
import type { PriceOf } from '../apis/prices.ts';
import type { TargetList } from '../contract/keys.ts';
import { type KeyHolder, seesAll } from '../keys/admission.ts';
import { createTokenBucket, type SharedTake, type TokenBucket, takeLimits } from '../keys/rate-limits.ts';
import type { CompletionsSettings } from '../settings.ts';
import { type ModelPlan, placeOf, type Target, type TargetLimits } from './model-plan.ts';
import { type CircuitState, createTargetCircuit, type TargetCircuit } from './target-circuit.ts';

/** Knows the state of every target, and chooses which one is tried next. */
export interface TargetBoard {
  /** The targets in the order in which they are to be tried. */
  order(plan: ModelPlan): readonly Target[];
  /**
   * Takes from the limits of a target that other instances share; returns the time to wait if they are used up. Undefined: there are
   * no such limits. If they cannot be counted, the call continues, because the API behind the target has its own limits.
   */
  takeShared(target: Target, tokens: number): Promise<SharedTake> | undefined;
  /** Takes a lease on a target. Returns the time to wait instead while its circuit is open or its limits are used up. */
  begin(target: Target, tokens: number, use: TargetUse): TargetLease | { readonly waitMs: number };
  /** Returns whether the circuit of the target is open, so that nothing is retried on it. */
  isOut(target: Target): boolean;
  /** Returns the targets that were used recently. */
  status(): readonly TargetStatus[];
}

interface TargetUse {
  /** The caller, because no single caller may exclude a target for others. */
  readonly caller: string;
  /** Nothing else can answer the call, so the target is tried although its circuit is open. */
  readonly isSole: boolean;
  /** What was taken for the call with `takeShared`. */
  readonly shared?: SharedTake | undefined;
}

export interface TargetLease {
  readonly waitMs?: undefined;
  /** Called when the response has begun. */
  answered(): void;
  /** Exactly once. `tokens`: what the call really used, when that is known. */
  end(result: 'ok' | 'failed' | 'ignored', tokens?: number): void;
}

export interface TargetStatus {
  readonly target: string;
  /** `<api>/<model>`: the target without its key. */
  readonly model: string;
  readonly state: CircuitState;
  readonly inFlight: number;
}

interface TargetBoardOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** For the strategy `cheapest`. */
  readonly priceOf?: PriceOf;
  /** For the strategy `fastest`. */
  readonly randomness?: Pick<Randomness, 'below'>;
  /** Limits that other instances count too. Undefined: this one counts alone. */
  readonly shared?: SharedBuckets | undefined;
  onCircuit(target: string, state: 'open' | 'closed'): void;
}

interface TargetRecord {
  readonly model: string;
  readonly circuit: TargetCircuit;
  inFlight: number;
  /** Moving average of the time until it begins to answer. Undefined: it has not answered yet. */
  answersAfterMs: number | undefined;
  /** Undefined: it has no limits. */
  readonly limited: Limited | undefined;
}

/** Limits of a target, or of a key of an API for all its models. */
interface Limited {
  readonly limits: TargetLimits;
  readonly requests: TokenBucket | undefined;
  readonly tokens: TokenBucket | undefined;
  /** What each caller of the last minutes may take of them. */
  readonly shares: Map<string, CallerShare>;
}

interface CallerShare {
  readonly requests: TokenBucket | undefined;
  readonly tokens: TokenBucket | undefined;
  lastUse: number;
}

/** The most records, because callers choose names of targets. Records of idle targets are removed. */
const MAX_RECORDS = 2000;
/** Where several callers used a target within this time, each of them gets half of its limits at most. */
const SHARED_MS = 10 * 60_000;
const MAX_SHARES = 1000;
/** How many calls one API gets at the same time. Each uses one connection. */
export const MAX_CALLS_OF_API = 4096;
const BUSY_WAIT_MS = 1000;
/** How much the last call counts in the moving average. */
const LAST_WEIGHT = 0.2;
/** The time that counts for a failed call, so that a target that fails quickly does not seem fast. */
const FAILED_MS = 10_000;

export function createTargetBoard(options: TargetBoardOptions): TargetBoard {
  const { clock, priceOf, randomness, shared, onCircuit } = options;
  const records = new Map<string, TargetRecord>();
  /** How far each target of an alias is behind its share: smooth weighted round robin. */
  const turns = new WeakMap<Target, number>();
  /** The limits of keys, by API and key. As many as the settings have. */
  const keys = new Map<string, Limited>();
  /** How many calls are under way, by API, and by API and caller. Names of both are known only while they are. */
  const callsOf = new Map<string, number>();

  /**
   * A caller may have as many calls as there is room for others: one alone gets half of all connections, and each of several the
   * same part, with one such part left for the next that comes.
   */
  const hasRoom = (apiId: string, place: string) =>
    (callsOf.get(place) ?? 0) < MAX_CALLS_OF_API - (callsOf.get(apiId) ?? 0);

  function countCall(key: string, change: 1 | -1): void {
    const count = (callsOf.get(key) ?? 0) + change;
    if (count > 0) callsOf.set(key, count);
    else callsOf.delete(key);
  }

  function recordOf(target: Target): TargetRecord {
    const known = records.get(target.id);
    if (known !== undefined) return known;
    if (records.size >= MAX_RECORDS) forgetOne();
    const record: TargetRecord = {
      model: `${target.apiId}/${target.model}`,
      circuit: createTargetCircuit({ clock, onChange: (state) => onCircuit(target.id, state) }),
      inFlight: 0,
      answersAfterMs: undefined,
      limited: limitedBy(target),
    };
    records.set(target.id, record);
    return record;
  }

  function forgetOne(): void {
    for (const [id, { inFlight, circuit }] of records) {
      if (inFlight > 0 || circuit.state() !== 'closed') continue;
      records.delete(id);
      return;
    }
  }

  function limitedBy({ requestsPerMinute, tokensPerMinute }: TargetLimits): Limited | undefined {
    if (requestsPerMinute === 0 && tokensPerMinute === 0) return undefined;
    const limits = { requestsPerMinute, tokensPerMinute };
    return { limits, requests: limitOf(requestsPerMinute), tokens: limitOf(tokensPerMinute), shares: new Map() };
  }

  /** The limits of the key of a target. A reload of the settings may change them. */
  function limitedKey(target: Target): Limited | undefined {
    const { keyLimits } = target;
    if (keyLimits === undefined) return undefined;
    const place = placeOf(target);
    const known = keys.get(place);
    const isCurrent =
      known?.limits.requestsPerMinute === keyLimits.requestsPerMinute &&
      known.limits.tokensPerMinute === keyLimits.tokensPerMinute;
    if (isCurrent) return known;
    const fresh = limitedBy(keyLimits);
    if (fresh === undefined) keys.delete(place);
    else keys.set(place, fresh);
    return fresh;
  }

  function shareOf({ shares, limits }: Limited, caller: string): CallerShare {
    const now = clock.monotonic();
    let share = shares.get(caller);
    if (share === undefined) {
      for (const [name, { lastUse }] of shares) {
        if (shares.size >= MAX_SHARES || now - lastUse >= SHARED_MS) shares.delete(name);
      }
      const half = (perMinute: number) => limitOf(Math.ceil(perMinute / 2));
      share = { requests: half(limits.requestsPerMinute), tokens: half(limits.tokensPerMinute), lastUse: now };
      shares.set(caller, share);
    }
    share.lastUse = now;
    return share;
  }

  /** What a caller's share makes it wait for; nothing while it is the only caller. */
  function shareWaitMs({ shares }: Limited, share: CallerShare, tokens: number): number {
    if (shares.size < 2) return 0;
    const now = clock.monotonic();
    const isShared = [...shares.values()].some((other) => other !== share && now - other.lastUse < SHARED_MS);
    return isShared ? Math.max(share.requests?.waitMs(1) ?? 0, share.tokens?.waitMs(tokens) ?? 0) : 0;
  }

  /** One call within limits: how long it has to wait, and what it takes of them. Undefined: there are no limits. */
  function within(limited: Limited | undefined, caller: string, tokens: number) {
    if (limited === undefined) return undefined;
    const share = shareOf(limited, caller);
    const { requests, tokens: tokenLimit } = limited;
    return {
      waitMs: () =>
        Math.max(requests?.waitMs(1) ?? 0, tokenLimit?.waitMs(tokens) ?? 0, shareWaitMs(limited, share, tokens)),
      take() {
        requests?.take(1);
        tokenLimit?.take(tokens);
        share.requests?.take(1);
        share.tokens?.take(tokens);
      },
      correct(used: number) {
        correct(tokenLimit, tokens, used);
        correct(share.tokens, tokens, used);
      },
    };
  }

  const limitOf = (perMinute: number) => (perMinute === 0 ? undefined : createTokenBucket(perMinute, clock));
  const inFlight = (target: Target) => records.get(target.id)?.inFlight ?? 0;

  /** What a strategy looks at before the shares: the lowest comes first. */
  const ranks = {
    weighted: () => 0,
    least_busy: inFlight,
    /** By a prompt that is three times as long as the answer. A target of unknown price comes last. */
    cheapest({ apiId, model }: Target) {
      const price = priceOf?.(apiId, model);
      return price?.known === true ? price.rates.input * 3 + price.rates.output : Number.MAX_VALUE;
    },
    /** One that has not answered yet comes first, so that it is measured. */
    fastest: (target: Target) => records.get(target.id)?.answersAfterMs ?? 0,
  };

  /**
   * Moves the faster of two at random to the front. Would all calls go to the fastest, it would be the slowest soon, and
   * nothing would be learned of the others.
   */
  function pickOfTwo(ordered: readonly Target[]): readonly Target[] {
    const able = ordered.filter((target) => target.weight > 0);
    const [first] = able;
    if (randomness === undefined || first === undefined || able.length < 3 || ranks.fastest(first) === 0)
      return ordered;
    const one = randomness.below(able.length);
    const other = (one + 1 + randomness.below(able.length - 1)) % able.length;
    const picked = able[Math.min(one, other)] ?? first;
    return [picked, ...ordered.filter((target) => target !== picked)];
  }

  /**
   * Those of one priority, as the strategy ranks them; among equals the one that is furthest behind its share first, then
   * those with less under way.
   */
  function orderGroup(group: readonly Target[], strategy: keyof typeof ranks): readonly Target[] {
    const rank = ranks[strategy];
    const total = group.reduce((sum, { weight }) => sum + weight, 0);
    for (const target of group) turns.set(target, (turns.get(target) ?? 0) + target.weight);
    const ordered = [...group].sort(
      (a, b) =>
        Number(a.weight === 0) - Number(b.weight === 0) ||
        rank(a) - rank(b) ||
        (turns.get(b) ?? 0) - (turns.get(a) ?? 0) ||
        inFlight(a) - inFlight(b),
    );
    const tried = strategy === 'fastest' ? pickOfTwo(ordered) : ordered;
    const first = tried.find((target) => (records.get(target.id)?.circuit.waitMs() ?? 0) === 0);
    if (first !== undefined) turns.set(first, (turns.get(first) ?? 0) - total);
    return tried;
  }

  return {
    order({ targets, strategy = 'weighted' }) {
      if (targets.length === 1) return targets;
      const priorities = [...new Set(targets.map(({ priority }) => priority))].sort((a, b) => a - b);
      return priorities.flatMap((priority) =>
        orderGroup(
          targets.filter((target) => target.priority === priority),
          strategy,
        ),
      );
    },
    takeShared(target, tokens) {
      if (shared === undefined) return undefined;
      const ofKey = target.keyLimits === undefined ? [] : [{ name: placeOf(target), limits: target.keyLimits }];
      return takeLimits(shared, [{ name: target.id, limits: target }, ...ofKey], tokens);
    },
    begin(target, tokens, { caller, isSole, shared: taken }) {
      const record = recordOf(target);
      const { circuit } = record;
      const place = `${target.apiId}\n${caller}`;
      const ofTarget = within(record.limited, caller, tokens);
      const ofKey = within(limitedKey(target), caller, tokens);
      const waitMs = Math.max(
        isSole ? 0 : circuit.waitMs(),
        ofTarget?.waitMs() ?? 0,
        ofKey?.waitMs() ?? 0,
        hasRoom(target.apiId, place) ? 0 : BUSY_WAIT_MS,
      );
      if (waitMs > 0) {
        taken?.undo();
        return { waitMs };
      }
      const isProbe = circuit.begin();
      const startedAt = clock.monotonic();
      let hasAnswered = false;
      ofTarget?.take();
      ofKey?.take();
      record.inFlight += 1;
      countCall(target.apiId, 1);
      countCall(place, 1);
      return {
        answered() {
          if (isProbe) circuit.answered();
          hasAnswered = true;
          measure(record, clock.monotonic() - startedAt);
        },
        end(result, used) {
          record.inFlight -= 1;
          countCall(target.apiId, -1);
          countCall(place, -1);
          if (used !== undefined) {
            ofTarget?.correct(used);
            ofKey?.correct(used);
            taken?.correct(used);
          }
          if (result === 'failed' && !hasAnswered) measure(record, Math.max(FAILED_MS, clock.monotonic() - startedAt));
          circuit.end(result, caller, isProbe);
        },
      };
    },
    isOut: (target) => (records.get(target.id)?.circuit.state() ?? 'closed') !== 'closed',
    status: () =>
      [...records].map(([target, { model, circuit, inFlight: count }]) => ({
        target,
        model,
        state: circuit.state(),
        inFlight: count,
      })),
  };
}

function measure(record: TargetRecord, ms: number): void {
  // At least a little, because 0 stands for a target that was not measured.
  const last = Math.max(1, ms);
  const before = record.answersAfterMs ?? last;
  record.answersAfterMs = before + (last - before) * LAST_WEIGHT;
}

/** Puts what a call used in the place of what was taken for it. */
function correct(bucket: TokenBucket | undefined, taken: number, used: number): void {
  if (used > taken) bucket?.take(used - taken);
  else bucket?.giveBack(taken - used);
}

export interface TargetViewOptions {
  readonly aliases: CompletionsSettings['models'];
  targets(): readonly TargetStatus[];
}

/** How targets are shown. Callers may name any model, so only those who see the work of others see targets outside of aliases. */
export function createTargetView({ aliases, targets }: TargetViewOptions) {
  return (holder: KeyHolder): TargetList => {
    const usable = aliases.filter(({ name }) => holder.mayUse(name));
    const inAliases = new Set(usable.flatMap((alias) => alias.targets.map(({ model }) => model)));
    const isOperator = seesAll(holder);
    const shown = targets().filter(({ model }) => isOperator || inAliases.has(model));
    return {
      object: 'list',
      data: shown.map(({ target, state, inFlight }) => ({ target, state, in_flight: inFlight })),
      aliases: usable.map(({ name, strategy, targets: behind, fallbacks }) => ({
        name,
        strategy,
        targets: behind.map(({ model, weight, priority }) => ({ target: model, weight, priority })),
        fallbacks: [...fallbacks],
      })),
    };
  };
}
