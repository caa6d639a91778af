import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { SecretBox } from '../../platform/secrets/secret-box.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import { DEVICE_COOKIE, readCookie } from '../cookies.ts';
import { tokenKey } from '../flows.ts';
import type { DeviceStore } from '../storage/device-store.ts';

/** Devices on which someone has logged in fully before. The cookie is sealed: nobody can make one. */
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
      // Forged, or sealed with a key that is gone: a device like any other.
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
