import { AppError } from '../platform/errors/app-error.ts';
import type { Route } from '../platform/http/surface.ts';
import type { AccountsCore } from './accounts-core.ts';

/** Spec/accounts 4.3: answers that it is unimplemented, to those who are logged in. */
export function configurationRoutes({ access }: Pick<AccountsCore, 'access'>): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/api/auth/config/sync',
      guard: access.user,
      summary: 'Configuration sync; not implemented.',
      handle() {
        throw new AppError('NOT_IMPLEMENTED');
      },
    },
  ];
}
