import type { FakeClock } from '../../../kit/fake-clock.ts';
import type { Chance } from '../chance.ts';
import type { PlayedProgram } from '../played-program.ts';
import type { AccountEvent } from './account-events.ts';
import type { AccountRequest, PlayedAccounts } from './played-accounts.ts';

export interface AccountAppsOptions {
  readonly chance: Chance;
  readonly clock: FakeClock;
  readonly accounts: PlayedProgram<PlayedAccounts>;
  note(event: AccountEvent): void;
}

interface Person {
  readonly email: string;
  /** The newest last. Which of the last two counts may be in doubt. */
  readonly passwords: string[];
  readonly sessions: KnownSession[];
}

/** A session with all pairs of tokens that its client got, oldest first. */
interface KnownSession {
  readonly pairs: TokenPair[];
}

interface TokenPair {
  readonly token: string;
  readonly refresh: string;
}

const PEOPLE = ['ann', 'ben'];
const ADDRESSES = ['203.0.113.1', '198.51.100.7'];
const WRONG = 'not the password at all';
const LOGIN = { method: 'POST', path: '/api/auth/login' };

/** One of the people does something; nobody waits for it. */
export function createAccountApps({ chance, clock, accounts, note }: AccountAppsOptions): () => void {
  const people = PEOPLE.map((name): Person => ({ email: `${name}@example.org`, passwords: [], sessions: [] }));
  const names = new Map<string, string>();
  let made = 0;

  /** A short name for a token, the same each time that it is seen. */
  function nameOf(letter: string, token: string): string {
    const known = names.get(token) ?? `${letter}${names.size + 1}`;
    names.set(token, known);
    return known;
  }

  const newPassword = (): string => {
    made += 1;
    return `copper kettle ${made} over the pass`;
  };

  type Rest<Event> = Event extends AccountEvent
    ? Omit<Event, 'startedAt' | 'endedAt' | 'wallStartedAt' | 'wallEndedAt' | 'outcome' | 'code' | 'token' | 'refresh'>
    : never;

  /** Makes the call and notes it, with the tokens that came of it. */
  function call(event: Rest<AccountEvent>, request: AccountRequest, onPair?: (pair: TokenPair) => void): void {
    const wallStartedAt = clock.now();
    accounts.ask(
      (running) => running.request(request),
      ({ told, code, ...ended }) => {
        const pair =
          told?.access_token === undefined
            ? undefined
            : { token: String(told.access_token), refresh: String(told.refresh_token) };
        note({
          ...event,
          ...ended,
          wallStartedAt,
          wallEndedAt: clock.now(),
          ...(code !== undefined && { code }),
          ...(pair && { token: nameOf('t', pair.token), refresh: nameOf('r', pair.refresh) }),
        } as AccountEvent);
        if (pair !== undefined) onPair?.(pair);
      },
    );
  }

  function register({ email, passwords }: Person): void {
    const password = newPassword();
    passwords.push(password);
    const body = { name: email.slice(0, 3), email, password };
    const request = { method: 'POST', path: '/api/auth/register', address: chance.pick(ADDRESSES), body };
    call({ kind: 'register', email, password }, request);
  }

  function logIn(person: Person): void {
    const { email, passwords, sessions } = person;
    const address = chance.pick(ADDRESSES);
    const known = chance.happens(0.15) ? chance.pick(passwords) : (passwords.at(-1) ?? '');
    const password = chance.happens(0.1) ? WRONG : known;
    const body = { identifier: email, password };
    call({ kind: 'login', email, address, password }, { ...LOGIN, address, body }, (pair) =>
      sessions.push({ pairs: [pair] }),
    );
  }

  /** Some wrong passwords at once, from one place. */
  function guess({ email }: Person): void {
    const address = chance.pick(ADDRESSES);
    const body = { identifier: email, password: WRONG };
    for (let left = chance.between(3, 7); left > 0; left -= 1) {
      call({ kind: 'login', email, address, password: WRONG }, { ...LOGIN, address, body });
    }
  }

  /** With the newest token; or with an older one, as after a lost answer, or as a thief would. */
  function refresh({ email }: Person, { pairs }: KnownSession): void {
    const used = chance.happens(0.7) ? pairs.at(-1) : chance.pick(pairs);
    const request = {
      method: 'POST',
      path: '/api/auth/token/refresh',
      address: chance.pick(ADDRESSES),
      body: { refresh_token: used?.refresh },
    };
    const event = { kind: 'refresh', email, used: nameOf('r', used?.refresh ?? '') } as const;
    for (let times = chance.happens(0.2) ? 2 : 1; times > 0; times -= 1) {
      call(event, request, (pair) => {
        if (!pairs.some(({ refresh: known }) => known === pair.refresh)) pairs.push(pair);
      });
    }
  }

  function changePassword(person: Person, { pairs }: KnownSession): void {
    const { email, passwords, sessions } = person;
    const own = pairs.at(-1) as TokenPair;
    const from = chance.happens(0.8) ? (passwords.at(-1) ?? '') : WRONG;
    const to = newPassword();
    const address = chance.pick(ADDRESSES);
    const body = { currentPassword: from, newPassword: to };
    const request = { method: 'POST', path: '/api/auth/password/change', address, token: own.token, body };
    if (from === passwords.at(-1)) passwords.push(to);
    call({ kind: 'password', email, by: nameOf('r', own.refresh), address, from, to }, request, (pair) =>
      sessions.push({ pairs: [pair] }),
    );
  }

  function useSession(kind: 'check' | 'end' | 'end-others', { email }: Person, { pairs }: KnownSession): void {
    const { token, refresh: by } = pairs.at(-1) as TokenPair;
    const method = kind === 'check' ? 'GET' : 'DELETE';
    const path = kind === 'end-others' ? '/api/auth/sessions' : '/api/auth/session';
    call({ kind, email, by: nameOf('r', by) }, { method, path, address: chance.pick(ADDRESSES), token });
  }

  return () => {
    if (!accounts.isRunning()) return;
    const person = chance.pick(people);
    if (person.passwords.length === 0) return register(person);
    if (person.sessions.length === 0) return logIn(person);
    const session = chance.pick(person.sessions.slice(-4));
    const act = chance.weigh<(who: Person, which: KnownSession) => void>([
      [25, logIn],
      [3, guess],
      [40, refresh],
      [20, (who, which) => useSession('check', who, which)],
      [6, (who, which) => useSession('end', who, which)],
      [3, (who, which) => useSession('end-others', who, which)],
      [6, changePassword],
    ]);
    return act(person, session);
  };
}
