import { type Static, Type } from 'typebox';

const time = (description: string) => Type.String({ description, examples: ['2030-01-01T00:00:00.000Z'] });

/** An account elsewhere that can log in to the account here. */
export const LinkedLogin = Type.Object({
  id: Type.String({ description: 'The id of the credential.' }),
  provider: Type.String({
    description: 'As in the login address; the address of the provider once it is not configured.',
  }),
  email: Type.String({ description: 'The e-mail address there, as far as it is known.' }),
  createdAt: time('When it was linked.'),
});

export type LinkedLogin = Static<typeof LinkedLogin>;

/** One means to prove who someone is. Never a secret. */
export const Credential = Type.Object({
  id: Type.String(),
  kind: Type.String({ description: '`password`, `totp`, `recovery_codes` or `oauth`.' }),
  state: Type.String({ description: '`active`, or `pending` while an authenticator app is not confirmed.' }),
  provider: Type.Optional(LinkedLogin.properties.provider),
  email: Type.Optional(LinkedLogin.properties.email),
  left: Type.Optional(Type.Integer({ description: 'How many recovery codes are unused.' })),
  createdAt: time('When it was set, enrolled or linked.'),
  lastUsedAt: Type.Union([time('When it last let someone in.'), Type.Null()]),
});

export type Credential = Static<typeof Credential>;
