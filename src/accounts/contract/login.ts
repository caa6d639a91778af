import { type Static, Type } from 'typebox';
import { Email, Message, MessageAndUser, Nothing, optionalBody, optionalText, User } from './conventions.ts';

const time = (description: string) => Type.String({ description, examples: ['2030-01-01T00:00:00.000Z'] });

const tokens = {
  token: Type.String(),
  access_token: Type.String({ description: 'The session token, the same as `token`.' }),
  refresh_token: Type.String(),
  token_type: Type.String(),
  expiresAt: Type.String(),
  expires_in: Type.Integer({ description: 'Seconds.' }),
};

/** Logged in. */
export const LoginAnswer = Type.Object({
  message: Type.String(),
  ...tokens,
  mfaRequired: Type.Literal(false),
  mfa_required: Type.Literal(false),
  user: User,
});
export type LoginAnswer = Static<typeof LoginAnswer>;

/** Half-way: the second factor is missing. The ticket opens mfa/verify and nothing else. */
export const SecondFactorAnswer = Type.Object({
  mfaRequired: Type.Literal(true),
  mfa_required: Type.Literal(true),
  mfaMethod: Type.Literal('totp'),
  mfa_method: Type.Literal('totp'),
  mfaMethods: Type.Array(Type.String(), { description: '`totp`, and `passkey` if the user has one.' }),
  mfaTicket: Type.String(),
  mfa_ticket: Type.String(),
  mfaToken: Type.String(),
});
export type SecondFactorAnswer = Static<typeof SecondFactorAnswer>;

const Answer = Type.Union([LoginAnswer, SecondFactorAnswer]);

const Refresh = {
  body: Type.Object({ refresh_token: Type.String() }),
  response: {
    200: Type.Object({
      access_token: Type.String(),
      refresh_token: Type.String(),
      token_type: Type.String(),
      expires_in: Type.Integer(),
      expiresAt: Type.String(),
    }),
  },
};

/** One login session, as its owner sees it. */
export const OwnSession = Type.Object({
  id: Type.String(),
  current: Type.Boolean(),
  createdAt: Type.String(),
  lastSeenAt: Type.String(),
  expiresAt: Type.String(),
  address: Type.String(),
  userAgent: Type.String(),
});
export type OwnSession = Static<typeof OwnSession>;

/** An account elsewhere, or a passkey, that can log in to the account here. */
export const LinkedLogin = Type.Object({
  id: Type.String({ description: 'The id of the credential.' }),
  provider: Type.String({
    description:
      'As in the login address; the address of the provider if it is no longer configured. `passkey` for a passkey.',
  }),
  email: Type.String({ description: 'The e-mail address there, if it is known.' }),
  name: Type.Optional(Type.String({ description: 'The name of a passkey.' })),
  createdAt: time('When it was linked.'),
});
export type LinkedLogin = Static<typeof LinkedLogin>;

/** One means to prove who someone is. Never a secret. */
export const Credential = Type.Object({
  id: Type.String(),
  kind: Type.String({ description: '`password`, `totp`, `recovery_codes`, `oauth` or `passkey`.' }),
  state: Type.String({ description: '`active`, or `pending` while an authenticator app is not confirmed.' }),
  provider: Type.Optional(LinkedLogin.properties.provider),
  email: Type.Optional(LinkedLogin.properties.email),
  name: LinkedLogin.properties.name,
  left: Type.Optional(Type.Integer({ description: 'How many recovery codes are unused.' })),
  createdAt: time('When it was set, enrolled or linked.'),
  lastUsedAt: Type.Union([time('When it was last used for a login.'), Type.Null()]),
});
export type Credential = Static<typeof Credential>;

/** A session that takes the place of the one that the request came with. */
const FreshSession = Type.Object({ message: Type.String(), ...tokens, user: User });
const Linked = {
  linkedLogins: Type.Array(LinkedLogin, {
    description: 'Linked logins and passkeys that can log in to this account.',
  }),
};
const NewSession = { 200: Type.Object({ ...FreshSession.properties, ...Linked }) };

export const ResetByToken = Type.Object({
  token: Type.String(),
  password: Type.String(),
  remove_links: Type.Optional(
    Type.Boolean({ description: 'Also removes linked logins and passkeys, in case someone else has added one.' }),
  ),
});
export type ResetByToken = Static<typeof ResetByToken>;

const base64url = (maxLength: number) => Type.String({ maxLength, pattern: '^[A-Za-z0-9_-]*$' });

/** What `navigator.credentials` gives, by `toJSON()`. */
const GivenPasskey = Type.Object({
  id: base64url(2048),
  rawId: base64url(2048),
  type: Type.Literal('public-key'),
  response: Type.Object({
    clientDataJSON: base64url(8192),
    attestationObject: Type.Optional(base64url(8192)),
    transports: Type.Optional(Type.Array(Type.String({ maxLength: 32 }), { maxItems: 16 })),
    authenticatorData: Type.Optional(base64url(8192)),
    signature: Type.Optional(base64url(8192)),
    userHandle: Type.Optional(base64url(128)),
  }),
});
export type GivenPasskey = Static<typeof GivenPasskey>;

const PasskeyQuery = Type.Object(
  {
    add: Type.Optional(
      Type.Literal('1', {
        description: 'Given: adds a passkey, with a login from the last five minutes. Absent: logs in.',
      }),
    ),
  },
  { additionalProperties: false },
);

const mfa = User.properties.mfa;
const Reauthentication = Type.Object({ password: optionalText, code: optionalText, recoveryCode: optionalText });
const RecoveryCodes = Type.Object({ recoveryCodes: Type.Array(Type.String()) });

/** Login, login sessions, second factor, passwords, means of login. */
export const loginOperations = {
  logIn: {
    summary: 'Logs in, or asks for the second factor.',
    body: Type.Object({
      identifier: Type.Optional(Type.String({ description: 'Name or e-mail address.', examples: ['ann@example.org'] })),
      account: optionalText,
      username: optionalText,
      email: optionalText,
      password: optionalText,
      totpCode: Type.Optional(Type.String({ description: 'Both factors in one request.' })),
    }),
    response: { 200: Answer },
  },
  proveSecondFactor: {
    summary: 'The second step of a login: a code, or a recovery code.',
    body: Type.Object({
      mfa_ticket: optionalText,
      mfaTicket: optionalText,
      mfaToken: optionalText,
      code: optionalText,
      totpCode: optionalText,
      recoveryCode: optionalText,
    }),
    response: { 200: LoginAnswer },
  },
  exchangeCode: {
    summary: 'Exchanges the one-time code of a login with another provider for a session.',
    body: Type.Object({
      exchange_code: Type.String(),
      verifier: Type.Optional(Type.String({ description: 'The id of the challenge with which the login began.' })),
    }),
    response: { 200: Answer },
  },
  refresh: { summary: 'Exchanges a refresh token for a new pair of tokens.', ...Refresh },
  refreshAlias: { summary: 'The same as token/refresh.', ...Refresh },

  readSession: {
    summary: 'The current session and its user.',
    response: {
      200: Type.Object({
        user: User,
        session: Type.Object({ id: Type.String(), createdAt: Type.String(), expiresAt: Type.String() }),
      }),
    },
  },
  logOut: { summary: 'Logs out: the session and its refresh tokens end.', response: Nothing },
  listSessions: {
    summary: 'The caller’s login sessions, newest first.',
    response: { 200: Type.Object({ sessions: Type.Array(OwnSession) }) },
  },
  endSession: { summary: 'Ends one login session of the caller.', response: Nothing },
  endOtherSessions: { summary: 'Ends all login sessions of the caller except this one.', response: Nothing },

  provisionTotp: {
    summary: 'Creates a secret for an authenticator app. It becomes active with its first correct code.',
    body: optionalBody(
      Type.Object({
        issuer: optionalText,
        account: optionalText,
        password: Type.Optional(Type.String({ description: 'Required unless the login is at most five minutes old.' })),
      }),
    ),
    response: {
      200: Type.Object({
        secret: Type.String(),
        otpauth_url: Type.String(),
        qr: Type.String({ description: 'An SVG as a data URL.' }),
        issuer: Type.String(),
        account: Type.String(),
        mfaToken: Type.String(),
        mfa,
        user: User,
      }),
    },
  },
  confirmTotp: {
    summary: 'Enables the second factor with its first code; all other sessions end.',
    body: Type.Object({ token: optionalText, code: Type.String({ examples: ['123456'] }) }),
    response: { 200: Type.Object({ ...FreshSession.properties, ...RecoveryCodes.properties }) },
  },
  disableMfa: {
    summary: 'Disables the second factor, with password and code; all other sessions end.',
    body: Reauthentication,
    response: { 200: MessageAndUser },
  },
  readMfaStatus: {
    summary: 'Returns whether the second factor is enabled.',
    response: {
      200: Type.Object({ enabled: Type.Boolean(), mfa, user: User, recoveryCodesLeft: Type.Integer() }),
    },
  },
  renewRecoveryCodes: {
    summary: 'Creates ten new recovery codes; the old ones stop working.',
    body: Reauthentication,
    response: { 200: RecoveryCodes },
  },

  changePassword: {
    summary: 'Changes the password, with the current one; all other sessions end.',
    body: Type.Object({ currentPassword: optionalText, newPassword: Type.String() }),
    response: NewSession,
  },
  startReset: {
    summary: 'Mails a token for a new password to the caller’s address.',
    body: optionalBody(Type.Object({ email: optionalText })),
    response: { 202: Message },
  },
  confirmReset: {
    summary: 'Sets a new password with the mailed token; all other sessions end.',
    body: ResetByToken,
    response: NewSession,
  },
  startForgot: {
    summary: 'Mails a token for a new password, if there is an account with this address.',
    body: Email,
    response: { 202: Message },
  },
  confirmForgot: {
    summary: 'Sets a new password with the mailed token, without logging in; all sessions end.',
    body: ResetByToken,
    response: { 200: Type.Object({ ...Message.properties, ...Linked }) },
  },

  passkeyOptions: {
    summary: 'Starts a login with a passkey, or the registration of a passkey: returns the options for the browser.',
    query: PasskeyQuery,
    body: optionalBody(
      Type.Object({
        mfa_ticket: Type.Optional(Type.String({ description: 'Of a login that asks for a second factor.' })),
      }),
      true,
    ),
    response: {
      200: Type.Object({
        publicKey: Type.Object(
          {},
          {
            additionalProperties: true,
            description: 'For parseRequestOptionsFromJSON or parseCreationOptionsFromJSON.',
          },
        ),
      }),
    },
  },
  verifyPasskey: {
    summary: 'Logs in with a passkey, or adds one.',
    query: PasskeyQuery,
    body: Type.Object(
      {
        credential: GivenPasskey,
        name: Type.Optional(Type.String({ maxLength: 256, description: 'What the owner calls a new passkey.' })),
        mfa_ticket: Type.Optional(Type.String({ description: 'Of a login that asks for a second factor.' })),
      },
      { additionalProperties: false },
    ),
    response: { 200: Type.Union([LoginAnswer, Type.Object({ credential: Credential })]) },
  },

  listCredentials: {
    summary: 'The caller’s password, second factor, recovery codes, linked logins and passkeys.',
    response: { 200: Type.Object({ credentials: Type.Array(Credential) }) },
  },
  removeCredential: {
    summary:
      'Removes the password, a linked login or a passkey, but not the last way to log in; all other sessions end.',
    response: Nothing,
  },
};
