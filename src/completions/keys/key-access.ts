import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { FailureThrottle } from '../../platform/http/failure-throttle.ts';
import { bearerToken, type Guard, type RequestHead } from '../../platform/http/surface.ts';
import type { Owner, OwnerOf } from '../../platform/identity/owner.ts';
import { createSecretMatcher } from '../../platform/secrets/tokens.ts';
import type { CompletionsSettings } from '../settings.ts';
import type { KeyHolder } from './admission.ts';
import type { Budgets } from './budgets.ts';
import { type FoundKey, type KeyLookup, withOwner } from './issued-key.ts';
import { KEY_PREFIX, keyDigest } from './key-register.ts';

export interface KeyAccess {
  /** The holder of the key that a request brings (contract/completions 6). */
  readonly withKey: Guard<KeyHolder>;
  /** As `withKey`, but only for the master key, or for anybody while none is configured. */
  readonly withMasterKey: Guard<KeyHolder>;
  isOpen(): boolean;
  reload(settings: Pick<CompletionsSettings, 'master_key'>): void;
}

export interface KeyAccessOptions {
  readonly settings: Pick<CompletionsSettings, 'master_key'>;
  readonly lookup: KeyLookup;
  readonly budgets: Budgets;
  readonly throttle: FailureThrottle;
  readonly clock: Pick<Clock, 'now'>;
  /** Finds the owner of a key. Undefined: there are no owners here, and a key has only its own limits. */
  readonly ownerOf?: OwnerOf | undefined;
  /** Called once when an address has sent too many wrong keys. */
  onFlood(address: string): void;
}

const MASTER: KeyHolder = { id: 'master', owner: '', isMaster: true, mayUse: () => true, buckets: [] };
const ANYBODY: KeyHolder = { ...MASTER, id: 'open' };
/** The keys in use are few. One that was never found is not kept. */
const MAX_DIGESTS = 1000;
/** Another part of this program. */
export const INTERNAL: KeyHolder = { ...MASTER, id: 'internal' };

export function createKeyAccess(options: KeyAccessOptions): KeyAccess {
  const { lookup, budgets, throttle, clock, ownerOf, onFlood } = options;
  let masterKey = options.settings.master_key;
  let isMasterKey = createSecretMatcher(masterKey);
  /**
   * Digests of keys that were found, by the key, because a digest costs more than all other checks together. A lookup
   * reveals nothing to a stranger: a map compares hashes with a secret seed before it compares texts.
   */
  const digests = new Map<string, string>();

  function digestOf(given: string): string {
    return digests.get(given) ?? keyDigest(given);
  }

  function keepDigest(given: string, digest: string): void {
    if (digests.size >= MAX_DIGESTS) digests.clear();
    digests.set(given, digest);
  }

  function refuse(head: RequestHead): never {
    const { retryAfterSeconds, firstOverLimit } = throttle.note(head.address);
    if (firstOverLimit) onFlood(head.address);
    throw new AppError('INVALID_API_KEY', retryAfterSeconds === undefined ? {} : { retryAfterSeconds });
  }

  function enter(head: RequestHead, found: FoundKey | undefined): KeyHolder | Promise<KeyHolder> {
    if (found === undefined || (found.expiresAt !== undefined && found.expiresAt <= clock.now())) return refuse(head);
    const { owner: ownerId } = found.holder;
    const owner = ownerId === '' ? undefined : ownerOf?.(ownerId);
    return owner instanceof Promise ? owner.then((person) => prepare(found, person)) : prepare(found, owner);
  }

  /** The state and the plan of the owner count from the next request on. */
  function prepare(found: FoundKey, owner: Owner | undefined): KeyHolder | Promise<KeyHolder> {
    if (owner !== undefined && owner.state !== 'active') throw new AppError('INVALID_API_KEY');
    const holder = owner === undefined ? found.holder : withOwner(found, owner);
    let reading: Promise<unknown> | undefined;
    for (const { id, limits } of holder.buckets) {
      const { budget } = limits;
      // A budget of 0 pays for nothing, whatever was spent before.
      const read = budget === undefined || budget.usd === 0 ? undefined : budgets.prepare(id, budget);
      if (read !== undefined) reading = reading === undefined ? read : Promise.all([reading, read]);
    }
    return reading === undefined ? holder : reading.then(() => holder);
  }

  function withKey(head: RequestHead): KeyHolder | Promise<KeyHolder> {
    const given = keyOf(head);
    if (given.startsWith(KEY_PREFIX)) {
      const digest = digestOf(given);
      const found = lookup.find(digest);
      if (!(found instanceof Promise)) return enter(head, found);
      return found.then((key) => {
        if (key !== undefined) keepDigest(given, digest);
        return enter(head, key);
      });
    }
    // Many clients must send a key: while none is configured any word is accepted, except one with our own prefix.
    if (masterKey === '') return ANYBODY;
    return isMasterKey(given) ? MASTER : refuse(head);
  }

  return {
    withKey,
    async withMasterKey(head) {
      const holder = await withKey(head);
      if (!holder.isMaster) throw new AppError('FORBIDDEN');
      return holder;
    },
    isOpen: () => masterKey === '',
    reload(next) {
      masterKey = next.master_key;
      isMasterKey = createSecretMatcher(masterKey);
    },
  };
}

/** Clients of Anthropic's API send the key in a header of its own. */
function keyOf(head: RequestHead): string {
  const bearer = bearerToken(head);
  if (bearer !== '' || !head.path.startsWith('/v1/messages')) return bearer;
  const own = head.headers['x-api-key'];
  return typeof own === 'string' ? own : '';
}
