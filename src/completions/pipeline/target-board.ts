import type { Clock } from '../../platform/clock/clock.ts';
import { createTokenBucket, type TokenBucket } from '../keys/token-bucket.ts';
import type { ModelPlan, Target } from './model-plan.ts';
import { type CircuitState, createTargetCircuit, type TargetCircuit } from './target-circuit.ts';

/** Knows of every target how it fares: which is to be asked next, and which not at all. */
export interface TargetBoard {
  /** The targets in the order in which they are to be tried. */
  order(plan: ModelPlan): readonly Target[];
  /** Takes a place on a target; undefined, with the time to wait, while it is out or has used up its limits. */
  begin(target: Target, tokens: number): TargetLease | { readonly waitMs: number };
  /** Those that were used lately. */
  status(): readonly TargetStatus[];
}

export interface TargetLease {
  readonly waitMs?: undefined;
  /** Exactly once. `tokens`: what the call really used, when that is known. */
  end(result: 'ok' | 'failed' | 'ignored', tokens?: number): void;
}

export interface TargetStatus {
  readonly target: string;
  readonly state: CircuitState;
  readonly inFlight: number;
}

export interface TargetBoardOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  onCircuit(target: string, state: 'open' | 'closed'): void;
}

interface TargetRecord {
  readonly circuit: TargetCircuit;
  inFlight: number;
  requests: TokenBucket | undefined;
  tokens: TokenBucket | undefined;
}

/** Names of targets may come from callers; those that nothing is known of make room. */
const MAX_RECORDS = 2000;

export function createTargetBoard({ clock, onCircuit }: TargetBoardOptions): TargetBoard {
  const records = new Map<string, TargetRecord>();
  /** How far each target of an alias is behind its share: smooth weighted round robin. */
  const turns = new WeakMap<Target, number>();

  function recordOf(target: Target): TargetRecord {
    const known = records.get(target.id);
    if (known !== undefined) return known;
    if (records.size >= MAX_RECORDS) forgetOne();
    const record: TargetRecord = {
      circuit: createTargetCircuit({ clock, onChange: (state) => onCircuit(target.id, state) }),
      inFlight: 0,
      requests: limitOf(target.requestsPerMinute),
      tokens: limitOf(target.tokensPerMinute),
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

  const limitOf = (perMinute: number) => (perMinute === 0 ? undefined : createTokenBucket(perMinute, clock));
  const inFlight = (target: Target) => records.get(target.id)?.inFlight ?? 0;

  /** Those of one priority: the one that is furthest behind its share first, then those with less under way. */
  function orderGroup(group: readonly Target[]): readonly Target[] {
    const total = group.reduce((sum, { weight }) => sum + weight, 0);
    for (const target of group) turns.set(target, (turns.get(target) ?? 0) + target.weight);
    const ordered = [...group].sort(
      (a, b) =>
        Number(a.weight === 0) - Number(b.weight === 0) ||
        (turns.get(b) ?? 0) - (turns.get(a) ?? 0) ||
        inFlight(a) - inFlight(b),
    );
    const first = ordered.find((target) => (records.get(target.id)?.circuit.waitMs() ?? 0) === 0);
    if (first !== undefined) turns.set(first, (turns.get(first) ?? 0) - total);
    return ordered;
  }

  return {
    order({ targets }) {
      if (targets.length === 1) return targets;
      const priorities = [...new Set(targets.map(({ priority }) => priority))].sort((a, b) => a - b);
      return priorities.flatMap((priority) => orderGroup(targets.filter((target) => target.priority === priority)));
    },
    begin(target, tokens) {
      const record = recordOf(target);
      const { circuit, requests, tokens: tokenLimit } = record;
      const waitMs = Math.max(circuit.waitMs(), requests?.waitMs(1) ?? 0, tokenLimit?.waitMs(tokens) ?? 0);
      if (waitMs > 0) return { waitMs };
      const isProbe = circuit.begin();
      requests?.take(1);
      tokenLimit?.take(tokens);
      record.inFlight += 1;
      return {
        end(result, used) {
          record.inFlight -= 1;
          if (used !== undefined && used > tokens) tokenLimit?.take(used - tokens);
          else if (used !== undefined) tokenLimit?.giveBack(tokens - used);
          circuit.end(result, isProbe);
        },
      };
    },
    status: () =>
      [...records].map(([target, { circuit, inFlight: count }]) => ({
        target,
        state: circuit.state(),
        inFlight: count,
      })),
  };
}
