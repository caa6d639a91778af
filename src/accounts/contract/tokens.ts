import { type Static, Type } from 'typebox';
import { Nothing, optionalBody } from './conventions.ts';

const strict = { additionalProperties: false };
const SCOPES = ['bridge', 'completions', 'account', 'admin'] as const;
const Scope = Type.Unsafe<(typeof SCOPES)[number]>({ type: 'string', enum: [...SCOPES] });
const NAME = { minLength: 1, maxLength: 200, pattern: '^[^\\u0000-\\u001f\\u007f]*$' };
const Name = Type.String({ ...NAME, examples: ['laptop'] });

/** Strict, because a misspelt member would give a token that does more, or lasts longer, than was meant. */
export const NewAccessToken = Type.Object(
  {
    name: Name,
    scopes: Type.Array(Scope, {
      minItems: 1,
      maxItems: SCOPES.length,
      description:
        'What it may be used for: `bridge`, `completions`, `account` (the user’s own account) and `admin`, which also shows the work of others.',
      examples: [['completions']],
    }),
    expires_in_days: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 3650,
        description: 'Default: 90; at most `accounts.tokens.max_lifetime`.',
      }),
    ),
    team: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: 'Id of a team of yours: all work with the token is for it.',
      }),
    ),
  },
  { ...strict, $id: 'NewAccessToken' },
);
export type NewAccessToken = Static<typeof NewAccessToken>;

const TokenFields = {
  id: Type.String(),
  name: Type.String(),
  hint: Type.String({ description: 'How the token begins.' }),
  scopes: Type.Array(Scope),
  team: Type.Union([Type.String(), Type.Null()], { description: 'The team that all work with it is for.' }),
  createdAt: Type.String(),
  expiresAt: Type.String(),
  lastUsedAt: Type.Union([Type.String(), Type.Null()], { description: 'To the minute.' }),
};
export const AccessToken = Type.Object(TokenFields, { $id: 'AccessToken' });
export type AccessToken = Static<typeof AccessToken>;

const IssuedToken = Type.Object({
  ...TokenFields,
  token: Type.String({ description: 'Shown only in this response.' }),
});
const Tokens = { 200: Type.Object({ tokens: Type.Array(AccessToken) }) };

export const NewServiceAccount = Type.Object(
  {
    name: Name,
    plan: Type.Optional(Type.String({ maxLength: 64, description: 'Its plan. Empty: `accounts.default_plan`.' })),
  },
  strict,
);
export type NewServiceAccount = Static<typeof NewServiceAccount>;

export const ServiceAccount = Type.Object(
  {
    id: Type.String(),
    owner: Type.String({ description: 'What its sessions, jobs and usage are recorded under.' }),
    name: Type.String(),
    plan: Type.String(),
    createdAt: Type.String(),
  },
  { $id: 'ServiceAccount' },
);
export type ServiceAccount = Static<typeof ServiceAccount>;

/** The scopes that a device may get. */
const DeviceScope = Type.Unsafe<'bridge' | 'completions' | 'account'>({
  type: 'string',
  enum: ['bridge', 'completions', 'account'],
});

export const NewDeviceLogin = Type.Object(
  {
    client_id: Type.Optional(
      Type.String({ ...NAME, maxLength: 64, description: 'What the program calls itself.', examples: ['trestle'] }),
    ),
    scope: Type.Optional(
      Type.String({
        maxLength: 200,
        description: '`bridge`, `completions` and `account`, separated by spaces. Default: all three.',
      }),
    ),
    name: Type.Optional(Type.String({ ...NAME, description: 'Name of the token. Default: the client_id.' })),
    expires_in_days: Type.Optional(Type.Integer({ minimum: 1, maximum: 3650, description: 'As for any token.' })),
  },
  strict,
);
export type NewDeviceLogin = Static<typeof NewDeviceLogin>;

const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
export const DeviceGrant = Type.Object({
  grant_type: Type.Optional(Type.Literal(DEVICE_GRANT)),
  device_code: Type.String({ maxLength: 200 }),
});
export type DeviceGrant = Static<typeof DeviceGrant>;

const IssuedDeviceToken = Type.Object({
  access_token: Type.String({ description: 'A personal access token. It is shown only in this response.' }),
  token_type: Type.Literal('Bearer'),
  expires_in: Type.Integer({ description: 'Seconds.' }),
  scope: Type.String(),
  id: Type.String({ description: 'Of the token.' }),
});
export type IssuedDeviceToken = Static<typeof IssuedDeviceToken>;

export const DeviceRequest = Type.Object({
  client: Type.String(),
  name: Type.String(),
  address: Type.String({ description: 'Where the request of the device came from.' }),
  scopes: Type.Array(DeviceScope),
  createdAt: Type.String(),
  expiresAt: Type.String(),
});
export type DeviceRequest = Static<typeof DeviceRequest>;

const DeviceDecision = Type.Object({ approve: Type.Boolean() }, strict);
export type DeviceDecision = Static<typeof DeviceDecision>;

export const SignedTokenRequest = Type.Object(
  {
    scopes: Type.Optional(
      Type.Array(Scope, {
        minItems: 1,
        maxItems: SCOPES.length,
        description: 'At most those of the credential. Default: all of them.',
      }),
    ),
  },
  strict,
);
export type SignedTokenRequest = Static<typeof SignedTokenRequest>;

/** Personal access tokens, how devices get them, and service accounts with theirs. */
export const tokenOperations = {
  createAccessToken: {
    summary:
      'Creates a personal access token, which is shown only in this response. Needs a login from the last five minutes.',
    body: NewAccessToken,
    response: { 201: IssuedToken },
  },
  listAccessTokens: { summary: 'The caller’s personal access tokens.', response: Tokens },
  revokeAccessToken: { summary: 'Revokes a token of the caller: it stops working immediately.', response: Nothing },
  beginDeviceLogin: {
    summary:
      'Starts the login of a program without a browser (RFC 8628): the user enters user_code at verification_uri.',
    body: optionalBody(NewDeviceLogin, true),
    response: {
      200: Type.Object({
        device_code: Type.String(),
        user_code: Type.String({ examples: ['WDJB-MJHT'] }),
        verification_uri: Type.String(),
        expires_in: Type.Integer({ description: 'Seconds.' }),
        interval: Type.Integer({ description: 'Seconds to wait between two calls of device/token.' }),
      }),
    },
  },
  pollDeviceLogin: {
    summary: 'Returns the token for a device code after the user has approved it.',
    body: DeviceGrant,
    response: { 200: IssuedDeviceToken },
  },
  showDeviceRequest: {
    summary: 'Returns what the program with this user code requests. Needs a login from the last five minutes.',
    response: { 200: DeviceRequest },
  },
  decideDeviceRequest: {
    summary: 'Approves or denies a user code. Needs a login from the last five minutes.',
    body: DeviceDecision,
    response: Nothing,
  },
  issueSignedToken: {
    summary:
      'Returns a signed token (JWT, ES256) for the bridge and completions, valid for five minutes. Its rights are those of the login or access token.',
    body: optionalBody(SignedTokenRequest, true),
    response: {
      200: Type.Object({
        access_token: Type.String(),
        token_type: Type.Literal('Bearer'),
        expires_in: Type.Integer({ description: 'Seconds.' }),
        scope: Type.String(),
      }),
    },
  },
  readKeySet: {
    summary: 'The public keys for checking signed tokens (RFC 7517).',
    response: { 200: Type.Object({ keys: Type.Array(Type.Object({}, { additionalProperties: true })) }) },
  },
  createService: {
    summary: 'Creates a service account, which has tokens and no password.',
    body: NewServiceAccount,
    response: { 201: Type.Object({ service: ServiceAccount }) },
  },
  listServices: {
    summary: 'The service accounts.',
    response: { 200: Type.Object({ services: Type.Array(ServiceAccount) }) },
  },
  removeService: { summary: 'Removes a service account and its tokens.', response: Nothing },
  createServiceToken: {
    summary: 'Creates a token for a service account. The token is shown only in this response.',
    body: NewAccessToken,
    response: { 201: IssuedToken },
  },
  listServiceTokens: { summary: 'The tokens of a service account.', response: Tokens },
  revokeServiceToken: { summary: 'Revokes a token of a service account.', response: Nothing },
};
