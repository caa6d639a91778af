import { seesAll } from '../principal.ts';
import type { SessionStore } from '../storage/session-store.ts';
import type { CallNames } from './call-names.ts';
import type { Place, SessionRoutes } from './session-routes.ts';

/** Where something lives that a principal may see: on another node, here, or nowhere that we know of. */
export type FindPlace = (principal: string, about: Pick<CallNames, 'names' | 'makes'>) => Promise<Place | undefined>;

export interface FindPlaceOptions {
  readonly localId: string;
  readonly routes: Pick<SessionRoutes, 'find'>;
  readonly sessions: Pick<SessionStore, 'find' | 'findAnyOwner'>;
}

/** Sessions that run here stay here, whatever the rules say meanwhile. */
export function createFindPlace({ localId, routes, sessions }: FindPlaceOptions): FindPlace {
  return async (principal, about) => {
    const place = await routes.find(principal, about);
    if (place !== undefined) return place;
    const [first] = about.names;
    if (first?.kind !== 'session') return undefined;
    const own = await sessions.find(first.name, principal);
    const looksFurther = seesAll(principal) && !about.makes;
    const found = own?.closed_at === null || !looksFurther ? own : await sessions.findAnyOwner(first.name);
    return found?.closed_at === null ? { nodeId: localId, owner: found.owner } : undefined;
  };
}
