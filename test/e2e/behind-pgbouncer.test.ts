import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { startPgbouncer } from '../kit/real-pgbouncer.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const MASTER = 'master-key-of-this-test';
const BUILTIN = { explicitProviderId: 'builtin' };

async function post({ url }: RunningProgram, path: string, body: object, key = MASTER) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` };
  const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, body: (await response.json()) as Readonly<Record<string, unknown>> };
}

test('DS-10: two instances behind PgBouncer in transaction mode serve sessions, keys and accounts', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const pool = await startPgbouncer(t, postgres.url);
  const environment = { COMPLETIONS_MASTER_KEY: MASTER, TRESTLE_DATABASE_LISTEN_URL: postgres.url };
  const start = () => startProgram(t, { args: ['--database', pool], environment });
  const one = await start();
  const other = await start();

  // Many at the same time: the connections of the pool serve all three schemas in turn.
  const turns = Array.from({ length: 20 }, (_, index) =>
    post(index % 2 === 0 ? one : other, '/acp/rpc', {
      jsonrpc: '2.0',
      id: '1',
      method: 'session.start',
      params: { sessionId: `pooled-${index}`, taskPrompt: `words ${index}`, routing: BUILTIN },
    }),
  );
  for (const [index, { body }] of (await Promise.all(turns)).entries()) {
    assert.equal((body.result as { readonly output?: string })?.output, `words ${index}`, JSON.stringify(body));
  }
  const ready = await fetch(`${one.url}/readyz`);
  assert.equal(ready.status, 200);

  // Messages between instances go past the pool.
  const { body: issued } = await post(one, '/v1/keys', { name: 'test' });
  const chat = async () => {
    const messages = [{ role: 'user', content: 'hello' }];
    return (await post(other, '/v1/chat/completions', { model: 'demo/echo', messages }, String(issued.key))).status;
  };
  assert.equal(await chat(), 200);
  const headers = { authorization: `Bearer ${MASTER}` };
  await fetch(`${one.url}/v1/keys/${String(issued.id)}`, { method: 'DELETE', headers });
  await until('the key to be refused', async () => (await chat()) === 401);

  // Accounts has a schema of its own, too.
  const sent = await post(one, '/api/auth/register/send', { email: 'somebody@example.org' });
  assert.equal(sent.status, 200, JSON.stringify(sent));
});

test('a restore through PgBouncer leaves no lock behind: instances start after it', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const pool = await startPgbouncer(t, postgres.url);
  const environment = { TRESTLE_DATABASE_LISTEN_URL: postgres.url };
  const args = ['--database', pool];
  const first = await startProgram(t, { args, environment });
  const place = [...args, '--data-dir', await temporaryFolder(t)];
  const folder = join(await temporaryFolder(t), 'backup');
  for (const command of [
    ['backup', folder],
    ['restore', folder, '--replace'],
  ]) {
    const { code, stderr } = await runProgram([...command, ...place], { environment });
    assert.equal(code, 0, stderr);
    await first.stop();
  }
  // The lock of migrations belongs to a connection: one that the pooler keeps would hold it.
  const again = await startProgram(t, { args, environment });
  assert.equal((await fetch(`${again.url}/readyz`)).status, 200);
});

/** What one connection sets would count for others, in the schema of another service. */
const IGNORES = 'ignore_startup_parameters = options,statement_timeout,idle_in_transaction_session_timeout';

for (const settings of [[], [IGNORES]])
  test(`DS-10: behind PgBouncer without database.listen_url the program does not start, and says what to set ${settings}`, async (t) => {
    const postgres = await startPostgres();
    t.after(() => postgres.stop());
    const pool = await startPgbouncer(t, postgres.url, settings);
    const folder = await temporaryFolder(t);
    const { code, stderr } = await runProgram([
      'serve',
      '--data-dir',
      folder,
      '--listen',
      '127.0.0.1:0',
      '--database',
      pool,
    ]);
    assert.notEqual(code, 0);
    assert.match(stderr, /database\.listen_url/);
  });
