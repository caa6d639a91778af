import type { Clock } from '../../platform/clock/clock.ts';
import { ownersSought } from '../../platform/identity/principal.ts';
import type { PriceOf } from '../apis/prices.ts';
import type { TargetList } from '../contract/keys.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { createTokenBucket, type TokenBucket } from '../keys/rate-limits.ts';
import type { CompletionsSettings } from '../settings.ts';
import type { ModelPlan, Target } from './model-plan.ts';

/** Keeps a target that fails for several callers out of the way for a while (contract/completions 3). */
interface TargetCircuit {
  /** Milliseconds until it may be tried; 0: now. */
  waitMs(): number;
  /** True for the one call that probes a target which has been out. */
  begin(): boolean;
  /** The target has begun to answer a probe: it is back, however long the answer takes. */
  answered(): void;
  /** `ignored`: the call ended in a way that shows nothing about the target. */
  end(result: 'ok' | 'failed' | 'ignored', caller: string, wasProbe: boolean): void;
  state(): CircuitState;
}

type CircuitState = 'closed' | 'open' | 'probing';

interface TargetCircuitOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Called when the target goes out, and when it comes back. */
  onChange(state: 'open' | 'closed'): void;
}

interface Counts {
  calls: number;
  failed: number;
}

const MIN_CALLS = 10;
const MIN_CALLERS = 2;
const OUT_MS = 30_000;
/** The window of 30 s, in slots: counting a call costs an addition, and no memory for each call. */
const SLOT_MS = 5000;
const SLOTS = 6;
/** Callers beyond this number in one slot are counted as one. */
const MAX_CALLERS = 256;
const OTHERS = '';
/** How soon a retry makes sense while a probe is running. */
const PROBE_WAIT_MS = 1000;

/**
 * Opens when more than half of at least ten calls within 30 s fail, for at least two callers: without the caller that
 * fails most, more than half of the calls must fail as well. So no single caller takes a target from the others.
 */
function createTargetCircuit({ clock, onChange }: TargetCircuitOptions): TargetCircuit {
  const slots = Array.from({ length: SLOTS }, () => ({ number: -1, callers: new Map<string, Counts>() }));
  let outUntil: number | undefined;
  let probingSince: number | undefined;

  function countsOf(caller: string, now: number): Counts {
    const number = Math.floor(now / SLOT_MS);
    const slot = slots[number % SLOTS];
    if (slot === undefined) throw new RangeError('there is no such slot');
    if (slot.number !== number) {
      slot.number = number;
      slot.callers.clear();
    }
    const name = slot.callers.has(caller) || slot.callers.size < MAX_CALLERS ? caller : OTHERS;
    let counts = slot.callers.get(name);
    if (counts === undefined) {
      counts = { calls: 0, failed: 0 };
      slot.callers.set(name, counts);
    }
    return counts;
  }

  function shouldOpen(now: number): boolean {
    const oldest = Math.floor(now / SLOT_MS) - SLOTS;
    const callers = new Map<string, Counts>();
    for (const slot of slots) {
      if (slot.number <= oldest) continue;
      for (const [caller, { calls, failed }] of slot.callers) {
        const sum = callers.get(caller) ?? { calls: 0, failed: 0 };
        callers.set(caller, { calls: sum.calls + calls, failed: sum.failed + failed });
      }
    }
    const failing = [...callers.values()].filter(({ failed }) => failed > 0);
    if (failing.length < MIN_CALLERS) return false;
    const mostFailed = Math.max(...failing.map(({ failed }) => failed));
    const all = { calls: 0, failed: 0 };
    for (const { calls, failed } of callers.values()) {
      all.calls += calls;
      all.failed += failed;
    }
    const fails = (calls: number, failed: number) => failed * 2 > calls;
    return (
      all.calls >= MIN_CALLS &&
      fails(all.calls, all.failed) &&
      // Several callers may share the most failures: it must hold without any one of them.
      failing.every(({ calls, failed }) => failed < mostFailed || fails(all.calls - calls, all.failed - failed))
    );
  }

  function goOut(now: number): void {
    for (const slot of slots) slot.callers.clear();
    outUntil = now + OUT_MS;
    probingSince = undefined;
    onChange('open');
  }

  function comeBack(): void {
    probingSince = undefined;
    if (outUntil === undefined) return;
    outUntil = undefined;
    onChange('closed');
  }

  return {
    waitMs() {
      if (outUntil === undefined) return 0;
      const now = clock.monotonic();
      // After this long, a probe without a response no longer holds up the next one.
      const isProbing = probingSince !== undefined && now - probingSince < OUT_MS;
      return Math.max(outUntil - now, isProbing ? PROBE_WAIT_MS : 0, 0);
    },
    begin() {
      if (outUntil === undefined || clock.monotonic() < outUntil) return false;
      probingSince = clock.monotonic();
      return true;
    },
    answered: comeBack,
    end(result, caller, wasProbe) {
      const now = clock.monotonic();
      if (wasProbe && outUntil !== undefined) {
        if (result === 'failed') goOut(now);
        else if (result === 'ok') comeBack();
        else probingSince = undefined;
        return;
      }
      // Calls that began before it went out show nothing new.
      if (result === 'ignored' || outUntil !== undefined) return;
      const counts = countsOf(caller, now);
      counts.calls += 1;
      if (result === 'ok') return;
      counts.failed += 1;
      if (shouldOpen(now)) goOut(now);
    },
    state: () => (outUntil === undefined ? 'closed' : probingSince === undefined ? 'open' : 'probing'),
  };
}

/** Knows of every target how it fares: which is to be asked next, and which not at all. */
export interface TargetBoard {
  /** The targets in the order in which they are to be tried. */
  order(plan: ModelPlan): readonly Target[];
  /** Takes a place on a target; the time to wait instead, while it is out or its limits are used up. */
  begin(target: Target, tokens: number, use: TargetUse): TargetLease | { readonly waitMs: number };
  /** Whether it failed so often that nothing is repeated on it now. */
  isOut(target: Target): boolean;
  /** Those that were used lately. */
  status(): readonly TargetStatus[];
}

interface TargetUse {
  /** Who calls: no caller may take a target from the others. */
  readonly caller: string;
  /** Nothing else can answer the call: it is tried although the target is out. */
  readonly isSole: boolean;
}

export interface TargetLease {
  readonly waitMs?: undefined;
  /** The answer has begun. */
  answered(): void;
  /** Exactly once. `tokens`: what the call really used, when that is known. */
  end(result: 'ok' | 'failed' | 'ignored', tokens?: number): void;
}

export interface TargetStatus {
  readonly target: string;
  readonly state: CircuitState;
  readonly inFlight: number;
}

interface TargetBoardOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** For the strategy `cheapest`. */
  readonly priceOf?: PriceOf;
  onCircuit(target: string, state: 'open' | 'closed'): void;
}

interface TargetRecord {
  readonly circuit: TargetCircuit;
  inFlight: number;
  readonly requests: TokenBucket | undefined;
  readonly tokens: TokenBucket | undefined;
  /** Of a target with limits: what each caller of the last minutes may take of them. */
  readonly shares: Map<string, CallerShare>;
}

interface CallerShare {
  readonly requests: TokenBucket | undefined;
  readonly tokens: TokenBucket | undefined;
  lastUse: number;
}

/** Names of targets may come from callers; those that nothing is known of make room. */
const MAX_RECORDS = 2000;
/** Where several callers used a target within this time, each of them gets half of its limits at most. */
const SHARED_MS = 10 * 60_000;
const MAX_SHARES = 1000;
/** How many calls of one caller one API gets at the same time: an eighth of the connections of its pool. */
const MAX_CALLS_OF_CALLER = 512;
const BUSY_WAIT_MS = 1000;

export function createTargetBoard({ clock, priceOf, onCircuit }: TargetBoardOptions): TargetBoard {
  const records = new Map<string, TargetRecord>();
  /** How far each target of an alias is behind its share: smooth weighted round robin. */
  const turns = new WeakMap<Target, number>();
  /** How many calls are under way, by API and caller. Names of both are known only while they are. */
  const callsOf = new Map<string, number>();

  function recordOf(target: Target): TargetRecord {
    const known = records.get(target.id);
    if (known !== undefined) return known;
    if (records.size >= MAX_RECORDS) forgetOne();
    const record: TargetRecord = {
      circuit: createTargetCircuit({ clock, onChange: (state) => onCircuit(target.id, state) }),
      inFlight: 0,
      requests: limitOf(target.requestsPerMinute),
      tokens: limitOf(target.tokensPerMinute),
      shares: new Map(),
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

  function shareOf(record: TargetRecord, target: Target, caller: string): CallerShare | undefined {
    const { shares, requests, tokens } = record;
    if (requests === undefined && tokens === undefined) return undefined;
    const now = clock.monotonic();
    let share = shares.get(caller);
    if (share === undefined) {
      for (const [name, { lastUse }] of shares) {
        if (shares.size >= MAX_SHARES || now - lastUse >= SHARED_MS) shares.delete(name);
      }
      const half = (perMinute: number) => limitOf(Math.ceil(perMinute / 2));
      share = { requests: half(target.requestsPerMinute), tokens: half(target.tokensPerMinute), lastUse: now };
      shares.set(caller, share);
    }
    share.lastUse = now;
    return share;
  }

  /** What a caller's share makes it wait for; nothing while it is the only caller. */
  function shareWaitMs({ shares }: TargetRecord, share: CallerShare | undefined, tokens: number): number {
    if (share === undefined || shares.size < 2) return 0;
    const now = clock.monotonic();
    const isShared = [...shares.values()].some((other) => other !== share && now - other.lastUse < SHARED_MS);
    return isShared ? Math.max(share.requests?.waitMs(1) ?? 0, share.tokens?.waitMs(tokens) ?? 0) : 0;
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
  };

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
    const first = ordered.find((target) => (records.get(target.id)?.circuit.waitMs() ?? 0) === 0);
    if (first !== undefined) turns.set(first, (turns.get(first) ?? 0) - total);
    return ordered;
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
    begin(target, tokens, { caller, isSole }) {
      const record = recordOf(target);
      const { circuit, requests, tokens: tokenLimit } = record;
      const place = `${target.apiId}\n${caller}`;
      const underWay = callsOf.get(place) ?? 0;
      const share = shareOf(record, target, caller);
      const waitMs = Math.max(
        isSole ? 0 : circuit.waitMs(),
        requests?.waitMs(1) ?? 0,
        tokenLimit?.waitMs(tokens) ?? 0,
        shareWaitMs(record, share, tokens),
        underWay >= MAX_CALLS_OF_CALLER ? BUSY_WAIT_MS : 0,
      );
      if (waitMs > 0) return { waitMs };
      const isProbe = circuit.begin();
      requests?.take(1);
      tokenLimit?.take(tokens);
      share?.requests?.take(1);
      share?.tokens?.take(tokens);
      record.inFlight += 1;
      callsOf.set(place, underWay + 1);
      return {
        answered() {
          if (isProbe) circuit.answered();
        },
        end(result, used) {
          record.inFlight -= 1;
          const left = (callsOf.get(place) ?? 1) - 1;
          if (left === 0) callsOf.delete(place);
          else callsOf.set(place, left);
          if (used !== undefined) {
            correct(tokenLimit, tokens, used);
            correct(share?.tokens, tokens, used);
          }
          circuit.end(result, caller, isProbe);
        },
      };
    },
    isOut: (target) => (records.get(target.id)?.circuit.state() ?? 'closed') !== 'closed',
    status: () =>
      [...records].map(([target, { circuit, inFlight: count }]) => ({
        target,
        state: circuit.state(),
        inFlight: count,
      })),
  };
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
    const { isMaster, principal } = holder;
    const usable = aliases.filter(({ name }) => holder.mayUse(name));
    const inAliases = new Set(usable.flatMap((alias) => alias.targets.map(({ model }) => model)));
    const seesAll = isMaster || (principal !== undefined && ownersSought(principal) === undefined);
    const shown = targets().filter(({ target }) => seesAll || inAliases.has(target));
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
