import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { sql } from 'kysely';
import { Secret, TOTP } from 'otpauth';
import { recoveryCodeHash } from '../../src/accounts/mfa/second-factor.ts';
import { createPasswordHasher } from '../../src/accounts/passwords/passwords.ts';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import type { DatabaseLocation } from '../../src/platform/database/database.ts';
import { type Migration, planMigrations } from '../../src/platform/database/migrations.ts';
import { createSecretBox } from '../../src/platform/secrets/secret-keys.ts';
import { startAccounts } from '../kit/accounts/start-accounts.ts';
import { type DatabasePlaces, databasePlaces, engines } from '../kit/database-engines.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: {
    '0001-accounts': '4d4095d72fcccd9e56e869d4b225bf3178a4934ba98ccf70a74084bd2f9362b3',
    '0002-credentials-and-limits': '770b2c22cf59d4f2b74846273150f0b13791f04a4d13fd685e72672f65f267a5',
    '0003-outgoing-mails': '3d321e84d9234171cc0a7def6e84499e025e494a584e975c0704d86f21ba6e50',
    '0004-sliding-sessions': 'ae3e135a0b35bc6da1ddb2f0d15192ee5ee294d42b946fd1cd44ad552ef1463d',
    '0005-plans-and-invitations': '2494b21fd77e23082724b3a5c72f14157d8836a335cbe417e9d671faca25ba08',
    '0006-pseudonyms': '35b0ab8866986d96ced5c0eeb876f4ed71b34b6031c0fd4d1a8618116620fb28',
    '0007-access-tokens': '46bb73a5c97c9e4c7fde68872c29baf17c5b914dad2a4e2ba2f3e0b8d505386b',
    '0008-teams': '7699e78361cb2419681617c47d65e387d95afa8994b3f182955c82936ef4ccf7',
    '0009-team-tokens': 'fabb583c00d2e872e3e9cf7564c0c085bed33370f5fb2c9be37c9242397ba331',
    '0010-device-logins': '9827a6d735ff0c58fbb7acc200c6003da06b3acd7636a0e91deb08ea2cac4843',
    '0011-signing-keys': '043f9a7952b2962525de41a35ba1b996f7c85b7809d6e79eea70dc275c12ffbd',
    '0012-webhooks': '215be4e44f42553d31acffd062f6b9fe879cd572ae2db6f0a567693c4b4a520b',
    '0013-device-epochs': '0bca035669677d8e225c7aef2648c3864438845107e8ee8edc4bea59019d706c',
    '0014-subscriptions-by-status': '8ce2efea555b8825d4c62b7478b75a260bc8f4e5da8cee55a078213903176f62',
    '0015-setup-choices': '1be243d4505fe94c9b9f4b198c438b0759f2fd759eb0ffd6fd7bf18e06aead7e',
    '0016-sessions-by-key': '3957795283ff2b01796d32d569fa5c4de6f9745550bc2246c843478c0687ee61',
  },
  postgres: {
    '0001-accounts': 'd4f7b98546851af91c01f64bf4b5e67d1662a6281beb115c0b03913e789a961d',
    '0002-credentials-and-limits': '30738deef0879f37703066b94125bb52ab9846692b9f6911c4fd8f80b094add2',
    '0003-outgoing-mails': '573a59af2abc91e4f0612d2b93802b739f041e8926cfa56ed5c0c19cff7f61c1',
    '0004-sliding-sessions': '15266a44c55162a521d022aa3f835f5a6b83a060a7ae675141c3a1ea14d3dfd3',
    '0005-plans-and-invitations': '694a953d283f0a7970e75a2d56b2bc5130b86893636a53411bf6c3e3bc399959',
    '0006-pseudonyms': 'fd67723a66ec2635eed4787acde04ae5d102da0b293395981e8f660074c85454',
    '0007-access-tokens': 'e54224277d0da32e2bb765ee6193d038137b00eb2456a2ce3a9d06c2fb708245',
    '0008-teams': 'beedfbef49eb4b97cccebc785e360b2dfbb65dd2bfdf6281b54a4288b1e08962',
    '0009-team-tokens': '6113081d3cfca7d1a7348562d6d5c68a5b80aa45a730a9f3e382ea00b4f2e84f',
    '0010-device-logins': '1549e419f03d04e6161856cf5ab34fc30a9bf0e3aeb38501dfd1d645752136c7',
    '0011-signing-keys': '98b3d9ea804b2258d8f1d048318f8b2e04762a78e4f28a6f8a8ab49d2f645bd3',
    '0012-webhooks': '1eee1b215d2af15d53c7787cdd8f61e9d97c6086b8b8622549daa9b9caad11bd',
    '0013-device-epochs': '4ecfd22b171c61f423be86c1b75a558c89b652d9b8a289537b58f21c41b37722',
    '0014-subscriptions-by-status': '8ce2efea555b8825d4c62b7478b75a260bc8f4e5da8cee55a078213903176f62',
    '0015-setup-choices': '15358335a3aa9961eb9917f0cdd83760ecb659c68f2b589c4897b15a12b1112d',
    '0016-sessions-by-key': '4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945',
  },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations of accounts still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, accountsMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}

/** As 0.1.0 stored someone with a password, an authenticator app, a recovery code and a linked account. */
async function storedBy010(places: DatabasePlaces, location: DatabaseLocation, key: Uint8Array) {
  const old = await places.open<Record<string, Record<string, unknown>>>(
    { name: 'accounts', migrations: accountsMigrations.slice(0, 1) },
    { location },
  );
  const password = 'copper kettle 47 over the pass';
  const secret = systemRandomness.bytes(20);
  const hasher = createPasswordHasher({ concurrency: 1, parameters: { memoryCost: 64, timeCost: 1, parallelism: 1 } });
  const user = {
    id: 'usr_ann',
    tenant: 'default',
    name: 'Ann',
    name_key: 'ann',
    email: 'ann@example.org',
    email_verified: 1,
    password_hash: await hasher.hash(password),
    role: 'user',
    root_mark: null,
    groups: '[]',
    active: 1,
    proxy_uuid: 'u-1',
    proxy_uuid_expires_at: null,
    subscribed: 0,
    access_epoch: 3,
    totp_secret: createSecretBox([key], systemRandomness).seal(secret, 'totp:usr_ann'),
    totp_pending: null,
    totp_issued_at: 1000,
    totp_confirmed_at: 2000,
    totp_last_step: 7,
    totp_failures: 0,
    totp_locks: 0,
    totp_locked_until: 0,
    created_at: 500,
    updated_at: 500,
    last_login_at: null,
  };
  const link = { provider: 'github:https://github.com', user_id: 'usr_ann', email: 'ann@github.test', created_at: 900 };
  const { query } = old;
  await old.write([
    query.insertInto('users').values(user).compile(),
    query
      .insertInto('users')
      .values({
        ...user,
        id: 'usr_ben',
        name: 'Ben',
        name_key: 'ben',
        email: 'ben@example.org',
        proxy_uuid: 'u-2',
        password_hash: null,
        totp_secret: null,
        totp_pending: 'v1.sealed',
      })
      .compile(),
    query
      .insertInto('recovery_codes')
      .values({ user_id: 'usr_ann', code_hash: recoveryCodeHash('usr_ann', 'aaaa-bbbb') })
      .compile(),
    query
      .insertInto('oauth_links')
      .values({ ...link, provider_user_id: '42' })
      .compile(),
    query
      .insertInto('oauth_links')
      .values({ ...link, provider_user_id: '43' })
      .compile(),
  ]);
  await old.close();
  return { password, secret };
}

for (const engine of engines) {
  describe(`the upgrade from 0.1.0 on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('sessions, tokens and devices are the same after they were moved into the tree of their key', async () => {
      const location = places.location();
      const index = accountsMigrations.findIndex(({ id }) => id.endsWith('-sessions-by-key'));
      const open = (migrations: typeof accountsMigrations) =>
        places.open<Record<string, Record<string, unknown>>>({ name: 'accounts', migrations }, { location });
      const old = await open(accountsMigrations.slice(0, index));
      const session = {
        ...{ user_id: 'usr_ann', epoch: 3, generation: 2, created_at: 1, last_seen_at: 2, access_expires_at: 3 },
        ...{ expires_at: 4, family_expires_at: 5, address: '10.0.0.1', user_agent: 'a test' },
      };
      const rows: Readonly<Record<string, readonly Record<string, unknown>[]>> = {
        sessions: ['ses_a', 'ses_b'].map((id) => ({ id, ...session })),
        session_tokens: [
          { token_hash: 'a', session_id: 'ses_a', expires_at: 6, bearer_until: 7 },
          { token_hash: 'b', session_id: 'ses_b', expires_at: 8, bearer_until: 9 },
        ],
        refresh_tokens: [
          { token_hash: 'c', session_id: 'ses_a', generation: 1, expires_at: 10, used_at: null, replacement: null },
          { token_hash: 'd', session_id: 'ses_a', generation: 2, expires_at: 11, used_at: 12, replacement: 'sealed' },
        ],
        devices: [{ device_hash: 'e', user_id: 'usr_ann', created_at: 13, last_seen_at: 14 }],
      };
      const tables = Object.keys(rows);
      // What the automatic index of a key is called, and whether it is listed, is up to SQLite.
      const indexes = sql<{ name: string }>`select name from sqlite_master where type = 'index' and sql is not null
        and tbl_name in (${sql.join(tables)}) order by name`;
      const indexesOf = async ({ query, read }: typeof old) =>
        engine === 'sqlite' ? await read(indexes.compile(query)) : [];
      await old.write(
        tables.flatMap((table) => (rows[table] ?? []).map((row) => old.query.insertInto(table).values(row).compile())),
      );
      const before = await indexesOf(old);
      await old.close();
      const moved = await open(accountsMigrations);
      for (const table of tables) {
        assert.deepEqual(await moved.read(moved.query.selectFrom(table).selectAll().compile()), rows[table], table);
      }
      assert.deepEqual(await indexesOf(moved), before);
      if (engine === 'sqlite') {
        assert.equal(before.length, 7);
        const list = sql<{
          name: string;
        }>`select name from pragma_table_list where wr = 1 and strict = 1 order by name`;
        const found = (await moved.read(list.compile(moved.query))).map(({ name }) => name);
        assert.deepEqual(found, tables.toSorted());
      }
      await moved.close();
    });

    test('DA-3: every credential of 0.1.0 still works, and linked logins are in the list', async (t) => {
      const location = places.location();
      const key = new Uint8Array(32).fill(7);
      const { password, secret } = await storedBy010(places, location, key);
      const accounts = await startAccounts(t, { location, secretKey: key });
      const ann = { id: 'usr_ann', name: 'Ann', email: 'ann@example.org', password };
      const totp = new TOTP({ secret: new Secret({ buffer: Uint8Array.from(secret).buffer }) });
      const totpCode = totp.generate({ timestamp: accounts.clock.now() });
      assert.equal((await accounts.login(ann)).body.mfaRequired, true);
      const { body } = await accounts.login(ann, { totpCode });
      assert.equal(body.user?.mfa.totpConfirmedAt, new Date(2000).toISOString());
      const { mfa_ticket } = (await accounts.login(ann)).body;
      assert.equal((await accounts.post('mfa/verify', { mfa_ticket, recoveryCode: 'AAAA BBBB' })).status, 200);
      const { credentials } = (await accounts.get('credentials', { token: body.token })).body;
      const links = credentials.filter(({ kind }: { kind: string }) => kind === 'oauth');
      assert.deepEqual(
        links.map(({ email }: { email: string }) => email),
        ['ann@github.test', 'ann@github.test'],
      );
      const rows = await accounts.database.query
        .selectFrom('credentials')
        .selectAll()
        .where('user_id', '=', 'usr_ben')
        .execute();
      assert.deepEqual(
        rows.map(({ kind, state, value }) => [kind, state, value]),
        [['totp', 'pending', 'v1.sealed']],
      );
    });
  });
}

for (const engine of engines) {
  describe(`the audit log of 0.1.0 on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('DA-20: the addresses of people who were deleted before are removed, and the rest stays', async () => {
      const location = places.location();
      const audit = (migrations: readonly Migration[]) =>
        places.open<AccountsSchema>({ name: 'accounts', migrations }, { location });
      const entry = { at: 1, actor: 'usr_root', subject: 'usr_ann', address: '', request_id: '' };
      const before = await audit(accountsMigrations.slice(0, 5));
      for (const [index, event, details] of [
        [1, 'user.deleted', '{"email":"ann@example.org","role":"user"}'],
        [2, 'register.code_failed', '{"email":"ben@example.org"}'],
        [3, 'login', '{"how":"password"}'],
      ] as const) {
        const row = { ...entry, id: `aud_${index}`, event, details };
        await before.write([before.query.insertInto('audit').values(row).compile()]);
      }
      await before.close();
      const after = await audit(accountsMigrations);
      const rows = await after.read(after.query.selectFrom('audit').select('details').orderBy('id').compile());
      assert.deepEqual(
        rows.map(({ details }) => JSON.parse(details)),
        [{ role: 'user' }, {}, { how: 'password' }],
      );
    });
  });
}
