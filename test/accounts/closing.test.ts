import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import type { CompletionsSchema } from '../../src/completions/storage/completions-schema.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import type { Database, DatabaseLocation } from '../../src/platform/database/database.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import { GOOD_PASSWORD, type LoggedIn } from '../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../kit/accounts/start-accounts.ts';
import { callOnce, completionsDatabase, headWith, startKeys } from '../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { temporaryFolder } from '../kit/running-program.ts';

const DAY_MS = 24 * 3_600_000;
const PLANS = '{ free: { models: ["*"], budget: { usd: 5, period: month }, keys: 5 } }';
const NAME = 'Quentin Zweig';
const ADDRESS = 'quentin.zweig@example.org';

interface World {
  readonly accounts: RunningAccounts;
  readonly completions: Database<CompletionsSchema>;
  readonly keys: ReturnType<typeof startKeys>;
  readonly folder: string;
  readonly admin: LoggedIn;
  readonly person: LoggedIn;
  readonly key: string;
}

/** Accounts and completions side by side, with files in one folder, and someone who has left traces everywhere. */
async function startWorld(
  t: TestContext,
  location: (name: string) => DatabaseLocation,
  folder: string,
): Promise<World> {
  const completions = await openDatabase<CompletionsSchema>({
    ...completionsDatabase,
    location: location('completions'),
    clock: systemClock,
  });
  let accounts: RunningAccounts | undefined;
  const keys = startKeys(completions, {
    settings: { master_key: 'master-key-0d9f8e7c6b5a4', store_content: true },
    owners: {
      ownerOf: (id) => accounts?.owners.ownerOf(id),
      watch: () => () => undefined,
      record: async (entry) => accounts?.owners.record(entry),
    },
  });
  t.after(async () => {
    await keys.stop();
    await completions.close();
  });
  accounts = await startAccounts(t, {
    location: location('accounts'),
    folder,
    plans: PLANS,
    completionKeys: keys.ownKeys,
  });
  const admin = await loggedInAs(accounts, 'admin', 'Ada');
  await accounts.post('register/verify', { email: ADDRESS, code: '000000' });
  const { id } = await accounts.register(NAME);
  const login = await accounts.login({ id, name: NAME, email: ADDRESS, password: GOOD_PASSWORD });
  const person = { id, name: NAME, email: ADDRESS, password: GOOD_PASSWORD, token: login.body.token } as LoggedIn;
  const { token } = person;
  await accounts.login({ ...person, password: 'a wrong one' });
  await accounts.post('register/send', { email: ADDRESS });
  await accounts.post('password/forgot', { email: ADDRESS });
  await accounts.post('subscriptions', { externalId: `order of ${ADDRESS}`, meta: { payer: NAME } }, { token });
  await accounts.post('admin/invitations', { email: ADDRESS }, { token: admin.token });
  const issued = await accounts.post('keys', { name: `laptop of ${NAME}` }, { token });
  assert.equal(issued.status, 201, issued.text);
  const holder = await keys.access.withKey(headWith(issued.body.key));
  callOnce(keys, holder);
  await keys.ownKeys.usage(id);
  const { query } = completions;
  const [call] = await completions.read(query.selectFrom('usage_records').select('id').compile());
  const content = { record_id: call?.id ?? '', request: `I am ${NAME}`, answer: `Is ${ADDRESS} yours?` };
  await completions.write([query.insertInto('usage_contents').values(content).compile()]);
  return { accounts, completions, keys, folder, admin, person, key: issued.body.key };
}

/** Where the address or the name is found: tables and files. */
async function tracesIn({ accounts, completions, folder }: World): Promise<string[]> {
  const holds = (text: string) => text.toLowerCase().includes(ADDRESS) || text.toLowerCase().includes('zweig');
  const found: string[] = [];
  for (const database of [accounts.database, completions] as readonly Pick<Database, 'engine' | 'name' | 'read'>[]) {
    const listed =
      database.engine === 'sqlite'
        ? `select name from sqlite_schema where type = 'table'`
        : 'select table_name as name from information_schema.tables where table_schema = current_schema()';
    const tables = await database.read<{ name: string }>({ sql: listed, parameters: [] });
    assert.ok(tables.length > 5);
    for (const { name } of tables) {
      const rows = await database.read({ sql: `select * from ${name}`, parameters: [] });
      if (holds(JSON.stringify(rows))) found.push(`${database.name}.${name}`);
    }
  }
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const text = await readFile(join(entry.parentPath, entry.name), 'latin1');
    if (holds(text.replaceAll('=\n', ''))) found.push(entry.name);
  }
  return found;
}

for (const engine of engines) {
  describe(`closing an account on ${engine}`, () => {
    const places = databasePlaces(engine);
    const start = async (t: TestContext) => {
      const folder = await temporaryFolder(t);
      const location = (name: string): DatabaseLocation =>
        engine === 'sqlite' ? { engine, file: join(folder, `${name}.db`) } : places.location();
      return startWorld(t, location, folder);
    };

    test('DA-20: after a deletion no table and no file holds the address or the name', async (t) => {
      const world = await start(t);
      const { accounts, admin, person } = world;
      const before = await tracesIn(world);
      for (const place of [
        'accounts.users',
        'accounts.audit',
        'accounts.subscriptions',
        'completions.keys',
        'completions.usage_contents',
      ]) {
        assert.ok(before.includes(place), `${place} not in ${before}`);
      }
      assert.ok(before.some((place) => place.endsWith('.eml')));
      await accounts.post('admin/blacklist', { email: ADDRESS }, { token: admin.token });
      await accounts.call('DELETE', `admin/blacklist/${ADDRESS}`, { token: admin.token });
      assert.equal((await accounts.call('DELETE', `admin/users/${person.id}`, { token: admin.token })).status, 204);
      assert.deepEqual(await tracesIn(world), []);
      const events = (await auditOf(accounts, admin, `subject=${person.id}`)).map(({ event, details }) => ({
        event,
        details,
      }));
      assert.deepEqual(events.at(-1)?.event, 'user.created', 'the id stays as a pseudonym');
      assert.deepEqual(
        events.find(({ event }) => event === 'user.deleted'),
        { event: 'user.deleted', details: { role: 'user' } },
      );
      const created = events.find(({ event }) => event === 'key.created');
      assert.equal(created?.details.name, '[removed]');
      const records = world.completions.query.selectFrom('usage_records').select('owner');
      assert.deepEqual(await world.completions.read(records.compile()), [{ owner: `user:${person.id}` }]);
    });

    test('DA-20: an owner asks for deletion, keys stop immediately, and after 14 days everything is gone', async (t) => {
      const world = await start(t);
      const { accounts, admin, person, keys } = world;
      const { token } = person;
      const { key } = (await accounts.post('keys', { name: 'second' }, { token })).body;
      const asked = await accounts.post('delete', undefined, { token });
      assert.deepEqual([asked.status, asked.body.message], [200, 'account_closing']);
      assert.equal(Date.parse(asked.body.user.deletesAt), accounts.clock.now() + 14 * DAY_MS);
      await accounts.eventually(async () =>
        (await accounts.mails(ADDRESS)).some((mail) => mail.includes('will be deleted')),
      );
      await assert.rejects(async () => keys.access.withKey(headWith(key)), { code: 'INVALID_API_KEY' });
      const refused = await accounts.post('keys', { name: 'third' }, { token });
      assert.deepEqual([refused.status, refused.body.error], [403, 'account_closing']);
      await accounts.clock.sleep(14 * DAY_MS - 120_000);
      const again = await accounts.login(person);
      assert.equal(again.status, 200, 'the owner can still log in');
      const repeated = await accounts.post('delete', { password: GOOD_PASSWORD }, { token: again.body.token });
      assert.equal(repeated.body.user.deletesAt, asked.body.user.deletesAt, 'asking again does not put it off');
      assert.equal((await accounts.database.read(usersNamed(accounts, person.id))).length, 1);
      await accounts.clock.advance(300_000);
      await accounts.eventually(async () => {
        // A sweep that is under way sets its next time when it ends, which may be after the time that was let pass.
        await accounts.clock.advance(60_000);
        return (await accounts.database.read(usersNamed(accounts, person.id))).length === 0;
      });
      await accounts.eventually(async () => (await tracesIn(world)).length === 0);
      const entries = await auditOf(accounts, await relogged(accounts, admin), `subject=${person.id}`);
      assert.deepEqual(
        entries.filter(({ event }) => event.startsWith('user.')).map(({ event, actor }) => [event, actor]),
        [
          ['user.deleted', 'system'],
          ['user.closing', person.id],
          ['user.created', person.id],
        ],
      );
    });
  });
}

const usersNamed = ({ database }: RunningAccounts, id: string) =>
  database.query.selectFrom('users').select('id').where('id', '=', id).compile();

async function relogged(accounts: RunningAccounts, person: LoggedIn): Promise<{ token: string }> {
  return { token: (await accounts.login(person)).body.token };
}

test('DA-20: an owner undoes the deletion, and the keys work again', async (t) => {
  const folder = await temporaryFolder(t);
  const { accounts, admin, person, keys } = await startWorld(
    t,
    (name) => ({ engine: 'sqlite', file: join(folder, `${name}.db`) }),
    folder,
  );
  const { key } = (await accounts.post('keys', { name: 'second' }, person)).body;
  await accounts.post('delete', {}, person);
  const working = await accounts.post('token/jwt', {}, person);
  assert.deepEqual([working.status, working.body.error], [403, 'account_closing'], 'the login has not ended');
  const kept = await accounts.call('DELETE', 'delete', { token: person.token });
  assert.deepEqual([kept.status, kept.body.message, kept.body.user.deletesAt], [200, 'account_kept', undefined]);
  assert.equal((await keys.access.withKey(headWith(key))).owner, `user:${person.id}`);
  await accounts.clock.advance(20 * DAY_MS);
  assert.equal((await accounts.login(person)).status, 200);
  const events = (await auditOf(accounts, await relogged(accounts, admin), `subject=${person.id}`)).map(
    ({ event }) => event,
  );
  assert.ok(events.includes('user.closing_undone') && !events.includes('user.deleted'));
  assert.equal((await accounts.call('DELETE', 'delete', await relogged(accounts, person))).status, 200, 'and again');
});

test('DA-20: deletion needs the password or a fresh login, and the last administrator stays', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await loggedInAs(accounts, 'readonly', 'Ann');
  const last = await accounts.post('delete', {}, { token: admin.token });
  assert.deepEqual([last.status, last.body.error], [409, 'last_admin']);
  await accounts.clock.advance(6 * 60_000);
  for (const body of [{}, { password: 'a wrong one' }]) {
    const refused = await accounts.post('delete', body, { token: ann.token });
    assert.deepEqual([refused.status, refused.body.error], [401, 'reauthentication_required']);
  }
  assert.equal((await accounts.post('delete', { pasword: GOOD_PASSWORD }, ann)).status, 400);
  const second = await loggedInAs(accounts, 'admin', 'Second');
  assert.equal((await accounts.post('delete', { password: GOOD_PASSWORD }, { token: admin.token })).status, 200);
  const other = await accounts.post('delete', {}, { token: second.token });
  assert.equal(other.body.error, 'last_admin', 'someone who is about to go does not count');
  assert.equal((await accounts.post('delete', { password: GOOD_PASSWORD }, { token: ann.token })).status, 200);
});

test('DA-20: an export holds what is known of its owner, and nothing of others', async (t) => {
  const folder = await temporaryFolder(t);
  const { accounts, admin, person, key } = await startWorld(
    t,
    (name) => ({ engine: 'sqlite', file: join(folder, `${name}.db`) }),
    folder,
  );
  await accounts.post(`admin/users/${person.id}/plan`, { plan: 'free' }, { token: admin.token, from: '192.0.2.99' });
  const answer = await accounts.get('export', { token: person.token });
  assert.equal(answer.status, 200, answer.text);
  assert.match(answer.headers.get('content-disposition') ?? '', /attachment/);
  const { user, credentials, sessions, subscriptions, keys, usage, audit, auditIsComplete } = answer.body;
  assert.deepEqual([user.id, user.email, user.name], [person.id, ADDRESS, NAME]);
  assert.deepEqual(
    credentials.map(({ kind }: { kind: string }) => kind),
    ['password'],
  );
  assert.deepEqual([sessions.length, subscriptions.length, keys.length, auditIsComplete], [1, 2, 1, true]);
  assert.equal(usage.keys[0].models[0].requests, 1);
  const planned = audit.find(({ event }: { event: string }) => event === 'plan.changed');
  assert.deepEqual([planned.byOwner, planned.address], [false, undefined], 'not where the administrator sat');
  assert.ok(
    audit.some(({ event, address }: { event: string; address: string }) => event === 'login.failed' && address),
  );
  for (const secret of [admin.id, '192.0.2.99', key, '$argon2', person.token]) {
    assert.ok(!answer.text.includes(secret), secret);
  }
  for (let count = 0; count < 9; count += 1) await accounts.get('export', { token: person.token });
  const limited = await accounts.get('export', { token: person.token });
  assert.deepEqual([limited.status, limited.body.error], [429, 'rate_limited']);
  assert.equal((await accounts.get('export')).status, 401);
});

test('an owner cannot undo a deletion that has begun, which would keep the user and not the keys', async (t) => {
  const undone: number[] = [];
  let token = '';
  const keys = {
    create: () => assert.fail(),
    rotate: () => assert.fail(),
    usage: () => assert.fail(),
    list: async () => [{ id: 'key_1' }],
    eraseContents: async () => undefined,
    remove: async () => void undone.push((await accounts.call('DELETE', 'delete', { token })).status),
  };
  const accounts = await startAccounts(t, { completionKeys: keys });
  await loggedInAs(accounts, 'root', 'admin');
  const person = await loggedInAs(accounts, 'user', 'person');
  await accounts.post('delete', {}, { token: person.token });
  token = person.token;
  const due = { closing_at: accounts.clock.now() + 1000 };
  await accounts.database.query.updateTable('users').set(due).where('id', '=', person.id).execute();
  await accounts.clock.advance(70_000);
  await accounts.eventually(async () => undone.length > 0);
  assert.equal(undone[0], 401);
  await accounts.eventually(async () => (await accounts.login(person)).status === 401);
});

test('an export that is being put together is not sent to someone who is paused by then', async (t) => {
  const reading = Promise.withResolvers<void>();
  let readers = 0;
  const paused = Promise.withResolvers<void>();
  const keys = {
    create: () => assert.fail(),
    rotate: () => assert.fail(),
    remove: () => assert.fail(),
    eraseContents: () => assert.fail(),
    usage: async () => ({}),
    async list() {
      readers += 1;
      if (readers === 2) reading.resolve();
      await paused.promise;
      return [];
    },
  };
  const accounts = await startAccounts(t, { completionKeys: keys });
  const admin = await loggedInAs(accounts, 'root', 'admin');
  const person = await loggedInAs(accounts, 'user', 'person');
  const { token: personal } = (
    await accounts.post('tokens', { name: 'laptop', scopes: ['account'] }, { token: person.token })
  ).body;
  const exports = [person.token, personal].map((token) => accounts.get('export', { token }));
  await reading.promise;
  assert.equal((await accounts.post(`admin/users/${person.id}/pause`, {}, { token: admin.token })).status, 200);
  paused.resolve();
  for (const answer of await Promise.all(exports)) assert.equal(answer.status, 401, answer.text);
});
