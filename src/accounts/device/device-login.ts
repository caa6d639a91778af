import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { UserCall } from '../access.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort, SessionsPort } from '../accounts-core.ts';
import type {
  DeviceDecision,
  DeviceGrant,
  DeviceRequest,
  IssuedDeviceToken,
  NewDeviceLogin,
} from '../contract/tokens.ts';
import { tokenKey } from '../flows.ts';
import { byAddress } from '../limiter/limiter.ts';
import { requireNotClosing } from '../owners.ts';
import type { DeviceLoginRow } from '../storage/accounts-schema.ts';
import { createDeviceLoginStore } from '../storage/expiring-stores.ts';
import type { AccessTokens } from '../tokens/access-tokens.ts';
import { timeText } from '../user-object.ts';

const LIFETIME_MS = 10 * 60_000;
const INTERVAL_MS = 5000;
/** Added to the polling interval for each poll that is too early (RFC 8628, 3.5). */
const SLOWER_BY_MS = 5000;
const MAX_INTERVAL_MS = 60_000;
/** Without vowels, so that codes form no words, and without letters that look like digits (RFC 8628, 6.1). */
const LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
const CODE_LENGTH = 8;
const DEFAULT_SCOPES = ['bridge', 'completions', 'account'] as const;
/** The scopes that a device may get. `admin` is only for tokens that a user creates directly. */
const GRANTED: ReadonlySet<string> = new Set(DEFAULT_SCOPES);

/** How a program without a browser gets a token: it shows a code, and a person approves the code elsewhere (RFC 8628). */
interface DeviceLogin {
  begin(given: NewDeviceLogin, head: RequestHead): Promise<object>;
  /** The token, once a person has approved. Throws AUTHORIZATION_PENDING, SLOW_DOWN, ACCESS_DENIED or EXPIRED_TOKEN. */
  poll(given: DeviceGrant, head: RequestHead): Promise<IssuedDeviceToken>;
  /** Returns the request that the user is about to approve. */
  show(code: string, call: UserCall): Promise<DeviceRequest>;
  decide(code: string, decision: DeviceDecision, call: UserCall): Promise<void>;
}

type Parts = BasePort &
  PeoplePort &
  CredentialsPort &
  PostPort &
  Pick<SessionsPort, 'publicUrl'> & { readonly tokens: Pick<AccessTokens, 'issueForDevice' | 'refuseTooMany'> };

export function createDeviceLogin(parts: Parts): DeviceLogin {
  const { database, limiter, audit, clock, randomness, tokens } = parts;
  const store = createDeviceLoginStore(database);

  /** Returns the address for the user. Without a configured public address it is the one that the device itself uses. */
  function addressFor({ headers: { host = '' }, secure }: RequestHead): string {
    if (host === '' || parts.settings().public_url !== '') return parts.publicUrl();
    return `${secure ? 'https' : 'http'}://${host}`;
  }

  return {
    async begin({ client_id: client = 'unnamed', scope, name = client, expires_in_days: days = null }, head) {
      const scopes = readScopes(scope);
      await limiter.takeAll([byAddress('device_start', head)]);
      const now = clock.now();
      const deviceCode = createToken(randomness);
      const letters = Array.from({ length: CODE_LENGTH }, () => LETTERS[randomness.below(LETTERS.length)]).join('');
      const row: DeviceLoginRow = {
        code_hash: tokenKey(deviceCode),
        user_code_hash: tokenKey(letters),
        client,
        name,
        scopes: scopes.join(' '),
        days,
        address: head.address,
        state: 'pending',
        user_id: '',
        epoch: 0,
        interval_ms: INTERVAL_MS,
        polled_at: 0,
        created_at: now,
        expires_at: now + LIFETIME_MS,
      };
      await database.write([store.add(row)], { duplicate: 'OVERLOADED' });
      return {
        device_code: deviceCode,
        user_code: `${letters.slice(0, CODE_LENGTH / 2)}-${letters.slice(CODE_LENGTH / 2)}`,
        verification_uri: `${addressFor(head)}/device`,
        expires_in: LIFETIME_MS / 1000,
        interval: INTERVAL_MS / 1000,
      };
    },
    async poll({ device_code: code }, head) {
      const now = clock.now();
      const codeHash = tokenKey(code);
      const row = await store.byCode(codeHash, now);
      if (row === undefined) throw new AppError('EXPIRED_TOKEN');
      if (row.state === 'denied') throw new AppError('ACCESS_DENIED');
      if (row.state === 'approved') {
        // The user was paused or deleted after the approval.
        if ((await parts.owners.ownerOf(row.user_id))?.state !== 'active') throw new AppError('ACCESS_DENIED');
        const days = row.days === null ? {} : { expires_in_days: row.days };
        const input = { name: row.name, scopes: readScopes(row.scopes), ...days };
        const issued = await tokens.issueForDevice(row.user_id, input, head, store.take(codeHash, now));
        const { token: access_token, scopes, expiresAt, id } = issued;
        const expires_in = Math.floor((Date.parse(expiresAt) - now) / 1000);
        return { access_token, token_type: 'Bearer', expires_in, scope: scopes.join(' '), id };
      }
      const isEarly = now - row.polled_at < row.interval_ms;
      const interval = isEarly ? Math.min(row.interval_ms + SLOWER_BY_MS, MAX_INTERVAL_MS) : row.interval_ms;
      await database.write([store.notePoll({ codeHash, now, interval })]);
      throw new AppError(isEarly ? 'SLOW_DOWN' : 'AUTHORIZATION_PENDING');
    },
    async show(code, { caller: { user } }) {
      await limiter.takeAll([{ policy: 'device_approval', key: user.id }]);
      const row = await store.byUserCode(tokenKey(lettersOf(code)), clock.now());
      if (row === undefined) throw new AppError('DEVICE_CODE_NOT_FOUND');
      const { client, name, address, created_at: at, expires_at: until } = row;
      const scopes = readScopes(row.scopes);
      return { client, name, address, scopes, createdAt: timeText(at), expiresAt: timeText(until) };
    },
    async decide(code, { approve }, { caller: { user }, head }) {
      requireNotClosing(user);
      const userCodeHash = tokenKey(lettersOf(code));
      const now = clock.now();
      await limiter.takeAll([{ policy: 'device_approval', key: user.id }]);
      if (approve) await tokens.refuseTooMany(`user:${user.id}`);
      const row = await store.byUserCode(userCodeHash, now);
      const event = approve ? 'device.approved' : 'device.denied';
      const details = { client: row?.client ?? '', deviceAddress: row?.address ?? '' };
      await database.write(
        [
          store.decide({
            ...{ userCodeHash, userId: user.id, epoch: user.access_epoch, now },
            state: approve ? 'approved' : 'denied',
          }),
          audit.statement({ event, actor: user.id, subject: user.id, head, details }),
        ],
        { conflict: 'DEVICE_CODE_NOT_FOUND' },
      );
    },
  };
}

function readScopes(text: string | undefined): (typeof DEFAULT_SCOPES)[number][] {
  if (text === undefined) return [...DEFAULT_SCOPES];
  const words = new Set(text.split(' ').filter((word) => word !== ''));
  if (words.size === 0 || [...words].some((word) => !GRANTED.has(word))) {
    throw new AppError('INVALID_SCOPE', { scopes: DEFAULT_SCOPES.join(', ') });
  }
  return DEFAULT_SCOPES.filter((scope) => words.has(scope));
}

/** Normalizes a typed code: `wdjb-mjht`, `WDJB MJHT`. */
function lettersOf(code: string): string {
  return code.toUpperCase().replaceAll(/[^A-Z]/g, '');
}
