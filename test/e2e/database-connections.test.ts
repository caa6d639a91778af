import assert from 'node:assert/strict';
import { after, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'pg';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { startPgbouncer } from '../kit/real-pgbouncer.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';

const postgres = await startPostgres();
after(() => postgres.stop());

const MASTER = 'master-key-of-this-test';
/** The least that the setting allows: one for each service and one for limits. */
const CONNECTIONS = 4;
const ROUNDS = 25;

async function post({ url }: RunningProgram, path: string, body: object, key = MASTER) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` };
  const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, body: (await response.json()) as Readonly<Record<string, unknown>> };
}

/** Sessions, completions of a key with limits, keys and registrations at the same time: what was answered, by status. */
async function workOfAllServices(program: RunningProgram): Promise<ReadonlyMap<string, number>> {
  const { body: key } = await post(program, '/v1/keys', {
    name: 'limited',
    requests_per_minute: 100_000,
    tokens_per_minute: 10_000_000,
  });
  assert.equal(typeof key.key, 'string', JSON.stringify(key));
  const messages = [{ role: 'user', content: 'hello' }];
  const routing = { explicitProviderId: 'builtin' };
  const calls = Array.from({ length: ROUNDS }, (_, index) => [
    post(program, '/acp/rpc', {
      ...{ jsonrpc: '2.0', id: '1', method: 'session.start' },
      params: { sessionId: `session-${index}`, taskPrompt: `words ${index}`, routing },
    }),
    post(program, '/v1/chat/completions', { model: 'demo/echo', messages }, String(key.key)),
    post(program, '/v1/keys', { name: `key-${index}` }),
  ]);
  // One address may register five times an hour, and both tests have one database.
  const registrations = [1, 2].map((index) =>
    post(program, '/api/auth/register/send', { email: `${program.port}-${index}@example.org` }),
  );
  const answered = new Map<string, number>();
  for (const { status, body } of await Promise.all([...calls.flat(), ...registrations])) {
    const said = status < 300 && body.error === undefined ? 'ok' : JSON.stringify({ status, body });
    answered.set(said, (answered.get(said) ?? 0) + 1);
  }
  return answered;
}

/** Looks every few milliseconds until the work is over; the most that was counted. */
async function mostDuring(work: Promise<unknown>, count: () => Promise<number> | number): Promise<number> {
  let isOver = false;
  let most = 0;
  const end = () => {
    isOver = true;
  };
  void work.then(end, end);
  while (!isOver) {
    most = Math.max(most, await count());
    await pause(5);
  }
  return most;
}

interface Checked {
  readonly database: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly limit: number;
  count(): Promise<number> | number;
}

async function check(t: TestContext, { database, environment = {}, limit, count }: Checked): Promise<void> {
  const settings = { COMPLETIONS_MASTER_KEY: MASTER, TRESTLE_DATABASE_CONNECTIONS: String(CONNECTIONS) };
  const program = await startProgram(t, {
    args: ['--database', database],
    environment: { ...settings, ...environment },
  });
  const work = workOfAllServices(program);
  const most = await mostDuring(work, count);
  t.diagnostic(`${most} connections at most`);
  assert.deepEqual([...(await work)], [['ok', 3 * ROUNDS + 2]]);
  assert.ok(most <= limit, `${most} connections`);
  assert.ok(most > 1, 'the load did not need a second connection: nothing was counted');
  await program.stop();
}

test('DS-10: under load a process has database.connections and one for messages', async (t) => {
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  t.after(() => client.end());
  const text = `select count(*)::int as count from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()`;
  const count = async () => (await client.query<{ readonly count: number }>(text)).rows[0]?.count ?? 0;
  await check(t, { database: postgres.url, limit: CONNECTIONS + 1, count });
});

test('DS-10: behind PgBouncer it has database.connections to the pooler', async (t) => {
  const pooler = new URL(await startPgbouncer(t, postgres.url));
  const proxy = await startFaultProxy(t, Number(pooler.port));
  pooler.port = String(proxy.port);
  const environment = { TRESTLE_DATABASE_LISTEN_URL: postgres.url };
  await check(t, { database: pooler.href, environment, limit: CONNECTIONS, count: proxy.open });
});
