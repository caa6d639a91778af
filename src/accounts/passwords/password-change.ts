import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { Reauthentication } from '../login/reauthentication.ts';
import type { SessionOpening, TokenMembers } from '../login/session-opening.ts';
import { passwordResetMail, securityNoticeMail } from '../mail/messages.ts';
import type { UserCall } from '../mfa/enrolment.ts';
import { normalizeEmail } from '../registration/email-address.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import { createClientListStore } from '../storage/client-list-store.ts';
import { createDeviceStore } from '../storage/device-store.ts';
import { checkNewPassword } from './password-rules.ts';

/** The three ways to a new password. Each ends every session of the user; the first two give a fresh one. */
export interface PasswordChange {
  change(given: { currentPassword?: string | undefined; newPassword: string }, call: UserCall): Promise<TokenMembers>;
  /** Mails a token to someone who is logged in. */
  startReset(email: string | undefined, call: UserCall): Promise<void>;
  confirmReset(given: { token: string; password: string }, call: UserCall): Promise<TokenMembers>;
  /** Mails a token to someone who is not; says nothing of whether there is such a person. */
  startForgot(email: string, head: RequestHead): Promise<void>;
  /** Logs nobody in, and leaves the second factor as it is. */
  confirmForgot(given: { token: string; password: string }, head: RequestHead): Promise<void>;
}

type Parts = Pick<
  AccountsCore,
  | 'database'
  | 'users'
  | 'sessions'
  | 'flows'
  | 'flowStore'
  | 'audit'
  | 'mail'
  | 'mailLimits'
  | 'passwords'
  | 'clock'
  | 'frontendUrl'
> & { readonly opening: SessionOpening; readonly reauthentication: Reauthentication };

export function createPasswordChange(parts: Parts): PasswordChange {
  const { database, users, sessions, flows, flowStore, audit, mail, mailLimits, clock } = parts;
  const devices = createDeviceStore(database);
  const clients = createClientListStore(database);

  /** What belongs to every new password: it counts, and nothing that was opened with the old one does. */
  function replacing(user: UserRow, passwordHash: string, verifiesEmail: boolean): readonly Runnable[] {
    const change = { id: user.id, epoch: user.access_epoch, passwordHash, verifiesEmail, now: clock.now() };
    return [
      expectChanges(users.setPassword(change), 1),
      sessions.endAllOf(user.id),
      flowStore.removeOfUser(user.id),
      devices.forgetAllOf(user.id),
      // Who has proven their address is let in by proxy nodes.
      ...(verifiesEmail ? [clients.touch()] : []),
    ];
  }

  const note = (event: string, user: UserRow, head: RequestHead): Runnable =>
    audit.statement({ event, actor: user.id, subject: user.id, head });

  async function storeOr(lost: string, statements: readonly Runnable[]): Promise<void> {
    try {
      await database.write(statements);
    } catch (error) {
      throw errorCode(error) === 'STORAGE_CONFLICT' ? new AppError(lost) : error;
    }
  }

  async function freshSession(
    lost: string,
    before: readonly Runnable[],
    password: string,
    event: string,
    call: UserCall,
  ) {
    const { user } = call.caller;
    const passwordHash = await parts.passwords.hash(password);
    const session = parts.opening.open(user, user.access_epoch + 1, call);
    const changed = [...before, ...replacing(user, passwordHash, false), ...session.statements];
    await storeOr(lost, [...changed, note(event, user, call.head)]);
    mail.post(securityNoticeMail(user.email, 'The password of your account was changed.'));
    return session.hand(call);
  }

  const resetMail = (user: UserRow, token: string) =>
    passwordResetMail(user.email, token, `${parts.frontendUrl()}/reset-password#token=${token}`);

  return {
    async change({ currentPassword, newPassword }, call) {
      const { user } = call.caller;
      checkNewPassword(newPassword, user);
      const right = await parts.reauthentication.password(user, currentPassword, call.head);
      return freshSession('INVALID_SESSION', right, newPassword, 'password.changed', call);
    },
    async startReset(email, { caller: { user }, head }) {
      if (email !== undefined && normalizeEmail(email) !== user.email) throw new AppError('FORBIDDEN');
      await mailLimits.count({ email: user.email, address: head.address });
      const { token, statement } = flows.issue('reset', { userId: user.id, data: { epoch: user.access_epoch } });
      const asked = note('password.reset_asked', user, head);
      await database.write([flowStore.removeOfUser(user.id, ['reset']), statement, asked]);
      await mail.send(resetMail(user, token));
    },
    async confirmReset({ token, password }, call) {
      const { user } = call.caller;
      const flow = await flows.open('reset', token);
      if (flow?.userId !== user.id || flow.data.epoch !== user.access_epoch) throw new AppError('INVALID_TOKEN');
      checkNewPassword(password, user);
      return freshSession('INVALID_TOKEN', [flows.take('reset', token)], password, 'password.reset', call);
    },
    async startForgot(given, head) {
      const email = normalizeEmail(given);
      if (email === undefined || !(await isWithinLimits(email, head.address))) return;
      const user = await users.byEmail(email);
      // Stored for strangers as well, and mailed afterwards: whether there is such a person takes no time to tell.
      const { token, statement } = flows.issue('forgot', { userId: user?.id ?? '', email });
      const asked = audit.statement({ event: 'password.forgot_asked', subject: user?.id ?? '', head });
      await database.write([statement, asked]);
      if (user !== undefined) mail.post(resetMail(user, token));
    },
    async confirmForgot({ token, password }, head) {
      for (const kind of ['forgot', 'set_password'] as const) {
        const flow = await flows.open(kind, token);
        const user = flow === undefined ? undefined : await users.byId(flow.userId);
        if (user === undefined) continue;
        checkNewPassword(password, user);
        const passwordHash = await parts.passwords.hash(password);
        const changed = replacing(user, passwordHash, true);
        await storeOr('INVALID_TOKEN', [
          flows.take(kind, token),
          ...changed,
          note('password.set_by_token', user, head),
        ]);
        mail.post(securityNoticeMail(user.email, 'The password of your account was changed.'));
        return;
      }
      throw new AppError('INVALID_TOKEN');
    },
  };

  async function isWithinLimits(email: string, address: string): Promise<boolean> {
    try {
      await mailLimits.count({ email, address });
      return true;
    } catch (error) {
      if (errorCode(error) !== 'RATE_LIMITED') throw error;
      return false;
    }
  }
}
