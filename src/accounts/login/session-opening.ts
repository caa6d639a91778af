import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { BasePort, CredentialsPort, PeoplePort, SessionsPort } from '../accounts-core.ts';
import { cookieText, DEVICE_COOKIE, readCookie, SESSION_COOKIE } from '../cookies.ts';
import { tokenKey } from '../flows.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import { createDeviceStore, type DeviceStore } from '../storage/session-store.ts';
import { timeText } from '../user-object.ts';

/** How long sessions last is in the settings (`accounts.sessions`). */
export const REFRESH_LIFETIME_MS = 7 * 24 * 3_600_000;
export const FAMILY_LIFETIME_MS = 30 * 24 * 3_600_000;
/** For this long the previous refresh token returns the same pair again, and the previous session token stays valid. */
export const REPLAY_MS = 10_000;

/** A session that exists once its statements are stored. */
export interface OpeningSession {
  readonly statements: readonly Runnable[];
  /** Sends the cookies, and returns the members that every login response has. */
  hand(call: Pick<Call, 'head' | 'reply'>): TokenMembers;
}

export interface TokenMembers {
  readonly token: string;
  readonly access_token: string;
  readonly refresh_token: string;
  readonly token_type: 'Bearer';
  readonly expiresAt: string;
  readonly expires_in: number;
}

export interface SessionOpening {
  /**
   * `epoch` is the user's epoch when the statements run. The tokens are always new, so that a value from the client never
   * becomes a session (fixation).
   */
  open(user: Pick<UserRow, 'id'>, epoch: number, call: Pick<Call, 'head'>): OpeningSession;
  /** Returns the digest of the device if this user has logged in on it before. */
  knownDevice(call: Pick<Call, 'head'>, userId: string): Promise<string | undefined>;
  /** Makes the browser a known device of the user: the cookie is sent, the statement stores the device. */
  rememberDevice(call: Pick<Call, 'head' | 'reply'>, userId: string): { statement: Runnable; sendCookie(): void };
  setSessionCookie(call: Pick<Call, 'head' | 'reply'>, token: string): void;
}

const MAX_USER_AGENT = 256;

type Parts = BasePort & PeoplePort & CredentialsPort & SessionsPort;

export function createSessionOpening(parts: Parts): SessionOpening {
  const { sessions, users, clock, randomness, makeId } = parts;
  const devices = createKnownDevices(createDeviceStore(parts.database), parts.secretBox, randomness);

  const sessionCookie = ({ head }: Pick<Call, 'head'>, token: string): string =>
    cookieText(SESSION_COOKIE, token, {
      secure: parts.cookiesAreSecure(head),
      maxAgeSeconds: Math.floor(parts.settings().sessions.cookie_lifetime / 1000),
    });

  const deviceCookie = ({ head }: Pick<Call, 'head'>, value: string): string =>
    cookieText(DEVICE_COOKIE, value, {
      secure: parts.cookiesAreSecure(head),
      maxAgeSeconds: DEVICE_LIFETIME_MS / 1000,
    });

  return {
    knownDevice: ({ head }, userId) => devices.find(head, userId),
    rememberDevice(call, userId) {
      const { cookie, statement } = devices.remember(call.head, userId, clock.now());
      return { statement, sendCookie: () => void call.reply.header('set-cookie', deviceCookie(call, cookie)) };
    },
    setSessionCookie: (call, token) => void call.reply.header('set-cookie', sessionCookie(call, token)),
    open(user, epoch, { head }) {
      const now = clock.now();
      const { token_lifetime: lifetime, cookie_lifetime: cookieLifetime } = parts.settings().sessions;
      const token = createToken(randomness);
      const refreshToken = createToken(randomness);
      const device = devices.remember(head, user.id, now);
      const started = sessions.start({
        id: makeId('ses_'),
        user_id: user.id,
        epoch,
        created_at: now,
        last_seen_at: now,
        access_expires_at: now + lifetime,
        cookieExpiresAt: now + cookieLifetime,
        expires_at: now + REFRESH_LIFETIME_MS,
        family_expires_at: now + FAMILY_LIFETIME_MS,
        address: head.address,
        user_agent: userAgentOf(head.headers['user-agent']),
        tokenHash: tokenKey(token),
        refreshHash: tokenKey(refreshToken),
      });
      return {
        statements: [...started, users.noteLogin({ id: user.id, now }), device.statement],
        hand(call) {
          call.reply.header('set-cookie', [sessionCookie(call, token), deviceCookie(call, device.cookie)]);
          return {
            token,
            access_token: token,
            refresh_token: refreshToken,
            token_type: 'Bearer',
            expiresAt: timeText(now + lifetime),
            expires_in: Math.floor(lifetime / 1000),
          };
        },
      };
    },
  };
}

/** Returns the user agent for the list of sessions, without characters that cannot be shown or stored. */
function userAgentOf(header: string | undefined): string {
  return (header ?? '').replaceAll(/[^\x20-\x7e]/g, '').slice(0, MAX_USER_AGENT);
}

/** Devices on which a user has completed a login. The cookie is encrypted, so it cannot be forged. */
export interface KnownDevices {
  /** The digest of the device that the request comes from, if someone has logged in there before. */
  find(head: RequestHead, userId: string): Promise<string | undefined>;
  /** The cookie's value for this device, the one it has when there is one, and the statement that remembers it. */
  remember(head: RequestHead, userId: string, now: number): { cookie: string; statement: Runnable };
}

export const DEVICE_LIFETIME_MS = 180 * 24 * 3_600_000;

const CONTEXT = 'cookie:xc_device';

export function createKnownDevices(
  store: DeviceStore,
  secretBox: SecretBox,
  randomness: Pick<Randomness, 'bytes'>,
): KnownDevices {
  const deviceOf = (head: RequestHead): string | undefined => {
    const cookie = readCookie(head, DEVICE_COOKIE);
    if (cookie === '') return undefined;
    try {
      return Buffer.from(secretBox.open(cookie, CONTEXT)).toString('utf8');
    } catch {
      // Forged, or encrypted with a removed key: treated as an unknown device.
      return undefined;
    }
  };
  return {
    async find(head, userId) {
      const device = deviceOf(head);
      if (device === undefined) return undefined;
      const hash = tokenKey(device);
      return (await store.has(userId, hash)) ? hash : undefined;
    },
    remember(head, userId, now) {
      const device = deviceOf(head) ?? createToken(randomness);
      return {
        cookie: secretBox.seal(device, CONTEXT),
        statement: store.remember({ userId, deviceHash: tokenKey(device), now }),
      };
    },
  };
}
