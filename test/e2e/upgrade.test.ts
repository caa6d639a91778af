import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { Client } from 'pg';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import { completionsMigrations } from '../../src/completions/storage/completions-migrations.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { copyInto } from '../../src/platform/database/backup/copy-into.ts';
import { type Migration, migrate } from '../../src/platform/database/migrations.ts';
import { openEngine } from '../../src/platform/database/open-engine.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { copySecretKey, facts, fixtureSecretKey, unpackFixture } from './release-fixture.ts';

const MAIN_TOKEN = 'main-token-of-the-upgrade-fixture-1234567890';
const MASTER_KEY = 'master-key-of-the-upgrade-fixture-123456789';
const SERVICES: Readonly<Record<string, readonly Migration[]>> = {
  bridge: bridgeMigrations,
  completions: completionsMigrations,
  accounts: accountsMigrations,
};
const OLD_INSTANCE =
  "INSERT INTO bridge.instances (id, version, address, started_at, heartbeat_at) VALUES ('ins_old', '0.1.0', '', $1, $1)";
/** Old rows must not be swept during the test. */
const KEEP_EVERYTHING = { events: '36500d', jobs: '36500d', usage: '36500d', audit: '36500d' };

test('the data of release 0.1.0 is served by this one: SQLite', async (t) => {
  const dataDirectory = await unpackFixture(t);
  await checkUpgraded(await startUpgraded(t, dataDirectory, []));
});

test('the data of release 0.1.0 is served by this one: PostgreSQL', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  await fillAsReleased(t, postgres.url);
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  // An instance of 0.1.0 that runs: it has no fence, so that both versions at the same time would lose what is stored.
  // Ahead, so that a slow start still finds it fresh.
  await client.query(OLD_INSTANCE, [Date.now() + 120_000]);
  const args = ['serve', '--data-dir', await temporaryFolder(t), '--listen', '127.0.0.1:0', '--database', postgres.url];
  const { code, stderr } = await runProgram(args, { environment: { TRESTLE_SECRET_KEY: await fixtureSecretKey() } });
  assert.notEqual(code, 0);
  assert.match(stderr, /in use by instances of an older version: .*ins_old/);
  await client.query("UPDATE bridge.instances SET heartbeat_at = $1 WHERE id = 'ins_old'", [Date.now() - 60_000]);
  await client.end();
  await checkUpgraded(await startUpgraded(t, await temporaryFolder(t), ['--database', postgres.url]));
});

test('a backup of the data of release 0.1.0, taken by this release, is restored', async (t) => {
  const dataDirectory = await unpackFixture(t);
  const folder = join(await temporaryFolder(t), 'backup');
  const backup = await runProgram(['backup', folder, '--data-dir', dataDirectory]);
  assert.equal(backup.code, 0, backup.stderr);
  const fresh = await temporaryFolder(t);
  await copySecretKey(fresh);
  const restore = await runProgram(['restore', folder, '--data-dir', fresh]);
  assert.equal(restore.code, 0, restore.stderr);
  await checkUpgraded(await startUpgraded(t, fresh, []));
});

test('commands that only copy, or that refuse, leave a PostgreSQL schema of 0.1.0 as it is', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  await fillAsReleased(t, postgres.url);
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  const migrations = async () => {
    const all = Object.keys(SERVICES).map(
      (name) => `SELECT '${name}' AS name, count(*) FROM ${name}.schema_migrations`,
    );
    return (await client.query(all.join(' UNION ALL '))).rows;
  };
  const before = await migrations();
  const folder = join(await temporaryFolder(t), 'backup');
  const dataDirectory = await temporaryFolder(t);
  const run = async (command: readonly string[], environment: Readonly<Record<string, string>>) => {
    const place = ['--database', postgres.url, '--data-dir', dataDirectory];
    const { code, stderr } = await runProgram([...command, ...place], { environment });
    assert.deepEqual(await migrations(), before, command.join(' '));
    return [code, stderr] as const;
  };
  const own = { TRESTLE_SECRET_KEY: await fixtureSecretKey() };
  const other = { TRESTLE_SECRET_KEY: Buffer.alloc(32, 9).toString('base64') };
  assert.deepEqual(await run(['backup', folder], own), [0, '']);
  const refused: readonly (readonly [string, number, readonly string[], Readonly<Record<string, string>>])[] = [
    ['is not empty', 1, ['restore', folder], own],
    ['is not empty', 1, ['copy', '--to', postgres.url], own],
    ['encrypted with another secret key', 78, ['restore', folder, '--replace'], other],
  ];
  for (const [reason, expected, command, environment] of refused) {
    const [code, stderr] = await run(command, environment);
    assert.deepEqual([code, stderr.includes(reason)], [expected, true], stderr);
  }
  await client.query(OLD_INSTANCE, [Date.now() + 120_000]);
  for (const command of [
    ['restore', folder, '--replace'],
    ['copy', '--to', postgres.url],
    ['secret-key', 'adopt'],
  ]) {
    const [code, stderr] = await run(command, own);
    assert.deepEqual([code, /Servers use this PostgreSQL database: ins_old/.test(stderr)], [1, true], stderr);
  }
  await client.end();
});

async function fillAsReleased(t: TestContext, url: string): Promise<void> {
  const old = await unpackFixture(t);
  for (const [name, migrations] of Object.entries(SERVICES)) {
    const engine = await openEngine({ engine: 'sqlite', file: join(old, `${name}.db`) });
    try {
      const released = migrations.slice(0, facts.counts[name]?.schema_migrations);
      await migrate(engine, { name, migrations: released }, systemClock, { engine: 'sqlite', file: '' });
      const location = { engine: 'postgres', url, schema: name } as const;
      await engine.snapshot((source) =>
        copyInto(source, { name, migrations: released, location, clock: systemClock, replace: true }),
      );
    } finally {
      await engine.close();
    }
  }
}

async function startUpgraded(t: TestContext, dataDirectory: string, args: readonly string[]): Promise<RunningProgram> {
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  await writeFile(config, JSON.stringify({ retention: KEEP_EVERYTHING }));
  return startProgram(t, {
    dataDirectory,
    args: [...args, '--config', config],
    environment: {
      BRIDGE_AUTH_TOKEN: MAIN_TOKEN,
      COMPLETIONS_MASTER_KEY: MASTER_KEY,
      TRESTLE_SECRET_KEY: await fixtureSecretKey(),
    },
  });
}

/** Uses every kind of stored record as its owner would. */
async function checkUpgraded({ url }: RunningProgram): Promise<void> {
  const call = createCall(url);
  await checkAccounts(call);
  await checkCompletions(call);
  await checkBridge(call);
}

async function checkAccounts(call: Call): Promise<void> {
  const { ann, ben } = facts;
  const users = await call('/api/auth/admin/users', { token: ann.token });
  assert.equal(users.total, facts.counts.accounts?.users, JSON.stringify(users));
  const session = await call('/api/auth/session', { token: ben.token });
  assert.equal(session.user.email, 'ben@example.org');
  assert.equal(session.user.emailVerified, true);
  const wanted = await call('/api/auth/login', { body: { identifier: 'Ben', password: ben.password } });
  const code = new TOTP({ secret: Secret.fromBase32(ben.totp) }).generate();
  const verified = await call('/api/auth/mfa/verify', { body: { mfa_ticket: wanted.mfa_ticket, code } });
  assert.equal(typeof verified.token, 'string');
  const again = await call('/api/auth/login', { body: { identifier: 'Ben', password: ben.password } });
  const [recoveryCode] = ben.recoveryCodes;
  const recovered = await call('/api/auth/mfa/verify', { body: { mfa_ticket: again.mfa_ticket, recoveryCode } });
  assert.equal(typeof recovered.token, 'string');
  const { subscriptions } = await call('/api/auth/subscriptions', { token: ben.token });
  assert.equal(subscriptions.length, facts.counts.accounts?.subscriptions);
  const audit = await call('/api/auth/admin/audit?limit=100', { token: ann.token });
  const events = audit.entries.map(({ event }: { event: string }) => event);
  assert.ok(events.length >= (facts.counts.accounts?.audit ?? 0), JSON.stringify(events));
  const { version, matrix } = await call('/api/auth/admin/settings', { token: ann.token });
  assert.deepEqual({ version, matrix }, { version: 1, matrix: { reports: { user: true } } });
  const clients = await call('/api/agent-server/v1/users', { token: facts.agentToken });
  assert.ok(clients.clients.length > 0, JSON.stringify(clients));
}

async function checkCompletions(call: Call): Promise<void> {
  const before = await call('/usage?from=2026-11-01&to=2026-11-30', { token: MASTER_KEY });
  assert.equal(before.total.requests, facts.counts.completions?.usage_records, JSON.stringify(before));
  for (const token of [facts.ben.key, facts.masterKeyTeam]) {
    const body = { model: 'demo/echo', messages: [{ role: 'user', content: 'after the upgrade' }] };
    const answer = await call('/v1/chat/completions', { token, body });
    assert.match(answer.choices[0].message.content, /after the upgrade/);
  }
  const keys = await call('/keys', { token: MASTER_KEY });
  assert.equal(keys.data.length, facts.counts.completions?.keys);
}

async function checkBridge(call: Call): Promise<void> {
  const rpc = (method: string, params: object) =>
    call('/acp/rpc', { token: MAIN_TOKEN, body: { jsonrpc: '2.0', id: '1', method, params } });
  const message = await rpc('session.message', { sessionId: 'kept', taskPrompt: 'Once more' });
  assert.equal(message.result?.status, 'completed', JSON.stringify(message));
  const closed = await rpc('session.message', { sessionId: 'shut', taskPrompt: 'Hello?' });
  assert.equal(closed.error?.data.code, 'SESSION_CONTINUATION_UNAVAILABLE', JSON.stringify(closed));
  const job = await rpc('app.jobs.get', { jobId: facts.job });
  assert.equal(job.result?.status, 'completed', JSON.stringify(job));
  const { result } = await rpc('app.jobs.list', {});
  assert.equal(result.jobs.length, facts.counts.bridge?.jobs);
}

interface CallOptions {
  readonly token?: string;
  readonly body?: unknown;
}

// biome-ignore lint/suspicious/noExplicitAny: responses are compared member by member
type Call = (path: string, options: CallOptions) => Promise<any>;

function createCall(url: string): Call {
  return async (path, { token, body }) => {
    const response = await fetch(`${url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    assert.ok(response.status < 300, `${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  };
}
