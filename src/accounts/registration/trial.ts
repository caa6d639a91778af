import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { SubscriptionRow } from '../storage/accounts-schema.ts';

const DAY_MS = 24 * 3_600_000;

/** The subscription that a registration starts with; none when trials are switched off. */
export function trialOf(userId: string, days: number, now: number, makeId: MakeId): readonly SubscriptionRow[] {
  if (days === 0) return [];
  return [
    {
      id: makeId('sub_'),
      user_id: userId,
      external_id: `trial-${userId}`,
      provider: 'trial',
      payment_method: '',
      payment_qr: '',
      kind: 'trial',
      plan_id: `TRIAL-${days}D`,
      named_plan: '',
      status: 'trialing',
      meta: '{}',
      revision: 1,
      created_at: now,
      updated_at: now,
      expires_at: now + days * DAY_MS,
      cancelled_at: null,
      event_at: now,
    },
  ];
}
