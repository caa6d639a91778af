import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { sql } from 'kysely';
import { firstDayOfSeries, userSeries } from '../../../src/accounts/administration/metrics-and-permissions.ts';
import { dayOf } from '../../../src/accounts/storage/user-store.ts';
import { loggedInAs } from '../../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { timeLimit } from '../../kit/time.ts';

const DAY_MS = 24 * 3_600_000;

const counts = (total: number, active = total, subscribed = 0) => ({ total, active, subscribed });

test('A-58: the series are 30 UTC days and 12 ISO weeks, oldest first, with a point for empty ones too', () => {
  const now = Date.UTC(2031, 0, 1, 0, 0, 1);
  const { daily, weekly } = userSeries([], now);
  assert.deepEqual([daily.length, weekly.length], [30, 12]);
  assert.deepEqual([daily[0]?.period, daily.at(-1)?.period], ['2030-12-03', '2031-01-01']);
  // 1 January 2031 is a Wednesday: it lies in the first week of its year, whose Monday is in the year before.
  assert.deepEqual([weekly.at(-2)?.period, weekly.at(-1)?.period], ['2030-W52', '2031-W01']);
  assert.equal(userSeries([], Date.UTC(2027, 0, 3)).weekly.at(-1)?.period, '2026-W53');
  assert.deepEqual(weekly[0], { period: '2030-W42', ...counts(0) });
});

test('A-58: a user belongs to the UTC day and the ISO week of the registration, to the millisecond', () => {
  const monday = Date.UTC(2030, 0, 7);
  const days = [monday - 1, monday, monday + 6 * DAY_MS, monday + 7 * DAY_MS - 1].map(dayOf);
  const { daily, weekly } = userSeries(
    days.flatMap((day, index) => (index === 3 ? [] : [{ day, ...counts(index + 1) }])),
    monday + 7 * DAY_MS - 1,
  );
  assert.equal(days[2], days[3]);
  const at = (period: string) => [...daily, ...weekly].find((point) => point.period === period)?.total;
  assert.deepEqual([at('2030-01-06'), at('2030-01-07'), at('2030-01-13')], [1, 2, 3]);
  assert.deepEqual([at('2030-W01'), at('2030-W02')], [1, 5]);
  assert.equal(firstDayOfSeries(monday), dayOf(monday) - 77);
});

for (const engine of engines) {
  describe(`metrics on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('A-58: the figures follow every change of users and subscriptions, and name nobody', async (t) => {
      const clock = createFakeClock(Date.UTC(2030, 4, 15, 23, 59, 59));
      const accounts = await startAccounts(t, { location: places.location(), clock });
      const admin = await loggedInAs(accounts, 'admin');
      const metrics = async (token = admin.token) => (await accounts.get('admin/users/metrics', { token })).body;
      const ben = await loggedInAs(accounts, 'user', 'Ben');
      await clock.advance(2000);
      const cleo = await loggedInAs(accounts, 'user', 'Cleo');
      const order = await accounts.post('subscriptions', { externalId: 'x' }, { token: cleo.token });
      const other = await accounts.post('subscriptions', { externalId: 'y' }, { token: cleo.token });
      const setStatus = (answer: typeof order, status: string) =>
        accounts.post(`admin/subscriptions/${answer.body.subscription.id}/status`, { status }, { token: admin.token });
      await Promise.all([setStatus(order, 'active'), setStatus(other, 'active')]);
      await accounts.post(`admin/users/${ben.id}/pause`, {}, { token: admin.token });
      const { overview, series } = await metrics();
      assert.deepEqual(overview, { totalUsers: 3, activeUsers: 2, subscribedUsers: 1, newUsersLast24h: 3 });
      assert.deepEqual(series.daily.slice(-2), [
        { period: '2030-05-15', ...counts(2, 1) },
        { period: '2030-05-16', ...counts(1, 1, 1) },
      ]);
      assert.deepEqual(series.weekly.at(-1), { period: '2030-W20', ...counts(3, 2, 1) });
      assert.doesNotMatch(JSON.stringify({ overview, series }), /ben|cleo|@|usr_/i);
      // Both of Cleo's subscriptions end at once: neither sees the other one as still active in the end.
      await Promise.all([setStatus(order, 'expired'), setStatus(other, 'past_due')]);
      assert.equal((await metrics()).overview.subscribedUsers, 0);
      await accounts.post(`admin/users/${ben.id}/role`, { role: 'operator' }, { token: admin.token });
      await accounts.call('DELETE', `admin/users/${cleo.id}`, { token: admin.token });
      await clock.sleep(DAY_MS - 1000);
      const again = await accounts.login(admin);
      assert.deepEqual((await metrics(again.body.token)).overview, {
        totalUsers: 2,
        activeUsers: 1,
        subscribedUsers: 0,
        newUsersLast24h: 0,
      });
      await assertCountsAreTrue(accounts);
    });
  });
}

/** What is kept up with each change must be what counting all users would give. */
async function assertCountsAreTrue({ database }: RunningAccounts): Promise<void> {
  const users = await database.read(database.query.selectFrom('users').selectAll().compile());
  const rows = await database.read(database.query.selectFrom('user_counts').selectAll().compile());
  for (const { day, role, total, active, subscribed } of rows) {
    const own = users.filter((user) => dayOf(user.created_at) === day && user.role === role);
    const sum = (name: 'active' | 'subscribed') => own.reduce((whole, user) => whole + user[name], 0);
    assert.deepEqual([total, active, subscribed], [own.length, sum('active'), sum('subscribed')], `${day} ${role}`);
  }
  assert.equal(
    rows.reduce((whole, { total }) => whole + total, 0),
    users.length,
  );
}

test('A-58: with a hundred thousand users the figures come as quickly as with few', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const { database, clock } = accounts;
  const now = clock.now();
  const columns = Object.keys((await database.read(database.query.selectFrom('users').selectAll().compile()))[0] ?? {});
  const unique = new Map([
    ['id', sql`'usr_0' || number`],
    ['name', sql`'many ' || number`],
    ['name_key', sql`'many ' || number`],
    ['email', sql`'many-' || number || '@example.org'`],
    ['proxy_uuid', sql`'uuid ' || number`],
    ['role', sql`'user'`],
    ['root_mark', sql`null`],
    ['created_at', sql`${now} - (number % 400) * ${DAY_MS}`],
  ]);
  const many = sql`insert into users (${sql.join(columns.map((column) => sql.ref(column)))})
    with recursive numbers(number) as (select 100000 union all select number + 1 from numbers where number < 199999)
    select ${sql.join(columns.map((column) => unique.get(column) ?? sql.ref(column)))} from numbers, users
    where users.id = ${admin.id}`;
  await database.write([many.compile(database.query)]);
  const byDay = Array.from({ length: 400 }, (_, index) => ({
    day: dayOf(now - index * DAY_MS),
    role: 'user',
    ...counts(250),
  }));
  await database.write([database.query.insertInto('user_counts').values(byDay).compile()]);
  const times: number[] = [];
  for (let index = 0; index < 20; index += 1) {
    const started = performance.now();
    const { body } = await accounts.get('admin/users/metrics', { token: admin.token });
    times.push(performance.now() - started);
    assert.equal(body.overview.totalUsers, 100_001);
  }
  const p95 = times.sort((left, right) => left - right)[18] ?? Number.POSITIVE_INFINITY;
  assert.ok(p95 < timeLimit(200), `${p95} ms`);
  const page = await accounts.get('admin/users?role=user&limit=10', { token: admin.token });
  assert.deepEqual([page.body.total, page.body.users.length], [100_000, 10]);
});
