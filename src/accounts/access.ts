import type { Clock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { bearerToken, type Call, type Guard, type RequestHead } from '../platform/http/surface.ts';
import { isSecretParameter } from '../platform/log/hidden-secrets.ts';
import { readCookie, SESSION_COOKIE } from './cookies.ts';
import { requireFreshLogin, type SessionCheck } from './login/session-check.ts';
import { type AdminPermission, holdsPermission, type PermissionMatrix } from './permissions.ts';
import type { FoundSession } from './storage/session-store.ts';

/** Someone who is logged in. */
export interface UserCaller {
  /** The user's row, and the session that the request came with. */
  readonly user: FoundSession;
}

/** A call of someone who is logged in, whatever it takes. */
export type UserCall = Pick<Call<UserCaller>, 'caller' | 'head' | 'reply'>;

export interface AgentCaller {
  readonly agent: { readonly id: string };
}

/** The guards of the route table. Each refuses credentials in the address first. */
export interface AccountsAccess {
  /** Open to everyone; `allowed` are names in the query that look like credentials and are none here. */
  anyone(...allowed: readonly string[]): Guard<never>;
  /** A user's session by bearer token or cookie; `readonly` users may only read. */
  readonly user: Guard<UserCaller>;
  /** As `user`, for what a `readonly` user may change too: the own logout, password and second factor. */
  readonly userEvenReadonly: Guard<UserCaller>;
  /**
   * A user who has logged in within the last five minutes, for changes of what proves who someone is: a session that was
   * left open somewhere, or stolen, is not enough. `readonly` users may, as with `userEvenReadonly`.
   */
  readonly freshLogin: Guard<UserCaller>;
  /** As `freshLogin`, without `readonly` users. */
  readonly freshUser: Guard<UserCaller>;
  adminWith(permission: AdminPermission): Guard<UserCaller>;
  /** Only root and admin: for what no permission key names. */
  readonly adminOnly: Guard<UserCaller>;
  /** As `adminOnly`, with a login from the last five minutes. */
  readonly freshAdmin: Guard<UserCaller>;
  readonly agent: Guard<AgentCaller>;
}

export interface AccountsAccessOptions {
  readonly checkSession: SessionCheck;
  readonly agents: { byToken(token: string): Promise<{ readonly id: string } | undefined> };
  matrix(): Promise<PermissionMatrix>;
  /** Under which users reach this program: `https://accounts.example`. */
  publicUrl(): string;
  readonly clock: Pick<Clock, 'now'>;
}

const ADMIN_ROLES: ReadonlySet<string> = new Set(['root', 'admin', 'operator']);

export function createAccountsAccess(options: AccountsAccessOptions): AccountsAccess {
  const { checkSession, agents, matrix, publicUrl, clock } = options;

  async function session(head: RequestHead): Promise<UserCaller> {
    refuseCredentialsInQuery(head, []);
    // The bearer token wins, even a wrong one: nobody is taken for someone that they did not ask to be.
    const byHeader = head.headers.authorization !== undefined;
    const token = byHeader ? bearerToken(head) : readCookie(head, SESSION_COOKIE);
    if (token === '') throw new AppError('SESSION_TOKEN_REQUIRED');
    const user = await checkSession(token, byHeader ? 'bearer' : 'cookie');
    if (user === undefined) throw new AppError('INVALID_SESSION');
    if (!byHeader && isWrite(head) && !isSameOrigin(head, publicUrl())) throw new AppError('CROSS_SITE_REQUEST');
    return { user };
  }

  const adminBy =
    (allows: (role: string) => Promise<boolean>): ((head: RequestHead) => Promise<UserCaller>) =>
    async (head) => {
      const caller = await session(head);
      const { role } = caller.user;
      if (!ADMIN_ROLES.has(role) || !(await allows(role))) throw new AppError('FORBIDDEN');
      return caller;
    };

  const adminOnly = adminBy(async (role) => role !== 'operator');
  const fresh =
    (guard: (head: RequestHead) => Promise<UserCaller>): Guard<UserCaller> =>
    async (head) => {
      const caller = await guard(head);
      requireFreshLogin(caller.user, clock);
      return caller;
    };

  async function user(head: RequestHead): Promise<UserCaller> {
    const caller = await session(head);
    if (caller.user.role === 'readonly' && isWrite(head)) throw new AppError('READ_ONLY_ACCOUNT');
    return caller;
  }

  return {
    user,
    freshUser: fresh(user),
    freshLogin: fresh(session),
    freshAdmin: fresh(adminOnly),
    anyone: (...allowed) => {
      return (head) => {
        refuseCredentialsInQuery(head, allowed);
        return undefined as never;
      };
    },
    userEvenReadonly: session,
    adminWith: (permission) => adminBy(async (role) => holdsPermission(role, permission, await matrix())),
    adminOnly,
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

/** An address ends up in logs, histories and Referer headers: no place for a credential. */
function refuseCredentialsInQuery({ query }: RequestHead, allowed: readonly string[]): void {
  for (const name of query.keys()) {
    if (isSecretParameter(name) && !allowed.includes(name)) {
      throw new AppError('CREDENTIALS_IN_QUERY', { name: name.slice(0, 64) });
    }
  }
}

function isWrite({ method }: RequestHead): boolean {
  return method !== 'GET' && method !== 'HEAD';
}

/** Browsers say where a request comes from; a request that does not say so brings no cookie of ours along. */
function isSameOrigin(head: RequestHead, publicUrl: string): boolean {
  const { origin, host = '', 'sec-fetch-site': site } = head.headers;
  if (site !== undefined && site !== 'same-origin') return false;
  if (origin === undefined) return site === 'same-origin';
  const own = [URL.parse(publicUrl)?.origin, `${head.secure ? 'https' : 'http'}://${host}`];
  return own.includes(origin);
}
