import { isDeepStrictEqual } from 'node:util';
import type { Owner } from '../../platform/identity/owner.ts';
import type { Credential } from '../../platform/identity/principal.ts';
import type { ChangedIds } from '../storage/guarded-writes.ts';

interface LiveCredential extends Credential {
  end(): void;
}

export interface NewCredential {
  readonly id: string;
  readonly owner: Owner;
  /** Of a login: when it began. */
  readonly loggedInAt?: number;
  /** The ids whose change may end it. */
  readonly names: readonly string[];
  /** Asks the store. */
  stillCounts(): Promise<boolean>;
}

interface Watched extends LiveCredential {
  readonly names: readonly string[];
  stillCounts(): Promise<boolean>;
}

/** Watches credentials with open work, such as a socket. A credential without a listener is not kept. */
interface LiveCredentials {
  create(credential: NewCredential): LiveCredential;
  ownerChanged(owner: Owner): void;
  /** Checks whether the credentials that a change concerns are still valid. */
  changed(ids: ChangedIds): void;
  lookAtAll(): Promise<void>;
}

export function createLiveCredentials(onError: (error: unknown) => void): LiveCredentials {
  const watched = new Set<Watched>();
  const byName = new Map<string, Set<Watched>>();

  function watch(credential: Watched): void {
    watched.add(credential);
    for (const name of credential.names) {
      const named = byName.get(name) ?? new Set<Watched>();
      byName.set(name, named.add(credential));
    }
  }

  function unwatch(credential: Watched): void {
    watched.delete(credential);
    for (const name of credential.names) {
      const named = byName.get(name);
      if (named?.delete(credential) && named.size === 0) byName.delete(name);
    }
  }

  async function look(credential: Watched): Promise<void> {
    if (!credential.isLive() || !(await credential.stillCounts())) credential.end();
  }

  function create({ id, owner, loggedInAt, names, stillCounts }: NewCredential): LiveCredential {
    const listeners = new Set<() => void>();
    const { role, plan, bridge, buckets, teams } = owner;
    let hasEnded = false;
    const credential: Watched = {
      id,
      owner,
      ...(loggedInAt !== undefined && { loggedInAt }),
      names,
      stillCounts,
      isLive: () =>
        !hasEnded &&
        owner.state === 'active' &&
        owner.role === role &&
        owner.plan === plan &&
        (owner.bridge || !bridge) &&
        // Open work has the limits of the moment at which it began.
        (owner.buckets === buckets || isDeepStrictEqual(owner.buckets, buckets)) &&
        // Work for a team must not stay open after its user has left the team, or with previous limits.
        (owner.teams === teams || teams.every((team) => owner.teams.some((now) => isDeepStrictEqual(now, team)))),
      onEnd(listener) {
        listeners.add(listener);
        watch(credential);
        // It may have ended since it was read.
        look(credential).catch(onError);
        return () => {
          listeners.delete(listener);
          if (listeners.size === 0) unwatch(credential);
        };
      },
      end() {
        hasEnded = true;
        unwatch(credential);
        const told = [...listeners];
        listeners.clear();
        for (const listener of told) listener();
      },
    };
    return credential;
  }

  return {
    create,
    ownerChanged(owner) {
      for (const credential of [...watched]) {
        if (credential.owner === owner && !credential.isLive()) credential.end();
      }
    },
    changed(ids) {
      if (watched.size === 0) return;
      if (ids === 'all') {
        for (const credential of [...watched]) look(credential).catch(onError);
        return;
      }
      for (const id of ids) {
        if (typeof id !== 'string') continue;
        for (const credential of [...(byName.get(id) ?? [])]) look(credential).catch(onError);
      }
    },
    async lookAtAll() {
      for (const credential of [...watched]) await look(credential);
    },
  };
}
