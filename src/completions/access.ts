import { AppError } from '../platform/errors/app-error.ts';
import { bearerToken } from '../platform/http/bearer-token.ts';
import type { Guard } from '../platform/http/surface.ts';
import { createSecretMatcher } from '../platform/secrets/token-digest.ts';
import type { CompletionsSettings } from './settings.ts';

export interface CompletionsAccess {
  readonly withKey: Guard<undefined>;
  isOpen(): boolean;
  reload(settings: Pick<CompletionsSettings, 'master_key'>): void;
}

/** Open while no key is configured; otherwise `Authorization: Bearer <key>` (contract/completions 6). */
export function createCompletionsAccess(settings: Pick<CompletionsSettings, 'master_key'>): CompletionsAccess {
  let masterKey = settings.master_key;
  let matches = createSecretMatcher(masterKey);
  return {
    withKey(head) {
      if (masterKey === '') return undefined;
      if (!matches(bearerToken(head))) throw new AppError('INVALID_API_KEY');
      return undefined;
    },
    isOpen: () => masterKey === '',
    reload(next) {
      masterKey = next.master_key;
      matches = createSecretMatcher(masterKey);
    },
  };
}
