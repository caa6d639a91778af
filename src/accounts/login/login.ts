import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { BodyOf, Call, RequestHead } from '../../platform/http/surface.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort } from '../accounts-core.ts';
import type { LoginAnswer, loginOperations, SecondFactorAnswer } from '../contract/login.ts';
import { OAUTH_COOKIE, readCookie } from '../cookies.ts';
import type { Passkeys } from '../credentials/own-credentials.ts';
import type { AccountsErrorCode } from '../errors.ts';
import { type OpenFlow, tokenKey } from '../flows.ts';
import { byAddress } from '../limiter/limiter.ts';
import type { FactorOrigin, GivenFactor, SecondFactor } from '../mfa/second-factor.ts';
import { nameKey, normalizeEmail } from '../registration/new-user.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import type { PasswordCheck } from './password-check.ts';
import type { SessionOpening } from './session-opening.ts';

type Answer = LoginAnswer | SecondFactorAnswer;
type LoginCall = Pick<Call, 'head' | 'reply'>;

/** The ways to a session: password, second factor, exchange code, passkey. */
interface Login {
  withPassword(given: BodyOf<typeof loginOperations.logIn>, call: LoginCall): Promise<Answer>;
  withTicket(given: BodyOf<typeof loginOperations.proveSecondFactor>, call: LoginCall): Promise<Answer>;
  passkeyOptions(given: BodyOf<typeof loginOperations.passkeyOptions>, head: RequestHead): Promise<object>;
  /** A passkey is both factors; with a ticket it is the second one. */
  withPasskey(given: PasskeyLogin, call: LoginCall): Promise<Answer>;
  /** Accepts the browser that began the login, or a caller with the verifier of its challenge. */
  withExchangeCode(given: BodyOf<typeof loginOperations.exchangeCode>, call: LoginCall): Promise<Answer>;
}

type PasskeyLogin = BodyOf<typeof loginOperations.verifyPasskey>;

const TICKET_TRIES = 5;

type Parts = BasePort &
  PeoplePort &
  CredentialsPort &
  PostPort & {
    readonly opening: SessionOpening;
    readonly passwordCheck: PasswordCheck;
    readonly secondFactor: SecondFactor;
    readonly passkeys: Passkeys;
  };

export function createLogin(parts: Parts): Login {
  const { database, users, flows, audit, opening, passwordCheck, secondFactor, passkeys } = parts;

  async function find(identifier: string): Promise<FoundUser | undefined> {
    if (!identifier.includes('@')) return users.byNameKey(nameKey(identifier.slice(0, 256)));
    const email = normalizeEmail(identifier);
    // Looked up even if no account can have it: the response time must not show which names exist.
    return users.byEmail(email ?? '');
  }

  /** Opens the session together with what leads to it, or not at all. */
  async function finish(
    user: FoundUser,
    before: readonly Runnable[],
    how: string,
    call: LoginCall,
    lost: AccountsErrorCode,
  ) {
    const session = opening.open(user, user.access_epoch, call);
    const done = audit.statement({
      event: 'login',
      actor: user.id,
      subject: user.id,
      head: call.head,
      details: { how },
    });
    // Conflict: used by now; or the user was paused, or got a new password, while this login was under way.
    await database.write([...before, ...session.statements, done], { conflict: lost });
    return {
      message: 'logged_in',
      ...session.hand(call),
      mfaRequired: false as const,
      mfa_required: false as const,
      user: await parts.userObjects.describe(user),
    };
  }

  async function askSecondFactor(
    user: FoundUser,
    before: readonly Runnable[],
    lost: AccountsErrorCode,
  ): Promise<Answer> {
    const { token, statement } = flows.issue('mfa_ticket', { userId: user.id, data: { epoch: user.access_epoch } });
    await database.write([...before, statement], { conflict: lost });
    const names = { mfaTicket: token, mfa_ticket: token, mfaToken: token };
    const hasPasskey = (await parts.credentials.ofUser(user.id, 'passkey')).some(passkeys.isUsable);
    return {
      mfaRequired: true,
      mfa_required: true,
      mfaMethod: 'totp',
      mfa_method: 'totp',
      mfaMethods: hasPasskey ? ['totp', 'passkey'] : ['totp'],
      ...names,
    };
  }

  /** Returns the user of a valid ticket, who has proven the first factor. Throws INVALID_MFA_TICKET. */
  async function holderOf(flow: OpenFlow | undefined): Promise<FoundUser> {
    const user = flow === undefined ? undefined : await users.byId(flow.userId);
    const isCurrent = user !== undefined && user.active === 1 && user.access_epoch === flow?.data.epoch;
    if (!isCurrent) throw new AppError('INVALID_MFA_TICKET');
    return user;
  }

  /**
   * Throws for a user who may not log in, and records it, because somebody has the password, passkey or linked account. The
   * refusal counts against the address, which bounds the number of records.
   */
  async function refuseUnlessWelcome(user: FoundUser, head: RequestHead): Promise<void> {
    const isSuspended = user.active !== 1 || (await parts.blacklist.has(user.email));
    if (!isSuspended && user.confirmed === 1) return;
    const code = isSuspended ? 'ACCOUNT_SUSPENDED' : 'EMAIL_NOT_VERIFIED';
    const details = { reason: code.toLowerCase() };
    const refused = audit.statement({ event: 'login.refused', subject: user.id, head, details });
    await database.write([parts.limiter.count(byAddress('address_failures', head)), refused]);
    throw new AppError(code);
  }

  /** While the account is locked, a wrong code gets the same error as a wrong password, so that it reveals nothing. */
  async function proveUnderLock(user: FoundUser, given: GivenFactor, origin: FactorOrigin) {
    try {
      return await secondFactor.prove(user, given, origin);
    } catch (error) {
      throw error instanceof AppError ? new AppError('INVALID_CREDENTIALS') : error;
    }
  }

  return {
    async withPassword({ password, totpCode: code, ...names }, call) {
      const identifier = names.identifier || names.account || names.username || names.email;
      if (!identifier || !password) throw new AppError('MISSING_CREDENTIALS', { fields: 'identifier and password' });
      const user = await find(identifier);
      // Read for unknown users too, so that the response time is the same.
      const known = await opening.knownDevice(call, user?.id ?? '');
      const hasCode = code !== undefined;
      const withCode = hasCode && user?.totp_state === 'active';
      const origin = { head: call.head, known };
      const right = await passwordCheck.check({ user, identifier, password, withCode, ...origin });
      if (user === undefined || right === undefined) throw new AppError('INVALID_CREDENTIALS');
      const given = { code };
      const early = right.needsSecondFactor ? await proveUnderLock(user, given, origin) : undefined;
      await refuseUnlessWelcome(user, call.head);
      const { statements } = right;
      if (user.totp_state !== 'active') return finish(user, statements, 'password', call, 'INVALID_CREDENTIALS');
      if (!hasCode) return askSecondFactor(user, statements, 'INVALID_CREDENTIALS');
      const proof = early ?? (await secondFactor.prove(user, given, origin));
      return finish(user, [...statements, ...proof], 'password and code', call, 'INVALID_MFA_CODE');
    },
    async withTicket(body, call) {
      const ticket = body.mfa_ticket ?? body.mfaTicket ?? body.mfaToken ?? '';
      const given: GivenFactor = { code: body.code ?? body.totpCode, recoveryCode: body.recoveryCode };
      if (given.code === undefined && given.recoveryCode === undefined) {
        throw new AppError('MISSING_CREDENTIALS', { fields: 'code or recoveryCode' });
      }
      const user = await holderOf(await flows.tryOpen('mfa_ticket', ticket, TICKET_TRIES));
      const known = await opening.knownDevice(call, user.id);
      const proof = await secondFactor.prove(user, given, { head: call.head, known });
      return finish(user, [flows.take('mfa_ticket', ticket), ...proof], 'second factor', call, 'INVALID_MFA_CODE');
    },
    async passkeyOptions(given, head) {
      const ticket = given?.mfa_ticket;
      const user = ticket === undefined ? undefined : await holderOf(await flows.open('mfa_ticket', ticket));
      return { publicKey: await passkeys.loginOptions(user?.id, head) };
    },
    async withPasskey({ credential, mfa_ticket: ticket }, call) {
      const holder =
        ticket === undefined ? undefined : await holderOf(await flows.tryOpen('mfa_ticket', ticket, TICKET_TRIES));
      const { userId, statements } = await passkeys.prove(credential, call.head);
      const user = await users.byId(userId);
      if (user === undefined || (holder !== undefined && holder.id !== userId)) throw new AppError('INVALID_PASSKEY');
      await refuseUnlessWelcome(user, call.head);
      const taken = ticket === undefined ? [] : [flows.take('mfa_ticket', ticket)];
      const how = ticket === undefined ? 'passkey' : 'password and passkey';
      return finish(user, [...taken, ...statements], how, call, 'INVALID_PASSKEY');
    },
    async withExchangeCode({ exchange_code: code, verifier }, call) {
      const flow = await flows.open('exchange', code);
      const isTheirs = flow !== undefined && isBoundTo(flow.data, verifier, call.head);
      const user = isTheirs ? await users.byId(flow.userId) : undefined;
      if (user === undefined) throw new AppError('INVALID_EXCHANGE_CODE');
      await refuseUnlessWelcome(user, call.head);
      const take = [flows.take('exchange', code)];
      if (user.totp_state === 'active') return askSecondFactor(user, take, 'INVALID_EXCHANGE_CODE');
      return finish(user, take, 'exchange code', call, 'INVALID_EXCHANGE_CODE');
    },
  };
}

/** Checks that the code belongs to this browser, so that a link with someone else's code logs nobody in as them (login CSRF). */
function isBoundTo(
  { browser, challenge }: Readonly<Record<string, unknown>>,
  verifier: string | undefined,
  head: RequestHead,
): boolean {
  if (typeof challenge === 'string') return verifier !== undefined && sameSecret(tokenKey(verifier), challenge);
  return typeof browser === 'string' && sameSecret(tokenKey(readCookie(head, OAUTH_COOKIE)), browser);
}
