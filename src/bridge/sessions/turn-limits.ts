import { onAbort } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { lowestLimit } from '../../platform/identity/owner.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import type { BridgeSettings } from '../settings.ts';

/** A number of places that principals share: none can take them all, and none waits behind the backlog of another. */
export interface FairGate {
  /** Whether `tryEnter` would succeed right now. */
  hasRoom(principal: string): boolean;
  /** Takes a place if one is free for the principal and nothing of it waits already. */
  tryEnter(principal: string): boolean;
  /** Waits for a place: principals take turns, and the calls of one principal come in order. False: `signal` has aborted. */
  enter(principal: string, signal: AbortSignal): Promise<boolean>;
  /** Gives a place back. */
  leave(principal: string): void;
}

/** How many turns may be open, and which of them may run (`bridge.limits`). */
export interface TurnLimits {
  mayOpen(principal: string): boolean;
  /** Counts a turn that runs or waits, until `ended`. Throws OVERLOADED when the principal, or everybody, has too many. */
  opened(principal: Pick<Principal, 'id' | 'buckets'>): void;
  ended(principal: string): void;
  /** Places of turns that run, in all and of each principal. */
  readonly running: FairGate;
  /** Places of turns and of steps that one agent works on. */
  ofAgent(providerId: string): FairGate;
}

type Limits = Pick<
  BridgeSettings['limits'],
  'turns' | 'turns_per_principal' | 'turns_per_agent' | 'waiting_turns' | 'waiting_turns_per_principal'
>;

interface Waiter {
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
  const mayOpen = (principal: string) => (open.get(principal)?.count ?? 0) < maxOpenOfOne && total < maxOpen;
  return {
    running,
    mayOpen,
    opened({ id, buckets }) {
      if (!mayOpen(id)) throw new AppError('OVERLOADED');
      const allowed = lowestLimit(buckets, 'runningTurns')?.limits.runningTurns ?? limits.turns_per_principal;
      const mayRun = Math.min(allowed, limits.turns_per_principal);
      open.set(id, { count: (open.get(id)?.count ?? 0) + 1, mayRun });
      total += 1;
    },
    ended(principal) {
      total -= 1;
      const known = open.get(principal);
      if (known === undefined) return;
      known.count -= 1;
      if (known.count === 0) open.delete(principal);
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
  /** By principal, in the order in which they get the next place. */
  const waiting = new Map<string, Waiter[]>();
  let total = 0;

  const mayEnter = (principal: string) => total < limit && (inside.get(principal) ?? 0) < limitOf(principal);

  function take(principal: string): void {
    total += 1;
    inside.set(principal, (inside.get(principal) ?? 0) + 1);
  }

  function admitNext(): boolean {
    for (const [principal, waiters] of waiting) {
      if (!mayEnter(principal)) continue;
      const next = waiters.shift();
      waiting.delete(principal);
      if (waiters.length > 0) waiting.set(principal, waiters);
      if (next === undefined) return true;
      take(principal);
      next.settle(true);
      return true;
    }
    return false;
  }

  function hasRoom(principal: string): boolean {
    return mayEnter(principal) && !waiting.has(principal);
  }

  return {
    hasRoom,
    tryEnter(principal) {
      if (!hasRoom(principal)) return false;
      take(principal);
      return true;
    },
    enter(principal, signal) {
      const { promise, resolve } = Promise.withResolvers<boolean>();
      const waiter: Waiter = {
        settle(hasPlace) {
          release();
          resolve(hasPlace);
        },
      };
      const waiters = waiting.get(principal);
      if (waiters === undefined) waiting.set(principal, [waiter]);
      else waiters.push(waiter);
      const release = onAbort(signal, () => {
        const own = waiting.get(principal);
        const at = own?.indexOf(waiter) ?? -1;
        if (own === undefined || at === -1) return;
        own.splice(at, 1);
        if (own.length === 0) waiting.delete(principal);
        resolve(false);
      });
      while (admitNext());
      return promise;
    },
    leave(principal) {
      total -= 1;
      subtract(inside, principal);
      while (admitNext());
    },
  };
}

/** Takes a place; false when `signal` aborts before there is one. `onWait` is called if there is none now. */
export async function takePlace(gate: FairGate, principal: string, signal: AbortSignal, onWait: () => void) {
  if (gate.tryEnter(principal)) return true;
  onWait();
  return gate.enter(principal, signal);
}

function subtract(counts: Map<string, number>, name: string): void {
  const left = (counts.get(name) ?? 0) - 1;
  if (left > 0) counts.set(name, left);
  else counts.delete(name);
}
