import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { BodyOf, RequestHead } from '../../platform/http/surface.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { loginOperations } from '../contract/login.ts';
import type { AccountsErrorCode } from '../errors.ts';
import type { Reauthentication } from '../login/password-check.ts';
import type { SessionOpening } from '../login/session-opening.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import type { FoundUser, UserRow } from '../storage/accounts-schema.ts';
import {
  createRecoveryCodes,
  type GivenFactor,
  newTotpSecret,
  recoveryCodeHash,
  type SecondFactor,
  totpContext,
  totpUri,
} from './second-factor.ts';

type Confirmation = GivenFactor & { readonly password?: string | undefined };

const ISSUER = 'Trestle';
const MAX_LABEL = 100;

type Parts = AccountsCore & {
  readonly opening: SessionOpening;
  readonly secondFactor: SecondFactor;
  readonly reauthentication: Reauthentication;
};

/** Switching the second factor on and off. */
export function createEnrolment(parts: Parts) {
  const { database, users, sessions, credentials, flows, flowStore, secretBox, audit, mail, clock, randomness } = parts;

  const note = (event: string, user: UserRow, head: RequestHead): Runnable =>
    audit.statement({ event, actor: user.id, subject: user.id, head });

  const current = async (user: FoundUser) => parts.userObjects.describe((await users.byId(user.id)) ?? user);

  const newCodes = (userId: string) => {
    const codes = createRecoveryCodes(randomness);
    const hashes = codes.map((code) => recoveryCodeHash(userId, code));
    return { codes, statements: credentials.replaceRecoveryCodes(userId, hashes, clock.now()) };
  };

  return {
    /** Needs the password, or a login in the last five minutes: a session alone must not lock its owner out. */
    async provision(given: BodyOf<typeof loginOperations.provisionTotp>, { caller: { user }, head }: UserCall) {
      const { password, ...label } = given ?? {};
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
      const described = await current(user);
      const provision = { secret, otpauth_url: uri, qr: await qrCode(uri), issuer, account, mfaToken: token };
      return { ...provision, mfa: described.mfa, user: described };
    },
    /** Every other session ends, and this one is replaced. */
    async confirm({ token, code }: BodyOf<typeof loginOperations.confirmTotp>, call: UserCall) {
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
        mail.enqueue(securityNoticeMail(user.email, 'mfaEnabled')),
      ]);
      return { message: 'mfa_verified', ...session.hand(call), user: await current(user), recoveryCodes: codes };
    },
    /** Every other session ends. */
    async disable(given: Confirmation, call: UserCall) {
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
        mail.enqueue(securityNoticeMail(user.email, 'mfaDisabled')),
      ]);
      return { message: 'mfa_disabled', user: await current(user) };
    },
    async status({ caller }: UserCall) {
      const user = await parts.userObjects.describe(caller.user);
      const recoveryCodesLeft = await credentials.countRecoveryCodes(user.id);
      return { enabled: user.mfaEnabled, mfa: user.mfa, user, recoveryCodesLeft };
    },
    async renewRecoveryCodes(given: Confirmation, call: UserCall) {
      const { user } = call.caller;
      if (user.totp_state !== 'active') throw new AppError('MFA_NOT_ENABLED');
      const proof = await parts.reauthentication.both(user, given, call.head);
      const { codes, statements } = newCodes(user.id);
      const renewed = note('mfa.recovery_codes_renewed', user, call.head);
      const notice = mail.enqueue(securityNoticeMail(user.email, 'recoveryCodesRenewed'));
      await storeOr('REAUTHENTICATION_REQUIRED', [...proof, ...statements, renewed, notice]);
      return { recoveryCodes: codes };
    },
  };

  /** Stores the statements, or throws `code` if the same code was used or the user was changed at the same moment. */
  async function storeOr(code: AccountsErrorCode, statements: readonly Runnable[]): Promise<void> {
    const fields = 'the password and a code or recovery code';
    await database.write(statements, { conflict: code, details: { fields } });
    mail.wake();
  }
}

/** Draws the QR code locally, so that no other server gets the secret. */
async function qrCode(uri: string): Promise<string> {
  const { toString: draw } = await import('qrcode');
  const svg = await draw(uri, { type: 'svg', errorCorrectionLevel: 'M' });
  return `data:image/svg+xml;base64,${Buffer.from(svg).toString('base64')}`;
}

/** Removes colons, which separate issuer and account in the address, and invisible characters. */
function labelText(given: string | undefined, fallback: string): string {
  const text = (given ?? '').replaceAll(/[\p{C}:]/gu, '').trim();
  return [...(text === '' ? fallback : text)].slice(0, MAX_LABEL).join('');
}
