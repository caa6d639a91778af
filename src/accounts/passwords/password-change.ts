import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { BodyOf, Call, RequestHead } from '../../platform/http/surface.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { loginOperations, ResetByToken } from '../contract/login.ts';
import type { Credentials } from '../credentials/own-credentials.ts';
import type { AccountsErrorCode } from '../errors.ts';
import type { Reauthentication } from '../login/password-check.ts';
import type { SessionOpening } from '../login/session-opening.ts';
import { passwordChangedMail, passwordResetMail } from '../mail/messages.ts';
import { normalizeEmail } from '../registration/new-user.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import { createClientListStore } from '../storage/administration-stores.ts';
import { createDeviceStore } from '../storage/session-store.ts';
import { checkNewPassword } from './passwords.ts';

type Parts = AccountsCore & {
  readonly opening: SessionOpening;
  readonly reauthentication: Reauthentication;
  readonly ownCredentials: Credentials;
};

/** The three ways to a new password. Each ends every session of the user; the first two give a fresh one. */
export function createPasswordChange(parts: Parts) {
  const { database, users, sessions, flows, flowStore, audit, mail, limiter, clock, ownCredentials } = parts;
  const devices = createDeviceStore(database);
  const clients = createClientListStore(database);

  const note = (event: string, user: FoundUser, head: RequestHead): Runnable =>
    audit.statement({ event, actor: user.id, subject: user.id, head });

  /**
   * Returns the statements of every password change: they set the password and end everything that was opened with the old
   * one. Linked accounts stay unless `removeLinks` is set; the mail names those that stay.
   */
  async function replacing(
    user: FoundUser,
    passwordHash: string,
    how: { readonly verifiesEmail?: boolean; readonly byToken?: boolean; readonly removeLinks?: boolean },
    head: RequestHead,
  ) {
    const { verifiesEmail = false, byToken = false, removeLinks = false } = how;
    const now = clock.now();
    const change = { id: user.id, epoch: user.access_epoch, passwordHash, verifiesEmail, byToken, now };
    const links = await ownCredentials.links(user.id);
    const linkedLogins = removeLinks ? [] : links;
    const dropped = removeLinks && links.length > 0 ? ownCredentials.droppingLinks(user, links, head) : [];
    const statements = [
      ...users.setPassword(change),
      sessions.endAllOf(user.id),
      flowStore.removeOfUser(user.id),
      devices.forgetAllOf(user.id),
      // The failures counted guesses at the old password.
      ...limiter.forgetStrangers(user.id),
      // Someone whose address is verified is let in by proxy nodes.
      ...(verifiesEmail ? [clients.touch()] : []),
      ...dropped,
      mail.enqueue(passwordChangedMail(user.email, linkedLogins, removeLinks ? links.length : 0)),
    ];
    return { statements, linkedLogins };
  }

  async function storeOr(lost: AccountsErrorCode, statements: readonly Runnable[]): Promise<void> {
    await database.write(statements, { conflict: lost });
    mail.wake();
  }

  async function freshSession(
    lost: AccountsErrorCode,
    before: readonly Runnable[],
    { password, ...how }: { readonly password: string; readonly byToken?: boolean; readonly removeLinks?: boolean },
    event: string,
    call: UserCall,
  ) {
    const { user } = call.caller;
    const passwordHash = await parts.passwords.hash(password);
    const session = parts.opening.open(user, user.access_epoch + 1, call);
    const { statements, linkedLogins } = await replacing(user, passwordHash, how, call.head);
    await storeOr(lost, [...before, ...statements, ...session.statements, note(event, user, call.head)]);
    const described = await parts.userObjects.describe((await users.byId(user.id)) ?? user);
    return { message: event.replace('.', '_'), ...session.hand(call), user: described, linkedLogins };
  }

  const resetMail = (user: FoundUser, token: string) =>
    passwordResetMail(user.email, token, `${parts.frontendUrl()}/reset-password#token=${token}`);

  return {
    async change({ currentPassword, newPassword }: BodyOf<typeof loginOperations.changePassword>, call: UserCall) {
      const { user } = call.caller;
      checkNewPassword(newPassword, user, parts.isBreached);
      const right = await parts.reauthentication.password(user, currentPassword, call.head);
      return freshSession('INVALID_SESSION', right, { password: newPassword }, 'password.changed', call);
    },
    /** Mails a token to someone who is logged in. */
    async startReset(email: string | undefined, { caller: { user }, head }: UserCall) {
      if (email !== undefined && normalizeEmail(email) !== user.email) throw new AppError('FORBIDDEN');
      await limiter.takeMail({ email: user.email, address: head.address, session: user.session_id });
      const { token, statement } = flows.issue('reset', { userId: user.id, data: { epoch: user.access_epoch } });
      const asked = note('password.reset_asked', user, head);
      await database.write([flowStore.removeOfUser(user.id, ['reset']), statement, asked]);
      await mail.send(resetMail(user, token));
      return { message: 'reset_sent' };
    },
    async confirmReset({ token, password, remove_links: removeLinks = false }: ResetByToken, call: UserCall) {
      const { user } = call.caller;
      const flow = await flows.open('reset', token);
      if (flow?.userId !== user.id || flow.data.epoch !== user.access_epoch) throw new AppError('INVALID_TOKEN');
      checkNewPassword(password, user, parts.isBreached);
      return freshSession(
        'INVALID_TOKEN',
        [flows.take('reset', token)],
        { password, removeLinks, byToken: true },
        'password.reset',
        call,
      );
    },
    /** Mails a token to a user who is not logged in. The response does not show whether the user exists. */
    async startForgot(given: string, head: RequestHead) {
      const answer = { message: 'reset_sent_if_known' };
      const email = normalizeEmail(given);
      if (email === undefined || !(await isWithinLimits(email, head.address))) return answer;
      const user = await users.byEmail(email);
      // The same is stored for unknown addresses, so that the response time does not show whether the user exists.
      const data = { epoch: user?.access_epoch ?? 0 };
      const { token, statement } = flows.issue('forgot', { userId: user?.id ?? '', email, data });
      const asked = audit.statement({ event: 'password.forgot_asked', subject: user?.id ?? '', head });
      const message = user === undefined ? mail.enqueueNothing() : mail.enqueue(resetMail(user, token));
      await database.write([statement, asked, message]);
      mail.wake();
      return answer;
    },
    /** Sets the password without logging in or changing the second factor. Returns the linked accounts that can still log in. */
    async confirmForgot(given: ResetByToken, call: Pick<Call, 'head' | 'reply'>) {
      const { token, password, remove_links: removeLinks = false } = given;
      for (const kind of ['forgot', 'set_password'] as const) {
        const flow = await flows.open(kind, token);
        const user = flow === undefined ? undefined : await users.byId(flow.userId);
        if (user === undefined) continue;
        // The password or the address was changed while the token was being stored: it went to the former address.
        if ((flow?.data.epoch ?? user.access_epoch) !== user.access_epoch) continue;
        checkNewPassword(password, user, parts.isBreached);
        const passwordHash = await parts.passwords.hash(password);
        const how = { verifiesEmail: true, byToken: true, removeLinks };
        const { statements, linkedLogins } = await replacing(user, passwordHash, how, call.head);
        // This browser becomes a known device, so that guesses of strangers do not lock its owner out.
        const device = parts.opening.rememberDevice(call, user.id);
        const done = note('password.set_by_token', user, call.head);
        await storeOr('INVALID_TOKEN', [flows.take(kind, token), ...statements, device.statement, done]);
        device.sendCookie();
        return { message: 'password_set', linkedLogins };
      }
      throw new AppError('INVALID_TOKEN');
    },
  };

  async function isWithinLimits(email: string, address: string): Promise<boolean> {
    try {
      await limiter.takeMail({ email, address });
      return true;
    } catch (error) {
      if (errorCode(error) !== 'RATE_LIMITED') throw error;
      return false;
    }
  }
}
