import type { Randomness } from '../../platform/clock/randomness.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Role } from '../permissions.ts';
import type { SubscriptionRow } from '../storage/accounts-schema.ts';
import { DAY_MS } from '../storage/user-count-store.ts';
import type { NewUserRow } from '../storage/user-store.ts';
import { newSubscription } from '../subscriptions/subscriptions.ts';
import { nameKey } from './identity.ts';

export interface NewUser {
  /** As `normalizeName` gives it. */
  readonly name: string;
  /** As `normalizeEmail` gives it. */
  readonly email: string;
  /** The address was shown to be theirs. */
  readonly emailVerified: boolean;
  /** They may log in as they are. */
  readonly confirmed: boolean;
  /** Given by an invitation or an administrator. */
  readonly plan?: string;
  readonly passwordHash: string | null;
  readonly role: Role;
  readonly now: number;
}

/** The row of someone who has just come: every member is ours to set, none is taken over from a request. */
export function newUserRow(user: NewUser, makeId: MakeId, randomness: Pick<Randomness, 'bytes'>): NewUserRow {
  return {
    id: makeId('usr_'),
    name: user.name,
    name_key: nameKey(user.name),
    email: user.email,
    email_verified: user.emailVerified ? 1 : 0,
    password_hash: user.passwordHash,
    role: user.role,
    root_mark: user.role === 'root' ? 'root' : null,
    plan: user.plan ?? '',
    active: 1,
    confirmed: user.confirmed ? 1 : 0,
    closing_at: null,
    proxy_uuid: randomUuid(randomness),
    proxy_uuid_expires_at: null,
    subscribed: 0,
    access_epoch: 1,
    totp_state: null,
    totp_issued_at: null,
    totp_confirmed_at: null,
    created_at: user.now,
    updated_at: user.now,
    last_login_at: null,
  };
}

/** RFC 9562, version 4. */
export function randomUuid(randomness: Pick<Randomness, 'bytes'>): string {
  const bytes = Uint8Array.from(randomness.bytes(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Buffer.from(bytes).toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** The subscription that a registration starts with; none when trials are switched off. */
export function trialOf(userId: string, days: number, now: number, makeId: MakeId): readonly SubscriptionRow[] {
  if (days === 0) return [];
  const trial = { provider: 'trial', kind: 'trial', plan_id: `TRIAL-${days}D`, status: 'trialing' };
  const times = { expires_at: now + days * DAY_MS, event_at: now };
  return [{ ...newSubscription(makeId('sub_'), userId, `trial-${userId}`, now), ...trial, ...times }];
}
