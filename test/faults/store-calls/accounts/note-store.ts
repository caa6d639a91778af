import type { RunningAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Stage } from '../scenario.ts';

/** Notes what must be so in the store of accounts, whatever has happened. */
export async function noteStore({ note }: Stage, { database }: RunningAccounts): Promise<void> {
  const { query } = database;
  const users = await query.selectFrom('users').selectAll().orderBy('role').execute();
  const counts = await query.selectFrom('user_counts').selectAll().orderBy('role').execute();
  const events = await query.selectFrom('audit').select(['event', 'subject']).execute();
  const came = events.filter(({ event }) => event === 'user.created').map(({ subject }) => subject);
  const gone = events.filter(({ event }) => event === 'user.deleted').map(({ subject }) => subject);
  const active = await query.selectFrom('subscriptions').select('user_id').where('status', '=', 'active').execute();
  const subscribers = new Set(active.map(({ user_id }) => user_id));
  const roles = [...new Set([...users, ...counts].map(({ role }) => role))];
  note({
    kind: 'fact',
    name: 'users by role, active, subscribed',
    wanted: roles.map((role) => {
      const own = users.filter((user) => user.role === role);
      return [role, own.length, own.filter(({ active }) => active === 1).length, sumOf(own, 'subscribed')];
    }),
    found: roles.map((role) => {
      const own = counts.filter((count) => count.role === role);
      return [role, sumOf(own, 'total'), sumOf(own, 'active'), sumOf(own, 'subscribed')];
    }),
  });
  note({
    kind: 'fact',
    name: 'users who have a subscription',
    wanted: users.filter(({ id }) => subscribers.has(id)).map(({ id }) => id),
    found: users.filter(({ subscribed }) => subscribed === 1).map(({ id }) => id),
  });
  note({
    kind: 'fact',
    name: 'users of whom the audit log tells once that they came',
    wanted: [...users.map(({ id }) => id), ...gone].sort(),
    found: came.sort(),
  });
  const epochs = new Map(users.map(({ id, active, access_epoch }) => [id, active === 1 ? access_epoch : 0]));
  const sessions = await query.selectFrom('sessions').select(['user_id', 'epoch']).execute();
  note({
    kind: 'fact',
    name: 'sessions that their users have ended',
    wanted: [],
    found: sessions.filter(({ user_id, epoch }) => epochs.get(user_id) !== epoch).map(({ user_id }) => user_id),
  });
}

function sumOf<Name extends string>(rows: readonly Readonly<Record<Name, number>>[], name: Name): number {
  return rows.reduce((sum, row) => sum + row[name], 0);
}
