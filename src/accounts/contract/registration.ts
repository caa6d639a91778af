import { type Static, Type } from 'typebox';
import { Email, Message, MessageAndUser, NextCursor, Nothing, PageQuery } from './conventions.ts';

const email = Type.String({ examples: ['ann@example.org'] });
const Redirect = { 302: Type.Null({ description: 'The browser is redirected.' }) };

/** Someone who wants an account. */
export const Application = Type.Object({
  name: Type.Optional(Type.String({ examples: ['Ann'] })),
  email: Type.Optional(email),
  password: Type.Optional(Type.String()),
  code: Type.Optional(Type.String({ description: 'The mailed code; or the token of register/verify instead.' })),
  verificationToken: Type.Optional(Type.String()),
});
export type Application = Static<typeof Application>;

export const FirstAdmin = Type.Object({
  token: Type.String({ description: 'From the link that was printed at the start.' }),
  name: Type.String({ examples: ['Ann'] }),
  email,
  password: Type.String(),
  registration: Type.Optional(
    Type.Enum(['open', 'invite', 'closed'], {
      description: 'Who may create an account, if `accounts.registration` is not configured.',
    }),
  ),
  default_plan: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'Plan of users without another plan, if `accounts.default_plan` is not configured.',
    }),
  ),
});
export type FirstAdmin = Static<typeof FirstAdmin>;

export const SetupOptions = Type.Object({
  registration: Type.Object({
    value: Type.Enum(['open', 'invite', 'closed']),
    isConfigured: Type.Boolean({ description: 'True: the configuration sets the value, so it cannot be chosen here.' }),
  }),
  default_plan: Type.Object({
    value: Type.String(),
    isConfigured: Type.Boolean(),
    plans: Type.Array(Type.Object({ name: Type.String(), pays: Type.Boolean(), bridge: Type.Boolean() })),
  }),
});
export type SetupOptions = Static<typeof SetupOptions>;

export const NewInvitation = Type.Object(
  {
    email: Type.Optional(
      Type.String({
        examples: ['ben@example.org'],
        description: 'The address of the invited person. Absent: anyone who has the link.',
      }),
    ),
    role: Type.Optional(Type.String({ description: 'Never higher than the caller’s role. Default: `user`.' })),
    plan: Type.Optional(Type.String({ maxLength: 64, description: 'Default: `accounts.default_plan`.' })),
    team: Type.Optional(
      Type.String({ maxLength: 64, description: 'The id of a team that the user joins as a member.' }),
    ),
    mail: Type.Optional(
      Type.Boolean({
        description: 'Mail the link, so that it verifies the address. Default: true if `email` is given.',
      }),
    ),
  },
  { additionalProperties: false },
);
export type NewInvitation = Static<typeof NewInvitation>;

export const Acceptance = Type.Object(
  {
    token: Type.String({ maxLength: 200 }),
    name: Type.String({ examples: ['Ben'] }),
    email: Type.Optional(Type.String({ description: 'For an invitation without an address.' })),
    password: Type.String(),
  },
  { additionalProperties: false },
);
export type Acceptance = Static<typeof Acceptance>;

export const Invitation = Type.Object({
  id: Type.String(),
  email: Type.Union([Type.String(), Type.Null()]),
  mailed: Type.Boolean(),
  role: Type.String(),
  plan: Type.Union([Type.String(), Type.Null()]),
  team: Type.Union([Type.String(), Type.Null()]),
  createdBy: Type.String(),
  createdAt: Type.String(),
  expiresAt: Type.String(),
});
export type Invitation = Static<typeof Invitation>;

/** All ways to an account: registration, invitations, the first administrator, providers of logins. */
export const registrationOperations = {
  listMethods: {
    summary: 'Returns how users log in and register here, for login pages.',
    response: {
      200: Type.Object({
        providers: Type.Array(Type.Object({ id: Type.String(), label: Type.String() })),
        registration: Type.Enum(['open', 'invite', 'closed']),
      }),
    },
  },
  sendCode: { summary: 'Mails a verification code.', body: Email, response: { 200: Message } },
  verifyCode: {
    summary: 'Checks a verification code and returns a token that replaces it.',
    body: Type.Object({ ...Email.properties, code: Type.String({ examples: ['123456'] }) }),
    response: {
      200: Type.Object({ message: Type.String(), verified: Type.Literal(true), verificationToken: Type.String() }),
    },
  },
  register: {
    summary: 'Registers a user, without logging in.',
    body: Application,
    response: { 201: MessageAndUser },
  },
  invite: {
    summary: 'Creates an invitation for seven days: by mail, or as a link to copy.',
    body: NewInvitation,
    response: {
      201: Type.Object({
        invitation: Invitation,
        link: Type.Optional(
          Type.String({ description: 'To copy, if it was not mailed. Shown only in this response.' }),
        ),
        token: Type.Optional(Type.String({ description: 'The token in the link.' })),
      }),
    },
  },
  listInvitations: {
    summary: 'Invitations that were not accepted yet, newest first.',
    query: PageQuery,
    response: { 200: Type.Object({ invitations: Type.Array(Invitation), nextCursor: NextCursor }) },
  },
  revokeInvitation: { summary: 'Revokes an invitation.', response: Nothing },
  acceptInvitation: {
    summary: 'Creates the account of an invitation, without logging in.',
    body: Acceptance,
    response: { 201: MessageAndUser },
  },
  readSetup: {
    summary: 'The settings that the first administrator may choose, for the set-up page.',
    body: Type.Object(
      { token: Type.String({ description: 'From the link that was printed at the start.' }) },
      { additionalProperties: false },
    ),
    response: { 200: SetupOptions },
  },
  completeSetup: {
    summary: 'Creates the first administrator, with the token of the printed link. Works once.',
    body: FirstAdmin,
    response: { 201: MessageAndUser },
  },
  beginOauth: {
    summary:
      'Redirects the browser to a provider for login; with link=1, to link the account there to the caller’s own.',
    query: Type.Object({
      link: Type.Optional(Type.Literal('1')),
      challenge: Type.Optional(
        Type.String({
          pattern: '^[A-Za-z0-9_-]{43}$',
          description:
            'For a web console at another address: base64url(SHA-256(verifier)); it sends the verifier with the exchange code.',
        }),
      ),
    }),
    response: Redirect,
  },
  finishOauth: {
    summary:
      'The address to which a provider redirects the browser. It redirects to the console with a code to exchange.',
    response: Redirect,
  },
};
