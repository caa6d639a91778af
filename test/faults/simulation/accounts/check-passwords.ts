import type { AccountEvent, AccountsEvent, LoginEvent } from './account-events.ts';

/** When a password of somebody counts. */
interface Validity {
  /** It cannot count before. */
  readonly from: number;
  /** It counts for sure from then on; never when it is not known whether it was set. */
  readonly surelyFrom: number;
  /** It may count no more. */
  mayEndAt: number;
  /** It counts no more. */
  endsAt: number;
}

const NEVER = Number.POSITIVE_INFINITY;
const TRIES = 5;
const LOCK_MS = 30_000;

/** A password counts from the moment it is set until the next one is, and five wrong ones lock. */
export function checkPasswords(calls: readonly AccountEvent[], events: readonly AccountsEvent[]): string[] {
  const validities = findValidities(calls);
  const isWallRight = !events.some(({ kind }) => kind === 'wall-step');
  const logins = calls.filter((call): call is LoginEvent => call.kind === 'login');
  return logins.flatMap((login) => {
    const { email, password, startedAt, endedAt, outcome, code } = login;
    const validity = validities.get(`${email} ${password}`);
    const mayCount = validity !== undefined && validity.from <= endedAt && validity.endsAt > startedAt;
    if (outcome === 'ok' && !mayCount)
      return [`${email} logged in at ${endedAt} with "${password}", which did not count`];
    const { counted, inDoubt } = failuresBefore(login, calls);
    const sure = counted.filter((failed) => !validities.has(`${email} ${failed.password}`));
    const unsure = [...inDoubt, ...counted.filter((failed) => !sure.includes(failed))];
    if (isWallRight && outcome === 'ok' && isSurelyLocked(startedAt, sure, unsure)) {
      return [`${email} logged in at ${endedAt} from ${login.address}, after ${sure.length} failures`];
    }
    const counts = validity !== undefined && validity.surelyFrom < startedAt && validity.mayEndAt > endedAt;
    const isRefused = outcome === 'fail' && code === 'INVALID_CREDENTIALS';
    return counts && isRefused && !mayBeLocked(login, calls)
      ? [`${email} was refused at ${endedAt} with the password that counts`]
      : [];
  });
}

function findValidities(calls: readonly AccountEvent[]): Map<string, Validity> {
  const validities = new Map<string, Validity>();
  for (const call of calls) {
    const isSure = call.outcome === 'ok';
    if (call.outcome === 'fail' || (call.kind !== 'register' && call.kind !== 'password')) continue;
    const password = call.kind === 'register' ? call.password : call.to;
    const surelyFrom = isSure ? call.endedAt : NEVER;
    if (call.kind === 'password') {
      for (const [key, other] of validities) {
        if (!key.startsWith(`${call.email} `)) continue;
        other.mayEndAt = Math.min(other.mayEndAt, call.startedAt);
        if (isSure && other.from < call.startedAt) other.endsAt = Math.min(other.endsAt, call.endedAt);
      }
    }
    validities.set(`${call.email} ${password}`, { from: call.startedAt, surelyFrom, mayEndAt: NEVER, endsAt: NEVER });
  }
  return validities;
}

interface Failures {
  readonly counted: readonly LoginEvent[];
  /** Under way at the same time as what forgets failures, or as the login itself. */
  readonly inDoubt: readonly LoginEvent[];
}

const NO_FAILURES: Failures = { counted: [], inDoubt: [] };

/**
 * Refusals for the same account, since there is one, from the same address, since something went well there. A new
 * password, set from anywhere, forgets the guesses at the old one. None when it is not known of one whether it was counted,
 * or whether a password was set.
 */
function failuresBefore(login: LoginEvent, calls: readonly AccountEvent[]): Failures {
  const made = calls.find(({ kind, email }) => kind === 'register' && email === login.email);
  let since = { startedAt: made?.startedAt ?? NEVER, endedAt: made?.endedAt ?? NEVER };
  let failures: LoginEvent[] = [];
  for (const call of calls) {
    if (call.email !== login.email || !('address' in call)) continue;
    const isNewPassword = call.kind === 'password' && call.outcome !== 'fail';
    if (call.address !== login.address && !isNewPassword) continue;
    // A new password that is set at the same time may forget the failures before the login is judged.
    if (isNewPassword && call.startedAt <= login.endedAt && call.endedAt > login.startedAt) return NO_FAILURES;
    if (call.startedAt >= login.startedAt) continue;
    if (call.endedAt > login.startedAt && call.outcome !== 'fail') continue;
    if (call.outcome === 'unknown') return NO_FAILURES;
    if (call.outcome === 'ok') {
      since = call;
      failures = failures.filter(({ endedAt }) => endedAt > call.startedAt);
    } else if (call.kind === 'login' && call.code === 'INVALID_CREDENTIALS' && call.endedAt > since.startedAt)
      failures.push(call);
  }
  const isCounted = ({ startedAt, endedAt }: LoginEvent) => startedAt >= since.endedAt && endedAt <= login.startedAt;
  return { counted: failures.filter(isCounted), inDoubt: failures.filter((failure) => !isCounted(failure)) };
}

/**
 * However many of the failures in doubt were counted. While a lock lasts none is counted, so a lock that began earlier
 * also ends earlier than one that only the last failures led to.
 */
function isSurelyLocked(moment: number, sure: readonly LoginEvent[], unsure: readonly LoginEvent[]): boolean {
  const starts = sure.map(({ startedAt }) => startedAt).sort((one, other) => one - other);
  return [...unsure, undefined].every((_, count) => {
    const fifth = count < TRIES ? starts[TRIES - 1 - count] : undefined;
    return fifth !== undefined && moment < fifth + LOCK_MS;
  });
}

/** Four that may have been counted are enough with one that is under way. */
function mayBeLocked(login: LoginEvent, calls: readonly AccountEvent[]): boolean {
  const wrong = calls.filter(
    (call) =>
      call.email === login.email &&
      (call.kind === 'login' || call.kind === 'password') &&
      call.address === login.address &&
      call !== login &&
      call.startedAt <= login.endedAt &&
      call.outcome !== 'ok',
  );
  return wrong.length >= TRIES - 1;
}
