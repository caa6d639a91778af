import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { FreshSession } from '../contract/login.ts';
import { optionalBody } from '../contract/optional-body.ts';
import { User } from '../contract/user.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import type { Enrolment } from './enrolment.ts';

const optional = Type.Optional(Type.String());

const NewSecret = Type.Object({
  issuer: optional,
  account: optional,
  password: Type.Optional(Type.String({ description: 'Needed unless the login is at most five minutes old.' })),
});
const Confirmation = Type.Object({ token: optional, code: Type.String({ examples: ['123456'] }) });
const Reauthentication = Type.Object({ password: optional, code: optional, recoveryCode: optional });
const mfa = User.properties.mfa;
const Provisioned = Type.Object({
  secret: Type.String(),
  otpauth_url: Type.String(),
  qr: Type.String({ description: 'An SVG as a data URL.' }),
  issuer: Type.String(),
  account: Type.String(),
  mfaToken: Type.String(),
  mfa,
  user: User,
});
const RecoveryCodes = Type.Object({ recoveryCodes: Type.Array(Type.String()) });
const Verified = Type.Object({ ...FreshSession.properties, ...RecoveryCodes.properties });
const Disabled = Type.Object({ message: Type.String(), user: User });
const Status = Type.Object({ enabled: Type.Boolean(), mfa, user: User, recoveryCodesLeft: Type.Integer() });

type Parts = Pick<AccountsCore, 'access' | 'users' | 'userObjects'>;

export function mfaRoutes({ access, users, userObjects }: Parts, enrolment: Enrolment): readonly Route[] {
  const current = async (user: FoundUser) => userObjects.describe((await users.byId(user.id)) ?? user);
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'POST',
      path: '/api/auth/mfa/totp/provision',
      guard: access.userEvenReadonly,
      summary: 'Creates a secret for an authenticator app; it counts once a code of it has come.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: optionalBody(NewSecret), response: { 200: Provisioned } },
      async handle(call) {
        const provision = await enrolment.provision((call.body ?? {}) as Static<typeof NewSecret>, call);
        const user = await current(call.caller.user);
        return { ...provision, mfa: user.mfa, user };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/mfa/totp/verify',
      guard: access.userEvenReadonly,
      summary: 'Switches the second factor on by its first code; all other sessions end.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Confirmation, response: { 200: Verified } },
      async handle(call) {
        const { tokens, recoveryCodes } = await enrolment.confirm(call.body as Static<typeof Confirmation>, call);
        return { message: 'mfa_verified', ...tokens, user: await current(call.caller.user), recoveryCodes };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/mfa/disable',
      guard: access.userEvenReadonly,
      summary: 'Switches the second factor off, by password and code; all other sessions end.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Reauthentication, response: { 200: Disabled } },
      async handle(call) {
        await enrolment.disable(call.body as Static<typeof Reauthentication>, call);
        return { message: 'mfa_disabled', user: await current(call.caller.user) };
      },
    },
    {
      method: 'GET',
      path: '/api/auth/mfa/status',
      guard: access.user,
      summary: 'Whether the second factor is on.',
      schema: { response: { 200: Status } },
      async handle({ caller }) {
        const user = await userObjects.describe(caller.user);
        const recoveryCodesLeft = await enrolment.recoveryCodesLeft(user.id);
        return { enabled: user.mfaEnabled, mfa: user.mfa, user, recoveryCodesLeft };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/mfa/recovery-codes',
      guard: access.userEvenReadonly,
      summary: 'Makes ten new recovery codes; the old ones end.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Reauthentication, response: { 200: RecoveryCodes } },
      async handle(call) {
        return {
          recoveryCodes: await enrolment.renewRecoveryCodes(call.body as Static<typeof Reauthentication>, call),
        };
      },
    },
  ];
  return rows;
}
