import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { Actor, UserCall } from '../access.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort } from '../accounts-core.ts';
import { auditName } from '../audit.ts';
import type {
  AccessToken,
  NewAccessToken,
  NewServiceAccount,
  ServiceAccount,
  SignedTokenRequest,
} from '../contract/tokens.ts';
import { tokenKey } from '../flows.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import { requireInTeam, requireNotClosing, requirePlan } from '../owners.ts';
import { isAdminRole } from '../permissions.ts';
import type { AccessTokenRow, ServiceAccountRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';
import { TOKEN_PREFIX } from './identities.ts';
import type { SignedTokens } from './signed-tokens.ts';

type Parts = BasePort & Pick<PeoplePort, 'owners' | 'users'> & PostPort & Pick<CredentialsPort, 'accessTokens'>;

const DAY_MS = 24 * 3_600_000;
const DEFAULT_DAYS = 90;
const MAX_TOKENS = 100;
const MAX_SERVICES = 500;
const HINT_LENGTH = TOKEN_PREFIX.length + 4;
/** A service account has no scope `account`, because it has no profile to manage. */
const SERVICE_SCOPES: ReadonlySet<string> = new Set(['bridge', 'completions']);

/** Answers `token/jwt`: a token for five minutes with some of the scopes of the caller. */
export async function issueSignedToken(
  signed: SignedTokens,
  principal: Principal,
  { scopes: asked = [...principal.scopes] }: SignedTokenRequest,
) {
  const scopes = asked.filter((scope) => principal.scopes.has(scope));
  if (scopes.length === 0 || scopes.length < asked.length) throw new AppError('FORBIDDEN');
  const { token, expiresIn } = await signed.issue(principal, scopes);
  return { access_token: token, token_type: 'Bearer', expires_in: expiresIn, scope: scopes.join(' ') };
}

type IssuedToken = AccessToken & { readonly token: string };
export type AccessTokens = ReturnType<typeof createAccessTokens>;

/** Personal access tokens of people, and the service accounts of administrators with their tokens. */
export function createAccessTokens(parts: Parts) {
  const { database, users, accessTokens: store, audit, mail, settings, clock, randomness, makeId } = parts;

  function expiryOf(input: NewAccessToken): number {
    const now = clock.now();
    const longest = settings().tokens.max_lifetime;
    const days = input.expires_in_days;
    if (days === undefined) return now + Math.min(DEFAULT_DAYS * DAY_MS, longest);
    if (days * DAY_MS > longest) throw new AppError('TOKEN_LIFETIME_TOO_LONG', { days: Math.floor(longest / DAY_MS) });
    return now + days * DAY_MS;
  }

  async function refuseTooMany(owner: string): Promise<void> {
    const current = await store.ofOwner(owner, clock.now());
    if (current.length >= MAX_TOKENS) throw new AppError('TOO_MANY_TOKENS', { most: MAX_TOKENS });
  }

  /** `take` uses up the approval of the token; EXPIRED_TOKEN if another request has used it up. */
  async function issue(owner: string, input: NewAccessToken, actor: Actor, take?: Runnable): Promise<IssuedToken> {
    if (input.team !== undefined) requireInTeam(await parts.owners.ownerOf(owner), input.team);
    const now = clock.now();
    const token = createToken(randomness, TOKEN_PREFIX);
    const row: AccessTokenRow = {
      id: makeId('tok_'),
      token_hash: tokenKey(token),
      hint: token.slice(0, HINT_LENGTH),
      owner,
      name: input.name,
      scopes: JSON.stringify([...new Set(input.scopes)]),
      team: input.team ?? '',
      created_at: now,
      expires_at: expiryOf(input),
      last_used_at: null,
    };
    await refuseTooMany(owner);
    const details = {
      ...{ token: row.id, name: row.name, scopes: input.scopes.join(' ') },
      ...(row.team !== '' && { team: row.team }),
      ...(take && { how: 'device' }),
    };
    const created = audit.statement(entryOf('token.created', owner, actor, details));
    const notice = await noticeFor(row, input);
    const statements = [...(take === undefined ? [] : [take]), ...store.add(row, MAX_TOKENS), created, ...notice];
    await database.write(statements).catch(async (error) => {
      if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      // Concurrent requests saw the same list before, so the limit of the write refuses the last of them.
      await refuseTooMany(owner);
      throw new AppError('EXPIRED_TOKEN');
    });
    mail.wake();
    return { ...describeToken(row), token };
  }

  /** A mail to the person: someone else may have created the token. Service accounts have no address. */
  async function noticeFor({ owner, name }: AccessTokenRow, { scopes }: NewAccessToken): Promise<readonly Runnable[]> {
    const user = owner.startsWith('user:') ? await users.byId(auditName(owner)) : undefined;
    if (user === undefined) return [];
    return [mail.enqueue(securityNoticeMail(user.email, 'tokenCreated', { name, scopes: scopes.join(', ') }))];
  }

  async function revoke(owner: string, id: string, actor: Actor): Promise<void> {
    await database.write(
      [store.remove({ id, owner }), audit.statement(entryOf('token.revoked', owner, actor, { token: id }))],
      { conflict: 'TOKEN_NOT_FOUND' },
    );
  }

  const list = async (owner: string) => ({ tokens: (await store.ofOwner(owner, clock.now())).map(describeToken) });

  async function requireService(id: string): Promise<string> {
    if ((await store.service(id)) === undefined) throw new AppError('SERVICE_ACCOUNT_NOT_FOUND');
    return `service:${id}`;
  }

  return {
    /** For the caller. The scope `admin` is for those who administer. */
    async create(input: NewAccessToken, { caller: { user }, head }: UserCall) {
      requireNotClosing(user);
      const mayAdminister = isAdminRole(user.role) || user.role === 'operator';
      if (input.scopes.includes('admin') && !mayAdminister) throw new AppError('FORBIDDEN');
      return issue(`user:${user.id}`, input, { id: user.id, role: user.role, head });
    },
    refuseTooMany,
    /** For a device that this user has approved. `take` ends the approval. */
    issueForDevice: (userId: string, input: NewAccessToken, head: RequestHead, take: Runnable) =>
      issue(`user:${userId}`, input, { id: userId, role: '', head }, take),
    list: ({ caller: { user } }: UserCall) => list(`user:${user.id}`),
    /** By a login, or by any token for the account: a terminal must be able to revoke the token of a lost machine. */
    remove: (id: string, { caller: { user }, head }: UserCall): Promise<void> =>
      revoke(`user:${user.id}`, id, { id: user.id, role: user.role, head }),
    services: {
      async create({ name, plan = '' }: NewServiceAccount, actor: Actor): Promise<{ service: ServiceAccount }> {
        requirePlan(plan, settings());
        const row = { id: makeId('svc_'), name, plan, created_by: actor.id, created_at: clock.now() };
        const entry = entryOf('service.created', `service:${row.id}`, actor, { name });
        await database.write([...store.addService(row, MAX_SERVICES), audit.statement(entry)], {
          conflict: 'TOO_MANY_SERVICE_ACCOUNTS',
          details: { most: MAX_SERVICES },
        });
        return { service: describeService(row) };
      },
      list: async () => ({ services: (await store.services()).map(describeService) }),
      async remove(id: string, actor: Actor): Promise<void> {
        const owner = `service:${id}`;
        const entry = entryOf('service.removed', owner, actor, {});
        await database.write([store.removeService(id), store.removeAllOf(owner), audit.statement(entry)], {
          conflict: 'SERVICE_ACCOUNT_NOT_FOUND',
        });
        await parts.owners.refresh(owner);
      },
      async createToken(id: string, input: NewAccessToken, actor: Actor) {
        const owner = await requireService(id);
        if (input.scopes.some((scope) => !SERVICE_SCOPES.has(scope))) throw new AppError('FORBIDDEN');
        return issue(owner, input, actor);
      },
      listTokens: async (id: string) => list(await requireService(id)),
      revokeToken: (id: string, token: string, actor: Actor) => revoke(`service:${id}`, token, actor),
    },
  };
}

function entryOf(event: string, owner: string, { id, head }: Actor, details: Readonly<Record<string, unknown>>) {
  return { event, actor: id, subject: auditName(owner), details, ...(head !== undefined && { head }) };
}

export function describeToken({ scopes, ...row }: AccessTokenRow): AccessToken {
  return {
    id: row.id,
    name: row.name,
    hint: row.hint,
    scopes: JSON.parse(scopes) as AccessToken['scopes'],
    team: row.team === '' ? null : row.team,
    createdAt: timeText(row.created_at),
    expiresAt: timeText(row.expires_at),
    lastUsedAt: row.last_used_at === null ? null : timeText(row.last_used_at),
  };
}

function describeService({ id, name, plan, created_at: at }: ServiceAccountRow): ServiceAccount {
  return { id, owner: `service:${id}`, name, plan, createdAt: timeText(at) };
}
