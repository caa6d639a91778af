import { Type } from 'typebox';
import { User } from './user.ts';

const tokens = {
  token: Type.String(),
  access_token: Type.String({ description: 'The session token, the same as `token`.' }),
  refresh_token: Type.String(),
  token_type: Type.String(),
  expiresAt: Type.String(),
  expires_in: Type.Integer({ description: 'Seconds.' }),
};

/** Logged in (contract/accounts: login). */
export const LoginAnswer = Type.Object({
  message: Type.String(),
  ...tokens,
  mfaRequired: Type.Literal(false),
  mfa_required: Type.Literal(false),
  user: User,
});

/** Half-way: the second factor is missing. The ticket opens mfa/verify and nothing else. */
export const SecondFactorAnswer = Type.Object({
  mfaRequired: Type.Literal(true),
  mfa_required: Type.Literal(true),
  mfaMethod: Type.Literal('totp'),
  mfa_method: Type.Literal('totp'),
  mfaTicket: Type.String(),
  mfa_ticket: Type.String(),
  mfaToken: Type.String(),
});

/** A session that takes the place of the one that the request came with. */
export const FreshSession = Type.Object({
  message: Type.String(),
  ...tokens,
  user: User,
});
