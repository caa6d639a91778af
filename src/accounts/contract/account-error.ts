import { Type } from 'typebox';

/** Every error of the service (contract/accounts, Conventions). */
export const AccountError = Type.Object({
  error: Type.String({ description: 'What went wrong, in snake case.' }),
  message: Type.String(),
  requestId: Type.String(),
  details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
  retryAt: Type.Optional(Type.String({ description: 'From when on it is looked at again.' })),
});
