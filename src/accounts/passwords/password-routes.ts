import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { FreshSession } from '../contract/login.ts';
import { optionalBody } from '../contract/optional-body.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import type { PasswordChange } from './password-change.ts';

const Message = Type.Object({ message: Type.String() });
const OwnEmail = Type.Object({ email: Type.Optional(Type.String()) });
const Email = Type.Object({ email: Type.String({ examples: ['ann@example.org'] }) });
const TokenAndPassword = Type.Object({ token: Type.String(), password: Type.String() });
const Change = Type.Object({ currentPassword: Type.Optional(Type.String()), newPassword: Type.String() });

type Parts = Pick<AccountsCore, 'access' | 'users' | 'userObjects'>;

export function passwordRoutes({ access, users, userObjects }: Parts, passwords: PasswordChange): readonly Route[] {
  const current = async (user: UserRow) => userObjects.describe((await users.byId(user.id)) ?? user);
  const own: readonly Route<UserCaller>[] = [
    {
      method: 'POST',
      path: '/api/auth/password/change',
      guard: access.userEvenReadonly,
      summary: 'Changes the password by the current one; all other sessions end.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Change, response: { 200: FreshSession } },
      async handle(call) {
        const tokens = await passwords.change(call.body as Static<typeof Change>, call);
        return { message: 'password_changed', ...tokens, user: await current(call.caller.user) };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/password/reset',
      guard: access.userEvenReadonly,
      summary: 'Mails a token for a new password to the own address.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: optionalBody(OwnEmail), response: { 202: Message } },
      async handle(call) {
        await passwords.startReset((call.body as Static<typeof OwnEmail> | undefined)?.email, call);
        call.reply.code(202);
        return { message: 'reset_sent' };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/password/reset/confirm',
      guard: access.userEvenReadonly,
      summary: 'Sets a new password by the mailed token; all other sessions end.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: TokenAndPassword, response: { 200: FreshSession } },
      async handle(call) {
        const tokens = await passwords.confirmReset(call.body as Static<typeof TokenAndPassword>, call);
        return { message: 'password_reset', ...tokens, user: await current(call.caller.user) };
      },
    },
  ];
  const open: readonly Route[] = [
    {
      method: 'POST',
      path: '/api/auth/password/forgot',
      guard: access.anyone(),
      summary: 'Mails a token for a new password, if there is an account with this address.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Email, response: { 202: Message } },
      async handle({ body, head, reply }) {
        await passwords.startForgot((body as Static<typeof Email>).email, head);
        reply.code(202);
        return { message: 'reset_sent_if_known' };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/password/forgot/confirm',
      guard: access.anyone(),
      summary: 'Sets a new password by the mailed token; all sessions end, and nobody is logged in.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: TokenAndPassword, response: { 200: Message } },
      async handle({ body, head }) {
        await passwords.confirmForgot(body as Static<typeof TokenAndPassword>, head);
        return { message: 'password_set' };
      },
    },
  ];
  return [...own, ...open];
}
