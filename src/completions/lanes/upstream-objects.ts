import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { ObjectStore } from '../storage/object-store.ts';

/** Something stored at a model API that a request names. */
export interface Reference {
  readonly id: string;
  /** Where the request names it, as a JSON pointer: `/previous_response_id`. */
  readonly path: string;
}

/**
 * The objects that model APIs keep for callers. They lie in the operator's account, which all callers share, so an id
 * passes only when the caller got it from that API itself.
 */
export interface UpstreamObjects {
  /** Notes that an API keeps these for the caller. They count immediately; the database follows. */
  keep(ids: readonly string[], holder: Owned, api: string): void;
  /** Returns what refuses a request on an API: undefined where every object that the request names is the caller's and is there. */
  refusalOf(references: readonly Reference[], holder: Owned): Promise<(api: string) => AppError | undefined>;
}

type Owned = Pick<KeyHolder, 'id' | 'owner'>;

export interface UpstreamObjectsOptions {
  readonly store: Pick<ObjectStore, 'add' | 'apiOf'>;
  readonly clock: Pick<Clock, 'now'>;
  onError(error: unknown): void;
}

/** One response names some tens. Those beyond are not kept, and cannot be named later. */
const MAX_IDS = 1000;
const MAX_ID_LENGTH = 256;
/** Rows that wait to be stored; more than this only when the database stands still. */
const MAX_WAITING = 20_000;
const MAX_REFERENCES = 1000;

export function createUpstreamObjects({ store, clock, onError }: UpstreamObjectsOptions): UpstreamObjects {
  const waiting = new Map<string, { readonly owner: string; readonly api: string }>();

  async function apiOf(id: string, owner: string): Promise<string | undefined> {
    const own = waiting.get(id);
    if (own !== undefined) return own.owner === owner ? own.api : undefined;
    return id.length > MAX_ID_LENGTH ? undefined : store.apiOf(id, owner);
  }

  return {
    keep(ids, holder, api) {
      const owner = ownerOf(holder);
      const fresh = [...new Set(ids)].filter((id) => id.length <= MAX_ID_LENGTH && !waiting.has(id)).slice(0, MAX_IDS);
      if (fresh.length === 0 || waiting.size + fresh.length > MAX_WAITING) return;
      for (const id of fresh) waiting.set(id, { owner, api });
      const created_at = clock.now();
      store
        .add(fresh.map((id) => ({ id, api, owner, created_at })))
        .catch(onError)
        .finally(() => {
          for (const id of fresh) waiting.delete(id);
        });
    },
    async refusalOf(references, holder) {
      const [tooMany] = references.slice(MAX_REFERENCES);
      if (tooMany !== undefined) return () => notStored(tooMany);
      const owner = ownerOf(holder);
      const apis = await Promise.all(references.map(({ id }) => apiOf(id, owner)));
      return (api) => {
        const lost = references.find((_, index) => apis[index] !== api);
        return lost === undefined ? undefined : notStored(lost);
      };
    },
  };
}

function ownerOf({ owner, id }: Owned): string {
  return owner === '' ? id : owner;
}

/** The refusal of a request that names something which is not stored for the caller. */
export function notStored({ path }: Reference): AppError {
  return new AppError('NOTHING_STORED', { field: path.slice(1).replaceAll('/', '.'), issues: [{ path }] });
}
