import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { LinkedLogin } from '../contract/credential.ts';
import { FreshSession } from '../contract/login.ts';
import { optionalBody } from '../contract/optional-body.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import type { PasswordChange, ResetGiven } from './password-change.ts';

const Message = Type.Object({ message: Type.String() });
const OwnEmail = Type.Object({ email: Type.Optional(Type.String()) });
const Email = Type.Object({ email: Type.String({ examples: ['ann@example.org'] }) });
const TokenAndPassword = Type.Object({
  token: Type.String(),
  password: Type.String(),
  remove_links: Type.Optional(
    Type.Boolean({ description: 'Also removes the linked logins, in case someone else has linked one.' }),
  ),
});
const Linked = {
  linkedLogins: Type.Array(LinkedLogin, { description: 'Accounts elsewhere that can log in to this one.' }),
};
const PasswordSet = Type.Object({ ...Message.properties, ...Linked });
const NewSession = Type.Object({ ...FreshSession.properties, ...Linked });
const Change = Type.Object({ currentPassword: Type.Optional(Type.String()), newPassword: Type.String() });

type Parts = Pick<AccountsCore, 'access' | 'users' | 'userObjects'>;

function resetOf(body: unknown): ResetGiven {
  const { token, password, remove_links: removeLinks = false } = body as Static<typeof TokenAndPassword>;
  return { token, password, removeLinks };
}

export function passwordRoutes({ access, users, userObjects }: Parts, passwords: PasswordChange): readonly Route[] {
  const current = async (user: FoundUser) => userObjects.describe((await users.byId(user.id)) ?? user);
  const own: readonly Route<UserCaller>[] = [
    {
      method: 'POST',
      path: '/api/auth/password/change',
      guard: access.userEvenReadonly,
      summary: 'Changes the password by the current one; all other sessions end.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Change, response: { 200: NewSession } },
      async handle(call) {
        const { tokens, linkedLogins } = await passwords.change(call.body as Static<typeof Change>, call);
        return { message: 'password_changed', ...tokens, user: await current(call.caller.user), linkedLogins };
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
      schema: { body: TokenAndPassword, response: { 200: NewSession } },
      async handle(call) {
        const { tokens, linkedLogins } = await passwords.confirmReset(resetOf(call.body), call);
        return { message: 'password_reset', ...tokens, user: await current(call.caller.user), linkedLogins };
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
      schema: { body: TokenAndPassword, response: { 200: PasswordSet } },
      async handle(call) {
        const linkedLogins = await passwords.confirmForgot(resetOf(call.body), call);
        return { message: 'password_set', linkedLogins };
      },
    },
  ];
  return [...own, ...open];
}
