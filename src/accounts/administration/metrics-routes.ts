import { Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { createUserCountStore, DAY_MS } from '../storage/user-count-store.ts';
import { firstDayOfSeries, userSeries } from './user-metrics.ts';

const Point = Type.Object({
  period: Type.String({ examples: ['2030-01-31', '2030-W05'] }),
  total: Type.Integer(),
  active: Type.Integer(),
  subscribed: Type.Integer(),
});
const Metrics = Type.Object({
  overview: Type.Object({
    totalUsers: Type.Integer(),
    activeUsers: Type.Integer({ description: 'Not paused.' }),
    subscribedUsers: Type.Integer({ description: 'With an active subscription; trials are none.' }),
    newUsersLast24h: Type.Integer(),
  }),
  series: Type.Object({ daily: Type.Array(Point), weekly: Type.Array(Point) }),
});

export function metricsRoutes({
  access,
  database,
  clock,
}: Pick<AccountsCore, 'access' | 'database' | 'clock'>): readonly Route[] {
  const counts = createUserCountStore(database);
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/admin/users/metrics',
      guard: access.adminWith('admin.users.metrics.read'),
      summary: 'How many users there are, and when they came.',
      schema: { response: { 200: Metrics } },
      async handle() {
        const now = clock.now();
        const [totals, byDay, recent] = await Promise.all([
          counts.totals(),
          counts.byDay(firstDayOfSeries(now)),
          counts.registeredSince(now - DAY_MS),
        ]);
        return {
          overview: {
            totalUsers: totals.total,
            activeUsers: totals.active,
            subscribedUsers: totals.subscribed,
            newUsersLast24h: recent,
          },
          series: userSeries(byDay, now),
        };
      },
    },
  ];
  return rows;
}
