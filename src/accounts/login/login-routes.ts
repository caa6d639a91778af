import { type Static, Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { LoginAnswer, SecondFactorAnswer } from '../contract/login.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { Login } from './login.ts';
import type { Refresh } from './refresh.ts';

const optional = Type.Optional(Type.String());

const Credentials = Type.Object({
  identifier: Type.Optional(Type.String({ description: 'Name or e-mail address.', examples: ['ann@example.org'] })),
  account: optional,
  username: optional,
  email: optional,
  password: optional,
  totpCode: Type.Optional(Type.String({ description: 'Both factors at once.' })),
});
const SecondFactor = Type.Object({
  mfa_ticket: optional,
  mfaTicket: optional,
  mfaToken: optional,
  code: optional,
  totpCode: optional,
  recoveryCode: optional,
});
const ExchangeCode = Type.Object({
  exchange_code: Type.String(),
  verifier: Type.Optional(Type.String({ description: 'Of the challenge that the login began with.' })),
});
const RefreshToken = Type.Object({ refresh_token: Type.String() });
const Refreshed = Type.Object({
  access_token: Type.String(),
  refresh_token: Type.String(),
  token_type: Type.String(),
  expires_in: Type.Integer(),
  expiresAt: Type.String(),
});
const Answer = Type.Union([LoginAnswer, SecondFactorAnswer]);

export function loginRoutes(
  { access }: Pick<AccountsCore, 'access'>,
  login: Login,
  refresh: Refresh,
): readonly Route[] {
  const guard = access.anyone();
  const refreshAt = (path: string, summary: string): Route => ({
    method: 'POST',
    path,
    guard,
    summary,
    body: 'json',
    bodyLimit: BODY_LIMIT,
    schema: { body: RefreshToken, response: { 200: Refreshed } },
    handle: (call) => refresh((call.body as Static<typeof RefreshToken>).refresh_token, call),
  });
  return [
    {
      method: 'POST',
      path: '/api/auth/login',
      guard,
      summary: 'Logs in, or asks for the second factor.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Credentials, response: { 200: Answer } },
      handle(call) {
        const { password, totpCode, ...names } = call.body as Static<typeof Credentials>;
        const identifier = names.identifier || names.account || names.username || names.email;
        if (!identifier || !password) throw new AppError('MISSING_CREDENTIALS', { fields: 'identifier and password' });
        return login.withPassword({ identifier, password, code: totpCode }, call);
      },
    },
    {
      method: 'POST',
      path: '/api/auth/mfa/verify',
      guard,
      summary: 'The second step of a login: a code, or a recovery code.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: SecondFactor, response: { 200: LoginAnswer } },
      handle(call) {
        const given = call.body as Static<typeof SecondFactor>;
        const ticket = given.mfa_ticket ?? given.mfaTicket ?? given.mfaToken ?? '';
        const code = given.code ?? given.totpCode;
        if (code === undefined && given.recoveryCode === undefined) {
          throw new AppError('MISSING_CREDENTIALS', { fields: 'code or recoveryCode' });
        }
        return login.withTicket(ticket, { code, recoveryCode: given.recoveryCode }, call);
      },
    },
    {
      method: 'POST',
      path: '/api/auth/token/exchange',
      guard,
      summary: 'Exchanges the one-time code of a login elsewhere for a session.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: ExchangeCode, response: { 200: Answer } },
      handle(call) {
        const { exchange_code: code, verifier } = call.body as Static<typeof ExchangeCode>;
        return login.withExchangeCode(code, verifier, call);
      },
    },
    refreshAt('/api/auth/token/refresh', 'Gives a new pair of tokens for a refresh token.'),
    refreshAt('/api/auth/refresh', 'The same as token/refresh.'),
  ];
}
