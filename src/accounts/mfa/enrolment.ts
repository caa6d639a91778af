import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { Reauthentication } from '../login/reauthentication.ts';
import type { SessionOpening, TokenMembers } from '../login/session-opening.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import { createRecoveryCodes, recoveryCodeHash } from './recovery-codes.ts';
import { type GivenFactor, type SecondFactor, totpContext } from './second-factor.ts';
import { newTotpSecret, type TotpLabel, totpUri } from './totp.ts';

export interface Provision extends TotpLabel {
  readonly secret: string;
  readonly otpauth_url: string;
  readonly qr: string;
  readonly mfaToken: string;
}

export type UserCall = Pick<Call<UserCaller>, 'head' | 'reply' | 'caller'>;
type Confirmation = GivenFactor & { readonly password?: string | undefined };

/** Switching the second factor on and off (contract/accounts: mfa/*). */
export interface Enrolment {
  /** Needs the password, or a login in the last five minutes: a session alone must not lock its owner out. */
  provision(given: Partial<TotpLabel> & { readonly password?: string | undefined }, call: UserCall): Promise<Provision>;
  /** Every other session ends, and this one is replaced. */
  confirm(given: { token?: string | undefined; code: string }, call: UserCall): Promise<Confirmed>;
  /** Every other session ends. */
  disable(given: Confirmation, call: UserCall): Promise<void>;
  recoveryCodesLeft(userId: string): Promise<number>;
  renewRecoveryCodes(given: Confirmation, call: UserCall): Promise<readonly string[]>;
}

export interface Confirmed {
  readonly tokens: TokenMembers;
  readonly recoveryCodes: readonly string[];
}

const ISSUER = 'Trestle';
const LONGEST_LABEL = 100;

type Parts = Pick<
  AccountsCore,
  | 'database'
  | 'users'
  | 'sessions'
  | 'credentials'
  | 'flows'
  | 'flowStore'
  | 'secretBox'
  | 'audit'
  | 'mail'
  | 'clock'
  | 'randomness'
> & {
  readonly opening: SessionOpening;
  readonly secondFactor: SecondFactor;
  readonly reauthentication: Reauthentication;
};

export function createEnrolment(parts: Parts): Enrolment {
  const { database, users, sessions, credentials, flows, flowStore, secretBox, audit, mail, clock, randomness } = parts;

  const note = (event: string, user: UserRow, head: RequestHead): Runnable =>
    audit.statement({ event, actor: user.id, subject: user.id, head });

  const newCodes = (userId: string) => {
    const codes = createRecoveryCodes(randomness);
    const hashes = codes.map((code) => recoveryCodeHash(userId, code));
    return { codes, statements: credentials.replaceRecoveryCodes(userId, hashes, clock.now()) };
  };

  return {
    async provision({ password, ...label }, { caller: { user }, head }) {
      if (user.totp_state === 'active') throw new AppError('MFA_ALREADY_ENABLED');
      const proof = await parts.reauthentication.passwordOrFreshLogin(user, password, head);
      const issuer = labelText(label.issuer, ISSUER);
      const account = labelText(label.account, user.email);
      const bytes = newTotpSecret(randomness.bytes);
      const sealed = secretBox.seal(bytes, totpContext(user.id));
      const { token, statement } = flows.issue('mfa_provision', { userId: user.id });
      await storeOr('MFA_ALREADY_ENABLED', [
        ...proof,
        credentials.setPendingTotp({ userId: user.id, sealed, now: clock.now() }),
        flowStore.removeOfUser(user.id, ['mfa_provision']),
        statement,
      ]);
      const { secret, uri } = await totpUri(bytes, { issuer, account });
      return { secret, otpauth_url: uri, qr: await qrCode(uri), issuer, account, mfaToken: token };
    },
    async confirm({ token, code }, call) {
      const { user } = call.caller;
      if (token !== undefined && (await flows.open('mfa_provision', token))?.userId !== user.id) {
        throw new AppError('INVALID_MFA_TICKET');
      }
      const origin = { head: call.head, known: user.session_id };
      const { step, sealed, statements: proof } = await parts.secondFactor.provePending(user, code, origin);
      const epoch = user.access_epoch;
      const session = parts.opening.open(user, epoch + 1, call);
      const { codes, statements } = newCodes(user.id);
      await storeOr('INVALID_MFA_CODE', [
        ...proof,
        expectChanges(users.raiseEpoch({ id: user.id, epoch, now: clock.now() }), 1),
        credentials.confirmTotp({ userId: user.id, sealed, step, now: clock.now() }),
        sessions.endAllOf(user.id),
        flowStore.removeOfUser(user.id),
        ...statements,
        ...session.statements,
        note('mfa.enabled', user, call.head),
        mail.enqueue(securityNoticeMail(user.email, 'The second factor of your account was switched on.')),
      ]);
      return { tokens: session.hand(call), recoveryCodes: codes };
    },
    async disable(given, call) {
      const { user } = call.caller;
      if (user.totp_state !== 'active') throw new AppError('MFA_NOT_ENABLED');
      const proof = await parts.reauthentication.both(user, given, call.head);
      const epoch = user.access_epoch;
      await storeOr('REAUTHENTICATION_REQUIRED', [
        ...proof,
        expectChanges(users.raiseEpoch({ id: user.id, epoch, now: clock.now() }), 1),
        credentials.removeSecondFactor(user.id),
        sessions.endOthersOf({ id: user.session_id, userId: user.id }),
        sessions.carryOver({ id: user.session_id, epoch }),
        flowStore.removeOfUser(user.id),
        note('mfa.disabled', user, call.head),
        mail.enqueue(securityNoticeMail(user.email, 'The second factor of your account was switched off.')),
      ]);
    },
    recoveryCodesLeft: credentials.countRecoveryCodes,
    async renewRecoveryCodes(given, call) {
      const { user } = call.caller;
      if (user.totp_state !== 'active') throw new AppError('MFA_NOT_ENABLED');
      const proof = await parts.reauthentication.both(user, given, call.head);
      const { codes, statements } = newCodes(user.id);
      const renewed = note('mfa.recovery_codes_renewed', user, call.head);
      const what = 'New recovery codes were created for your account; the old ones do not work any more.';
      const notice = mail.enqueue(securityNoticeMail(user.email, what));
      await storeOr('REAUTHENTICATION_REQUIRED', [...proof, ...statements, renewed, notice]);
      return codes;
    },
  };

  /** The same code was used elsewhere at this moment, or the user was changed: nothing was stored. */
  async function storeOr(code: string, statements: readonly Runnable[]): Promise<void> {
    try {
      await database.write(statements);
    } catch (error) {
      const fields = 'the password and a code or recovery code';
      throw errorCode(error) === 'STORAGE_CONFLICT' ? new AppError(code, { fields }) : error;
    }
    mail.wake();
  }
}

/** Drawn here: no other server learns the secret. */
async function qrCode(uri: string): Promise<string> {
  const { toString: draw } = await import('qrcode');
  const svg = await draw(uri, { type: 'svg', errorCorrectionLevel: 'M' });
  return `data:image/svg+xml;base64,${Buffer.from(svg).toString('base64')}`;
}

/** Colons part issuer and account in the address; nothing invisible belongs there either. */
function labelText(given: string | undefined, fallback: string): string {
  const text = (given ?? '').replaceAll(/[\p{C}:]/gu, '').trim();
  return [...(text === '' ? fallback : text)].slice(0, LONGEST_LABEL).join('');
}
