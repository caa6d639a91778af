import { onAbort } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { lowestLimit } from '../../platform/identity/owner.ts';
import { countedFor, type Principal } from '../../platform/identity/principal.ts';
import type { BridgeSettings } from '../settings.ts';

/** One principal, or several that a place counts for: a person and the team that they work for. */
export type Counted = string | readonly string[];

/** A number of places that principals share fairly: none can take all of them, and none waits behind the backlog of another. */
export interface FairGate {
  /** Whether `tryEnter` would succeed right now. */
  hasRoom(counted: Counted): boolean;
  /** Takes a place if one is free for all that are counted and nothing of them together waits already. */
  tryEnter(counted: Counted): boolean;
  /** Waits for a place: principals take turns, and the calls of one principal come in order. False: `signal` has aborted. */
  enter(counted: Counted, signal: AbortSignal): Promise<boolean>;
  /** Gives a place back. */
  leave(counted: Counted): void;
  /** Notes that a place of `counted` cannot be given back before its turn gets a place elsewhere, until the result is called. */
  holdWaiting(counted: Counted): () => void;
  /** Whether a place can become free although those of `holdWaiting` do not. */
  canOpen(counted: Counted): boolean;
}

/** How many turns may be open, and which of them may run (`bridge.limits`). */
export interface TurnLimits {
  mayOpen(principal: Counting): boolean;
  /** Counts a turn that runs or waits, until `ended`. Throws OVERLOADED when the principal, or everybody, has too many. */
  opened(principal: Counting): void;
  ended(principal: Counting): void;
  /** Places of turns that run, in all and of each principal. */
  readonly running: FairGate;
  /** Places of turns and of steps that one agent works on. */
  ofAgent(providerId: string): FairGate;
}

type Counting = Pick<Principal, 'id' | 'buckets' | 'member'>;

/** The ids of those that a turn of a principal counts for. */
export function idsOf(principal: Counting): readonly string[] {
  return countedFor(principal).map(({ id }) => id);
}

type Limits = Pick<
  BridgeSettings['limits'],
  'turns' | 'turns_per_principal' | 'turns_per_agent' | 'waiting_turns' | 'waiting_turns_per_principal'
>;

interface Waiter {
  readonly counted: Counted;
  readonly settle: (hasPlace: boolean) => void;
}

export function createTurnLimits(limits: Limits): TurnLimits {
  const running = createFairGate(
    limits.turns,
    (principal) => open.get(principal)?.mayRun ?? limits.turns_per_principal,
  );
  const agents = new Map<string, FairGate>();
  /** By principal, how many turns are open, and how many of them may run by its newest one. */
  const open = new Map<string, { count: number; mayRun: number }>();
  const maxOpen = limits.turns + limits.waiting_turns;
  const maxOpenOfOne = limits.turns_per_principal + limits.waiting_turns_per_principal;
  let total = 0;
  const mayOpen = (principal: Counting) =>
    total < maxOpen && idsOf(principal).every((id) => (open.get(id)?.count ?? 0) < maxOpenOfOne);
  return {
    running,
    mayOpen,
    opened(principal) {
      if (!mayOpen(principal)) throw new AppError('OVERLOADED');
      for (const { id, buckets } of countedFor(principal)) {
        const allowed = lowestLimit(buckets, 'runningTurns')?.limits.runningTurns ?? limits.turns_per_principal;
        const mayRun = Math.min(allowed, limits.turns_per_principal);
        open.set(id, { count: (open.get(id)?.count ?? 0) + 1, mayRun });
      }
      total += 1;
    },
    ended(principal) {
      total -= 1;
      for (const id of idsOf(principal)) {
        const known = open.get(id);
        if (known === undefined) continue;
        known.count -= 1;
        if (known.count === 0) open.delete(id);
      }
    },
    ofAgent(providerId) {
      const known = agents.get(providerId);
      if (known !== undefined) return known;
      // Agents are few: there are no others than those of the catalog.
      const gate = createFairGate(limits.turns_per_agent, () => limits.turns_per_principal);
      agents.set(providerId, gate);
      return gate;
    },
  };
}

export function createFairGate(limit: number, limitOf: (principal: string) => number): FairGate {
  const inside = new Map<string, number>();
  /** Places inside that are not given back before their turns get others. */
  const stuck = new Map<string, number>();
  let stuckTotal = 0;
  /** By the names of those that are counted, in the order in which they get the next place. */
  const waiting = new Map<string, Waiter[]>();
  let total = 0;

  const mayEnter = (counted: Counted) =>
    total < limit && [counted].flat().every((one) => (inside.get(one) ?? 0) < limitOf(one));

  function take(counted: Counted): void {
    total += 1;
    for (const one of [counted].flat()) inside.set(one, (inside.get(one) ?? 0) + 1);
  }

  function admitNext(): boolean {
    for (const [line, waiters] of waiting) {
      const [next] = waiters;
      if (next === undefined || !mayEnter(next.counted)) continue;
      waiters.shift();
      waiting.delete(line);
      if (waiters.length > 0) waiting.set(line, waiters);
      take(next.counted);
      next.settle(true);
      return true;
    }
    return false;
  }

  function hasRoom(counted: Counted): boolean {
    return mayEnter(counted) && !waiting.has(lineOf(counted));
  }

  return {
    hasRoom,
    tryEnter(counted) {
      if (!hasRoom(counted)) return false;
      take(counted);
      return true;
    },
    enter(counted, signal) {
      const line = lineOf(counted);
      const { promise, resolve } = Promise.withResolvers<boolean>();
      const waiter: Waiter = {
        counted,
        settle(hasPlace) {
          release();
          resolve(hasPlace);
        },
      };
      const waiters = waiting.get(line);
      if (waiters === undefined) waiting.set(line, [waiter]);
      else waiters.push(waiter);
      const release = onAbort(signal, () => {
        const own = waiting.get(line);
        const at = own?.indexOf(waiter) ?? -1;
        if (own === undefined || at === -1) return;
        own.splice(at, 1);
        if (own.length === 0) waiting.delete(line);
        resolve(false);
      });
      while (admitNext());
      return promise;
    },
    leave(counted) {
      total -= 1;
      for (const one of [counted].flat()) subtract(inside, one);
      while (admitNext());
    },
    holdWaiting(counted) {
      stuckTotal += 1;
      for (const one of [counted].flat()) stuck.set(one, (stuck.get(one) ?? 0) + 1);
      return () => {
        stuckTotal -= 1;
        for (const one of [counted].flat()) subtract(stuck, one);
      };
    },
    canOpen: (counted) => stuckTotal < limit && [counted].flat().every((one) => (stuck.get(one) ?? 0) < limitOf(one)),
  };
}

/** Takes a place; false when `signal` aborts before there is one. `onWait` is called if there is none now. */
export async function takePlace(gate: FairGate, counted: Counted, signal: AbortSignal, onWait: () => void) {
  if (gate.tryEnter(counted)) return true;
  onWait();
  return gate.enter(counted, signal);
}

/** Returns the name of a queue. A person's work for a team has another queue than their own work, so that neither blocks the other. */
function lineOf(counted: Counted): string {
  return [counted].flat().join('\n');
}

function subtract(counts: Map<string, number>, name: string): void {
  const left = (counts.get(name) ?? 0) - 1;
  if (left > 0) counts.set(name, left);
  else counts.delete(name);
}
