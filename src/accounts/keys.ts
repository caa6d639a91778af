import { AppError } from '../platform/errors/app-error.ts';
import type { UserCall } from './access.ts';
import type { AccountsCore } from './accounts-core.ts';
import { requireNotClosing } from './closing.ts';
import type { NewKey } from './contract/own-data.ts';
import { type CompletionKey, type CompletionKeys, MAX_KEYS } from './owners.ts';

/** The caller's own keys of the completions service. */
export function createOwnKeys({ completionKeys, owners }: Pick<AccountsCore, 'completionKeys' | 'owners'>) {
  function keysHere(): CompletionKeys {
    const keys = completionKeys();
    if (keys === undefined) throw new AppError('COMPLETIONS_UNAVAILABLE');
    return keys;
  }

  return {
    async create(input: NewKey, { caller: { user }, head }: UserCall): Promise<CompletionKey> {
      const keys = keysHere();
      requireNotClosing(user);
      const owner = await owners.ownerOf(user.id);
      const most = owner === undefined ? MAX_KEYS : owners.maxKeys(owner);
      if ((await keys.list(user.id)).length >= most) throw new AppError('TOO_MANY_KEYS', { most });
      const by = { actor: user.id, head };
      const issued = await keys.create(user.id, input, by);
      // Requests that come together see the same list before: none of them may leave more keys than there can be.
      if ((await keys.list(user.id)).length > most) {
        await keys.remove(user.id, issued.id, by);
        throw new AppError('TOO_MANY_KEYS', { most });
      }
      return issued;
    },
    list: async ({ caller: { user } }: UserCall) => ({ keys: await keysHere().list(user.id) }),
    remove: (id: string, { caller: { user }, head }: UserCall) =>
      keysHere().remove(user.id, id, { actor: user.id, head }),
  };
}
