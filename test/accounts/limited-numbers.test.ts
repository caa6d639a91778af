import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { Client } from 'pg';
import { MAX_INVITATIONS } from '../../src/accounts/registration/invitations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { createCredentialStore } from '../../src/accounts/storage/credential-store.ts';
import { MAX_TEAMS_OF_ONE } from '../../src/accounts/storage/team-store.ts';
import type { DatabaseLocation } from '../../src/platform/database/database.ts';
import { errorCode } from '../../src/platform/errors/app-error.ts';
import { loggedInAs } from '../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { until } from '../kit/until.ts';

const CALLS = 20;
/** Of the calls that come together, so many still fit. */
const FREE = 3;
const ROWS_PER_INSERT = 1000;
const TIMES = { created_at: 1, updated_at: 1 };

const numbered = <Row>(count: number, row: (name: string) => Row): Row[] =>
  Array.from({ length: count }, (_, index) => row(String(index).padStart(6, '0')));

interface World {
  readonly accounts: RunningAccounts;
  readonly id: string;
  readonly token: string;
}

interface Case {
  readonly table: keyof AccountsSchema;
  readonly most: number;
  readonly error: string;
  /** Rows that exist before, by table, for `count` things that are counted. */
  rows(count: number, world: World): Readonly<Partial<Record<keyof AccountsSchema, readonly object[]>>>;
  call(index: number, world: World): Promise<{ readonly status: number; readonly body: { readonly error?: string } }>;
}

const teamRow = (id: string) => ({ id: `team_${id}`, name: id, name_key: id, plan: '', budget: '', ...TIMES });

const CASES: readonly Case[] = [
  {
    table: 'webhooks',
    most: 20,
    error: 'too_many_webhooks',
    rows: (count) => {
      const rest = { url: 'http://127.0.0.1:9/', events: '[]', secret: '', created_by: '', created_at: 1, dropped: 0 };
      return { webhooks: numbered(count, (id) => ({ id, ...rest, failing_since: null, disabled_at: null })) };
    },
    call: (index, { accounts, token }) =>
      accounts.post('admin/webhooks', { url: `http://127.0.0.1:9/${index}`, events: ['job.started'] }, { token }),
  },
  {
    table: 'service_accounts',
    most: 500,
    error: 'too_many_service_accounts',
    rows: (count) => ({
      service_accounts: numbered(count, (id) => ({ id, name: id, plan: '', created_by: '', created_at: 1 })),
    }),
    call: (index, { accounts, token }) => accounts.post('admin/services', { name: `more ${index}` }, { token }),
  },
  {
    table: 'invitations',
    most: MAX_INVITATIONS,
    error: 'too_many_invitations',
    rows: (count) => {
      const rest = { email: '', mailed: 0, role: 'user', plan: '', team: '', created_by: '', created_at: 1 };
      const expires_at = Number.MAX_SAFE_INTEGER;
      return { invitations: numbered(count, (id) => ({ id, token_hash: id, ...rest, expires_at })) };
    },
    call: (_, { accounts, token }) => accounts.post('admin/invitations', {}, { token }),
  },
  {
    table: 'team_members',
    most: MAX_TEAMS_OF_ONE,
    error: 'too_many_teams',
    rows: (count, { id: user_id }) => ({
      teams: numbered(count + CALLS, teamRow),
      team_members: numbered(count, (id) => ({ team_id: `team_${id}`, user_id, role: 'member', created_at: 1 })),
    }),
    call(index, { accounts, id: userId, token }) {
      const { id } = teamRow(String(MAX_TEAMS_OF_ONE - FREE + index).padStart(6, '0'));
      return accounts.post(`teams/${id}/members`, { userId }, { token });
    },
  },
  {
    table: 'access_tokens',
    most: 100,
    error: 'too_many_tokens',
    rows(count, { id: userId }) {
      const rest = { hint: '', owner: `user:${userId}`, name: '', scopes: '[]', team: '', last_used_at: null };
      const times = { created_at: 1, expires_at: Number.MAX_SAFE_INTEGER };
      return { access_tokens: numbered(count, (id) => ({ id, token_hash: id, ...rest, ...times })) };
    },
    call: (index, { accounts, token }) =>
      accounts.post('tokens', { name: `more ${index}`, scopes: ['account'] }, { token }),
  },
  {
    table: 'subscriptions',
    most: 100,
    error: 'too_many_subscriptions',
    rows(count, { id: user_id }) {
      const texts = { provider: '', payment_method: '', payment_qr: '', kind: '', plan_id: '', meta: '{}' };
      const rest = { ...texts, ...TIMES, named_plan: '', status: 'pending', revision: 0, event_at: 1 };
      const ends = { expires_at: null, cancelled_at: null };
      return { subscriptions: numbered(count, (id) => ({ id, user_id, external_id: id, ...rest, ...ends })) };
    },
    call: (index, { accounts, token }) => accounts.post('subscriptions', { externalId: `more ${index}` }, { token }),
  },
  {
    // By the store: a passkey over HTTP needs an authenticator.
    table: 'credentials',
    most: 5,
    error: 'STORAGE_CONFLICT',
    rows: (count, { id: user_id }) => {
      const rest = { value: '', state: 'active', label: '', counter: 0, confirmed_at: null, last_used_at: null };
      const row = (id: string) => ({ id, user_id, kind: 'passkey', subject: id, created_at: 1, ...rest });
      return { credentials: numbered(count, row) };
    },
    async call(index, { accounts: { database }, id: userId }) {
      const passkey = {
        id: `more${index}`,
        userId,
        subject: `more ${index}`,
        value: '',
        label: '',
        counter: 0,
        now: 1,
      };
      try {
        await database.write(createCredentialStore(database).addPasskey(passkey, 5));
        return { status: 201, body: {} };
      } catch (error) {
        return { status: 409, body: { error: String(errorCode(error)) } };
      }
    },
  },
];

/**
 * Keeps transactions that insert into a table from committing until `release`. Without a lock, more of them have counted
 * by then than fit: so a lock that is missing is found in every run, however fast the machine is.
 */
async function holdCommits(t: TestContext, location: DatabaseLocation, table: string) {
  assert.ok(location.engine === 'postgres');
  const { url, schema } = location;
  const client = new Client({ connectionString: url });
  await client.connect();
  t.after(() => client.end());
  const key = `hashtextextended('held ${schema}', 0)`;
  await client.query(`
    select pg_advisory_lock(${key});
    create function ${schema}.hold() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock_shared(${key}); return null; end $$;
    create constraint trigger hold after insert on ${schema}.${table} deferrable initially deferred
      for each row execute function ${schema}.hold();`);
  return {
    async waiting(): Promise<number> {
      const { rows } = await client.query('select count(distinct pid) as count from pg_locks where not granted');
      return Number(rows[0]?.count);
    },
    release: () => client.query(`select pg_advisory_unlock(${key})`),
  };
}

for (const engine of engines) {
  describe(`numbers that are limited, on ${engine}`, () => {
    const places = databasePlaces(engine);

    for (const { table, most, error, rows, call } of CASES) {
      test(`of ${CALLS} calls at the same moment ${FREE} fit: ${table}`, async (t: TestContext) => {
        const settings = '{ webhook_allow: [127.0.0.0/8] }';
        const location = places.location();
        const accounts = await startAccounts(t, { location, settings });
        const { query } = accounts.database;
        const world = { accounts, ...(await loggedInAs(accounts, 'admin')) };
        for (const [name, all = []] of Object.entries(rows(most - FREE, world))) {
          for (let from = 0; from < all.length; from += ROWS_PER_INSERT) {
            const part = all.slice(from, from + ROWS_PER_INSERT) as never;
            await query
              .insertInto(name as keyof AccountsSchema)
              .values(part)
              .execute();
          }
        }
        const held = engine === 'postgres' ? await holdCommits(t, location, table) : undefined;
        const calls = Array.from({ length: CALLS }, (_, index) => call(index, world));
        if (held !== undefined) {
          await until('more transactions than fit to wait', async () => (await held.waiting()) > FREE);
          await held.release();
        }
        const answers = await Promise.all(calls);
        const refused = answers.filter(({ status }) => status >= 300);
        assert.deepEqual(
          refused.map(({ status, body }) => `${status} ${body.error}`),
          new Array(CALLS - FREE).fill(`409 ${error}`),
        );
        const stored = await query.selectFrom(table).select(query.fn.countAll<number>().as('count')).execute();
        // The password of the person is a credential too.
        assert.equal(Number(stored[0]?.count), table === 'credentials' ? most + 1 : most);
        if (table !== 'team_members') return;
        const [user] = await query.selectFrom('users').select('teams').where('id', '=', world.id).execute();
        assert.equal(user?.teams, most, 'the user knows the same number');
      });
    }
  });
}
