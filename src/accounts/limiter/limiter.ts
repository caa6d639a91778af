import type { Clock } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { formatIpAddress, parseIpAddress, unmapAddress } from '../../platform/network-address/ip-address.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';
import type { AccountsSchema, LimitRow } from '../storage/accounts-schema.ts';
import { createLimitStore, type LimitKey, type LimitRule } from '../storage/limit-store.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const PASSWORD_LOCKS_MS = [30, 60, 120, 240, 480, 900].map((seconds) => seconds * SECOND_MS);
const CODE_LOCKS_MS = [5, 10, 20, 40, 60].map((minutes) => minutes * MINUTE_MS);

/**
 * THE TABLE of limits in accounts: what is counted, by which key, how many in which window, and who is exempt. No other
 * file of the service holds a limit on how often someone may do something (docs/accounts.md shows the same table).
 */
export const POLICIES = {
  password_pair: {
    what: 'wrong passwords for one account from one client address',
    key: 'account and address',
    rule: { limit: 5, windowMs: 15 * MINUTE_MS, lockMs: PASSWORD_LOCKS_MS, sliding: true },
    exempt: 'known devices and login sessions',
  },
  password_account: {
    what: 'wrong passwords for one account from anywhere',
    key: 'account',
    rule: { limit: 50, windowMs: 15 * MINUTE_MS, lockMs: [15 * MINUTE_MS] },
    exempt:
      'known devices, login sessions, a password set by a mailed token in the last 15 minutes, the correct second factor',
  },
  password_known: {
    what: 'wrong passwords from one known device or login session of the account',
    key: 'account and device or login session',
    rule: { limit: 5, windowMs: 15 * MINUTE_MS, lockMs: PASSWORD_LOCKS_MS, sliding: true },
    exempt: 'nobody',
  },
  address_failures: {
    what: 'wrong passwords, codes and tokens from one client address',
    key: 'address',
    rule: { limit: 30, windowMs: MINUTE_MS },
    exempt: 'known devices and login sessions',
  },
  second_factor: {
    what: 'wrong codes of an authenticator app after the correct password',
    key: 'account',
    rule: { limit: 5, windowMs: 24 * HOUR_MS, lockMs: CODE_LOCKS_MS, every: 5, sliding: true },
    exempt: 'known devices, login sessions, a correct recovery code',
  },
  second_factor_known: {
    what: 'wrong codes from one known device or login session of the account',
    key: 'account and device or login session',
    rule: { limit: 5, windowMs: 24 * HOUR_MS, lockMs: CODE_LOCKS_MS, every: 5, sliding: true },
    exempt: 'a correct recovery code',
  },
  mail_requester: {
    what: 'mails that one client address asks for',
    key: 'address',
    rule: { limit: 30, windowMs: HOUR_MS },
    exempt: 'login sessions, for their own address',
  },
  mail_pair_minute: {
    what: 'mails to one recipient that one requester asks for',
    key: 'recipient and address or login session',
    rule: { limit: 3, windowMs: MINUTE_MS },
    exempt: 'nobody',
  },
  mail_pair_hour: {
    what: 'mails to one recipient that one requester asks for',
    key: 'recipient and address or login session',
    rule: { limit: 10, windowMs: HOUR_MS },
    exempt: 'nobody',
  },
  mail_recipient: {
    what: 'mails to one recipient that anyone asks for',
    key: 'recipient',
    rule: { limit: 10, windowMs: HOUR_MS },
    exempt: 'login sessions, for their own address; afterwards one mail in ten minutes',
  },
  mail_recipient_trickle: {
    what: 'mails to one recipient once mail_recipient is used up: its token or code lives longer than this window',
    key: 'recipient',
    rule: { limit: 1, windowMs: 10 * MINUTE_MS },
    exempt: 'login sessions, for their own address',
  },
  team_member: {
    what: 'times that one user is added to one team, or gets another role in it: each is a mail to them',
    key: 'team and user',
    rule: { limit: 5, windowMs: HOUR_MS },
    exempt: 'nobody',
  },
  oauth_start: {
    what: 'logins with other providers that one client address begins',
    key: 'address',
    rule: { limit: 30, windowMs: MINUTE_MS },
    exempt: 'nobody',
  },
  oauth_failure: {
    what: 'failed returns from other providers from one client address',
    key: 'address',
    rule: { limit: 30, windowMs: MINUTE_MS },
    exempt: 'nobody',
  },
  passkey_start: {
    what: 'logins with passkeys that one client address begins',
    key: 'address',
    rule: { limit: 30, windowMs: MINUTE_MS },
    exempt: 'nobody',
  },
  device_start: {
    what: 'logins of devices that one client address begins',
    key: 'address',
    rule: { limit: 30, windowMs: MINUTE_MS },
    exempt: 'nobody',
  },
  device_approval: {
    what: 'codes of devices that one account looks up or decides about',
    key: 'account',
    rule: { limit: 20, windowMs: 10 * MINUTE_MS },
    exempt: 'nobody',
  },
  export: {
    what: 'exports of the data of one account',
    key: 'account',
    rule: { limit: 10, windowMs: HOUR_MS },
    exempt: 'nobody',
  },
} as const satisfies Readonly<
  Record<string, { readonly what: string; readonly key: string; readonly rule: LimitRule; readonly exempt: string }>
>;

type PolicyName = keyof typeof POLICIES;

/** One key under one policy. */
export interface Limited extends LimitKey {
  readonly policy: PolicyName;
}

export interface LimitState {
  /** How many more events are allowed now; 0 while it is locked. */
  readonly left: number;
  /** Until when it is locked; 0 when it is not. */
  readonly lockedUntil: number;
  /** Whether events are remembered. */
  readonly isCounted: boolean;
}

export interface Limiter {
  /** Keeps guesses that arrive at the same time within what may still fail, in this process. */
  readonly gate: AttemptGate;
  /** Of up to three by one read, in their order. */
  states(limited: readonly Limited[]): Promise<LimitState[]>;
  /** Until when it is locked; 0 when it is not. */
  lockedUntil(limited: Limited): Promise<number>;
  /** Throws RATE_LIMITED before a moment; 0 is never before. */
  refuseUntil(moment: number): void;
  /** Throws RATE_LIMITED while it is locked. */
  refuseWhileLocked(limited: Limited): Promise<void>;
  /** For the batch that stores a failure. Its row is missing while the limit is locked: nothing is counted then. */
  count(limited: Limited): Runnable<LimitRow>;
  /** Whether this event led to a lock. */
  hasLocked(limited: Limited, counted: LimitRow | undefined): boolean;
  /** For the batch of something that is limited as such: undone with STORAGE_CONFLICT when none is left. */
  take(limited: Limited): Runnable;
  /** Takes one of each, or none and throws RATE_LIMITED with the time after which there is one of each again. */
  takeAll(limited: readonly Limited[]): Promise<void>;
  /**
   * Takes one mail, or throws RATE_LIMITED. Counts by requester first. The recipient counts last, and never ends the mail
   * altogether: requests of strangers must not keep the recipient from getting a mail.
   */
  takeMail(mail: { readonly email: string; readonly address: string; readonly session?: string }): Promise<void>;
  /**
   * For the batch that follows from a correct password or code: undone when a lock has begun since, on whichever
   * instance. So guesses at the same time on several instances get no more tries than one after another.
   */
  expectFree(limited: readonly [Limited, Limited?]): Runnable;
  forget(limited: Limited): Runnable;
  /** Forgets all wrong passwords of an account by strangers. */
  forgetStrangers(account: string): readonly Runnable[];
}

export function createLimiter(database: Database<AccountsSchema>, clock: Pick<Clock, 'now'>): Limiter {
  const store = createLimitStore(database);
  const ruleOf = ({ policy }: Limited): LimitRule => POLICIES[policy].rule;
  const retryAfterSeconds = (until: number) => Math.max(1, Math.ceil((until - clock.now()) / SECOND_MS));

  async function states(limited: readonly Limited[]): Promise<LimitState[]> {
    const now = clock.now();
    const rows = await store.find(limited, now);
    return limited.map((one, index) => stateOf(rows[index], ruleOf(one), now));
  }

  async function lockedUntil(limited: Limited): Promise<number> {
    return (await states([limited]))[0]?.lockedUntil ?? 0;
  }

  function refuseUntil(moment: number): void {
    if (moment > 0) throw new AppError('RATE_LIMITED', { retryAfterSeconds: retryAfterSeconds(moment) });
  }

  async function takeAll(limited: readonly Limited[]): Promise<void> {
    try {
      await database.write(limited.map((one) => store.countWithin(one, ruleOf(one), clock.now())));
    } catch (error) {
      if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      const until = Math.max(...(await Promise.all(limited.map(lockedUntil))));
      throw new AppError('RATE_LIMITED', { retryAfterSeconds: retryAfterSeconds(until) });
    }
  }

  return {
    gate: createAttemptGate(),
    lockedUntil,
    states,
    refuseUntil,
    refuseWhileLocked: async (limited) => refuseUntil(await lockedUntil(limited)),
    count: (limited) => store.count(limited, ruleOf(limited), clock.now()),
    hasLocked: (limited, counted) =>
      counted !== undefined && counted.locked_until > clock.now() && counted.count >= ruleOf(limited).limit,
    take: (limited) => store.countWithin(limited, ruleOf(limited), clock.now()),
    takeAll,
    async takeMail({ email, address, session }) {
      // The digest, because the address itself must not outlive its owner's account.
      const recipientKey = digestToken(email).toString('base64url');
      const key = `${recipientKey} ${session ?? addressKey(address)}`;
      const pair: readonly Limited[] = [
        { policy: 'mail_pair_minute', key },
        { policy: 'mail_pair_hour', key },
      ];
      if (session !== undefined) return takeAll(pair);
      const requester = [byAddress('mail_requester', { address }), ...pair];
      const recipient: Limited = { policy: 'mail_recipient', key: recipientKey };
      if ((await lockedUntil(recipient)) === 0) return takeAll([...requester, recipient]);
      return takeAll([...requester, { policy: 'mail_recipient_trickle', key: recipientKey }]);
    },
    expectFree: ([first, second = first]) => store.expectFree(first, second, clock.now()),
    forget: store.forget,
    forgetStrangers: (account) => [
      store.forgetAll('password_pair', account),
      store.forget({ policy: 'password_account', key: account }),
    ],
  };
}

function stateOf(row: LimitRow | undefined, { limit, every = 1 }: LimitRule, now: number): LimitState {
  if (row === undefined) return { left: limit, lockedUntil: 0, isCounted: false };
  if (row.locked_until > now) return { left: 0, lockedUntil: row.locked_until, isCounted: true };
  const left = row.count < limit ? limit - row.count : every - ((row.count - limit) % every);
  return { left, lockedUntil: 0, isCounted: true };
}

/** Returns the key of a client address. An IPv6 /64 counts as one address, because one household has all of it. */
export function addressKey(address: string): string {
  const parsed = parseIpAddress(address);
  if (parsed === undefined) return address;
  const plain = unmapAddress(parsed);
  if (plain.version === 4) return formatIpAddress(plain);
  return `${plain.groups
    .slice(0, 4)
    .map((group) => group.toString(16))
    .join(':')}::/64`;
}

export function byAddress(policy: PolicyName, { address }: { readonly address: string }): Limited {
  return { policy, key: addressKey(address) };
}

/**
 * Keeps a burst of parallel guesses within the budget that the same guesses would have one after another: no more are
 * under way at the same time than may still fail. Others wait, so that many logins of one user at the same time are not refused.
 */
interface AttemptGate {
  /**
   * `left` says how many may still fail, in the order of `keys`; it is asked again whenever an attempt has ended.
   * Resolves with the function that ends this attempt, or with undefined once none is left. End it after its failure
   * was stored.
   */
  enter(keys: readonly string[], left: () => Promise<readonly number[]>): Promise<(() => void) | undefined>;
}

const WAITING = 1000;
/** On a busy server attempts end all the time, so after this many reads a slightly stale one is accepted. */
const LOOKS = 5;

/** The attempts that wait for the same keys. */
interface Line {
  readonly keys: readonly string[];
  readonly wakes: (() => void)[];
}

export function createAttemptGate(): AttemptGate {
  const underWay = new Map<string, number>();
  const lines = new Map<string, Line>();
  let waiting = 0;
  let ended = 0;

  const wakeFirst = (name: string): void => {
    const line = lines.get(name);
    const wake = line?.wakes.shift();
    if (line?.wakes.length === 0) lines.delete(name);
    if (wake === undefined) return;
    waiting -= 1;
    wake();
  };

  const wait = (name: string, keys: readonly string[], waitedBefore: boolean): Promise<void> =>
    new Promise((resolve) => {
      const line = lines.get(name) ?? { keys, wakes: [] };
      lines.set(name, line);
      waiting += 1;
      if (waitedBefore) line.wakes.unshift(resolve);
      else line.wakes.push(resolve);
    });

  const end = (keys: readonly string[]): void => {
    for (const key of keys) {
      const count = (underWay.get(key) ?? 0) - 1;
      if (count > 0) underWay.set(key, count);
      else underWay.delete(key);
    }
    ended += 1;
    for (const [name, line] of lines) if (line.keys.some((key) => keys.includes(key))) wakeFirst(name);
  };

  return {
    async enter(keys, left) {
      const name = keys.join(' ');
      let waitedBefore = false;
      try {
        for (let look = 1; ; look += 1) {
          const before = ended;
          const budgets = await left();
          if (budgets.some((budget) => budget <= 0)) return undefined;
          if (ended !== before && look < LOOKS) continue;
          if (keys.every((key, index) => (underWay.get(key) ?? 0) < (budgets[index] ?? 0))) {
            for (const key of keys) underWay.set(key, (underWay.get(key) ?? 0) + 1);
            return () => end(keys);
          }
          if (waiting >= WAITING) throw new AppError('OVERLOADED');
          await wait(name, keys, waitedBefore);
          waitedBefore = true;
          look = 0;
        }
      } finally {
        // Each attempt that entered or was refused wakes the next one, because waking all of them at each end would cost too much.
        wakeFirst(name);
      }
    },
  };
}
