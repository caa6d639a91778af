import type { Clock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { refuseCrossSite } from '../platform/http/cross-origin.ts';
import { bearerToken, type Call, type Guard, type RequestHead } from '../platform/http/surface.ts';
import { isSignedToken, type Principal, type Scope } from '../platform/identity/principal.ts';
import { isSecretParameter } from '../platform/log/hidden-secrets.ts';
import { readCookie, SESSION_COOKIE } from './cookies.ts';
import { requireFreshLogin, type SessionCheck } from './login/session-check.ts';
import { type AdminPermission, holdsPermission, type PermissionMatrix } from './permissions.ts';
import type { FoundSession } from './storage/session-store.ts';
import type { UserStore } from './storage/user-store.ts';
import { type FoundToken, type Identities, TOKEN_PREFIX } from './tokens/identities.ts';

/** Someone who is logged in. */
export interface UserCaller {
  /** The user's row, and the session that the request came with. */
  readonly user: FoundSession;
  /** Set when the request came with a personal access token instead of a login. */
  readonly token?: FoundToken;
}

/** A call of a logged-in user, without its typed input. */
export type UserCall = Pick<Call<UserCaller>, 'caller' | 'head' | 'reply'>;

/** The caller of an administrative change: an administrator, or an operator by a command, who ranks with root. */
export interface Actor {
  readonly id: string;
  readonly role: string;
  readonly head?: RequestHead;
}

/** Returns the caller as an actor. */
export function actorOf({ caller: { user }, head }: Pick<UserCall, 'caller' | 'head'>): Actor {
  return { id: user.id, role: user.role, head };
}

export interface AgentCaller {
  readonly agent: { readonly id: string };
}

/** The guards of the route table. Each refuses credentials in the address first. */
export interface AccountsAccess {
  /** Open to everyone; `allowed` are names in the query that look like credentials and are none here. */
  anyone(...allowed: readonly string[]): Guard<never>;
  /** A login session by bearer token or cookie, or an access token for the account; `readonly` users may only read. */
  readonly user: Guard<UserCaller>;
  /** As `user`, but only with a login: an access token may not change its user's identity. */
  readonly loggedIn: Guard<UserCaller>;
  /** A login session, for what a `readonly` user may change too: the own logout, password and second factor. */
  readonly userEvenReadonly: Guard<UserCaller>;
  /**
   * A user who has logged in within the last five minutes, for changes of what proves who someone is: a session that was
   * left open somewhere, or stolen, is not enough. `readonly` users may, as with `userEvenReadonly`.
   */
  readonly freshLogin: Guard<UserCaller>;
  /** As `freshLogin`, without `readonly` users. */
  readonly freshUser: Guard<UserCaller>;
  adminWith(permission: AdminPermission): Guard<UserCaller>;
  /** Only root and admin: for actions without a permission key. */
  readonly adminOnly: Guard<UserCaller>;
  /** As `adminOnly`, with a login from the last five minutes. */
  readonly freshAdmin: Guard<UserCaller>;
  readonly agent: Guard<AgentCaller>;
  /** Any caller with a login or an access token of any scope, but not with a signed token. */
  readonly principal: Guard<Principal>;
}

export interface AccountsAccessOptions {
  readonly checkSession: SessionCheck;
  readonly identities: Pick<Identities, 'byToken' | 'identify'>;
  readonly users: Pick<UserStore, 'byId'>;
  readonly agents: { byToken(token: string): Promise<{ readonly id: string } | undefined> };
  matrix(): Promise<PermissionMatrix>;
  /** Under which users reach this program: `https://accounts.example`. */
  publicUrl(): string;
  readonly clock: Pick<Clock, 'now'>;
}

type FindCaller = (head: RequestHead) => UserCaller | Promise<UserCaller>;

const ADMIN_ROLES: ReadonlySet<string> = new Set(['root', 'admin', 'operator']);

export function createAccountsAccess(options: AccountsAccessOptions): AccountsAccess {
  const { checkSession, identities, users, agents, matrix, publicUrl, clock } = options;

  /** The user of a personal access token that has the scope, in the place of a login. */
  async function withToken(token: string, scope: Scope): Promise<UserCaller> {
    const found = await identities.byToken(token);
    if (found === undefined) throw new AppError('INVALID_SESSION');
    const { row, principal } = found;
    const user = await users.byId(row.owner.slice(row.owner.indexOf(':') + 1));
    if (user === undefined || !principal.scopes.has(scope)) throw new AppError('FORBIDDEN');
    const session = {
      session_id: row.id,
      session_epoch: user.access_epoch,
      session_created_at: row.created_at,
      session_last_seen_at: clock.now(),
      access_expires_at: row.expires_at,
      token_expires_at: row.expires_at,
      bearer_until: row.expires_at,
    };
    return { user: { ...user, ...session }, token: found };
  }

  /** `scope` is what a personal access token must have; undefined: only a login counts. */
  const caller =
    (scope: Scope | undefined) =>
    (head: RequestHead): UserCaller | Promise<UserCaller> => {
      const token = bearerToken(head);
      if (!token.startsWith(TOKEN_PREFIX)) return session(head, token);
      refuseCredentialsInQuery(head, []);
      if (scope === undefined) throw new AppError('LOGIN_REQUIRED');
      return withToken(token, scope);
    };
  const login = caller(undefined);

  function session(head: RequestHead, bearer: string): UserCaller | Promise<UserCaller> {
    refuseCredentialsInQuery(head, []);
    // The bearer token wins, even an invalid one, so that a request never runs as another user than it names.
    const byHeader = head.headers.authorization !== undefined;
    const token = byHeader ? bearer : readCookie(head, SESSION_COOKIE);
    if (token === '') throw new AppError('SESSION_TOKEN_REQUIRED');
    const found = checkSession(token, byHeader ? 'bearer' : 'cookie');
    return found instanceof Promise ? found.then((user) => enter(head, user)) : enter(head, found);
  }

  function enter(head: RequestHead, user: FoundSession | undefined): UserCaller {
    if (user === undefined) throw new AppError('INVALID_SESSION');
    if (head.headers.authorization === undefined) refuseCrossSite(head, publicUrl());
    return { user };
  }

  const adminBy =
    (find: FindCaller, allows: (role: string) => Promise<boolean>) =>
    async (head: RequestHead): Promise<UserCaller> => {
      const found = await find(head);
      const { role } = found.user;
      if (!ADMIN_ROLES.has(role) || !(await allows(role))) throw new AppError('FORBIDDEN');
      return found;
    };
  const isNoOperator = async (role: string) => role !== 'operator';
  const fresh =
    (guard: FindCaller): Guard<UserCaller> =>
    async (head) => {
      const found = await guard(head);
      requireFreshLogin(found.user, clock);
      return found;
    };

  const notReadonly =
    (find: FindCaller): FindCaller =>
    (head) => {
      const found = find(head);
      return found instanceof Promise
        ? found.then((one) => refuseReadonlyWrite(head, one))
        : refuseReadonlyWrite(head, found);
    };

  return {
    user: notReadonly(caller('account')),
    loggedIn: notReadonly(login),
    freshUser: fresh(notReadonly(login)),
    freshLogin: fresh(login),
    freshAdmin: fresh(adminBy(login, isNoOperator)),
    anyone: (...allowed) => {
      return (head) => {
        refuseCredentialsInQuery(head, allowed);
        return undefined as never;
      };
    },
    userEvenReadonly: login,
    adminWith: (permission) =>
      adminBy(caller('admin'), async (role) => holdsPermission(role, permission, await matrix())),
    adminOnly: adminBy(caller('admin'), isNoOperator),
    async principal(head) {
      refuseCredentialsInQuery(head, []);
      const token = bearerToken(head);
      if (isSignedToken(token)) throw new AppError('INVALID_SESSION');
      const found = await identities.identify(head, 'token or cookie');
      if (found !== undefined) return found;
      const hasNone = head.headers.authorization === undefined && readCookie(head, SESSION_COOKIE) === '';
      // A login to an account that its owner is deleting still counts, but not for work.
      const held = hasNone || token.startsWith(TOKEN_PREFIX) ? undefined : await session(head, token);
      if ((held?.user.closing_at ?? null) !== null) throw new AppError('ACCOUNT_CLOSING');
      throw new AppError(hasNone ? 'SESSION_TOKEN_REQUIRED' : 'INVALID_SESSION');
    },
    async agent(head) {
      refuseCredentialsInQuery(head, []);
      const token = bearerToken(head);
      if (token === '') throw new AppError('MISSING_TOKEN');
      const agent = await agents.byToken(token);
      if (agent === undefined) throw new AppError('INVALID_AGENT_TOKEN');
      return { agent };
    },
  };
}

/** Throws CREDENTIALS_IN_QUERY, because URLs end up in logs, histories and Referer headers. */
function refuseCredentialsInQuery({ query }: RequestHead, allowed: readonly string[]): void {
  for (const name of query.keys()) {
    if (isSecretParameter(name) && !allowed.includes(name)) {
      throw new AppError('CREDENTIALS_IN_QUERY', { name: name.slice(0, 64) });
    }
  }
}

function refuseReadonlyWrite({ method }: RequestHead, found: UserCaller): UserCaller {
  if (found.user.role === 'readonly' && method !== 'GET' && method !== 'HEAD') throw new AppError('READ_ONLY_ACCOUNT');
  return found;
}
