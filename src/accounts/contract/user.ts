import { type Static, Type } from 'typebox';

const time = (description: string) => Type.String({ description, examples: ['2030-01-01T00:00:00.000Z'] });

/** A user as everyone who may see one sees it (contract/accounts, Conventions). */
export const User = Type.Object({
  id: Type.String(),
  uuid: Type.String({ description: 'The same as `id`.' }),
  name: Type.String(),
  username: Type.String({ description: 'The same as `name`.' }),
  email: Type.String(),
  emailVerified: Type.Boolean(),
  mfaEnabled: Type.Boolean(),
  mfa: Type.Object({
    totpEnabled: Type.Boolean(),
    totpPending: Type.Boolean(),
    totpSecretIssuedAt: Type.Optional(time('When the secret was made.')),
    totpConfirmedAt: Type.Optional(time('When the first right code came.')),
    totpLockedUntil: Type.Optional(time('Codes are not looked at until then.')),
  }),
  role: Type.String(),
  groups: Type.Array(Type.String()),
  permissions: Type.Array(Type.String()),
  active: Type.Boolean(),
  proxyUuid: Type.Union([Type.String(), Type.Null()], {
    description: 'A credential: null for those who may neither change users nor are this one.',
  }),
  proxyUuidExpiresAt: Type.Union([time('When the proxy UUID ends.'), Type.Null()]),
  createdAt: time('When the account was made.'),
  deletesAt: Type.Optional(time('When the account is deleted, because its owner asked for it.')),
});

export type User = Static<typeof User>;
