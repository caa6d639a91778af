import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import type { Scope } from '../../kit/running-program.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

/** A bridge whose time stands still, with an open session whose agent answers `wait` when the test lets it. */
async function startSession(scope: Scope) {
  const clock = createFakeClock();
  const asked = Promise.withResolvers<void>();
  const allowed = Promise.withResolvers<void>();
  const agent = createScriptedProvider('one', async ({ prompt, report }) => {
    report({ kind: 'text', text: prompt });
    if (prompt === 'wait') {
      asked.resolve();
      await allowed.promise;
    }
    return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
  });
  const { url, database } = await startBridge(scope, { providers: [agent], clock });
  const message = (taskPrompt: string, headers = {}) =>
    call(url, 'session.message', { sessionId: 's', taskPrompt }, headers);
  await call(url, 'session.start', { sessionId: 's', taskPrompt: 'first' });
  const turns = () => database.query.selectFrom('turns').select(['status', 'ended_at']).orderBy('id').execute();
  return { clock, database, message, turns, asked: asked.promise, allow: () => allowed.resolve() };
}

test('a short turn of an open session is stored with one commit', async (context) => {
  const { database, message, turns } = await startSession(context);
  const { commits } = database.statistics();
  for (let turn = 1; turn <= 3; turn += 1) {
    assert.equal((await message('hello')).result?.status, 'completed');
    assert.equal(database.statistics().commits, commits + turn);
  }
  assert.deepEqual(
    (await turns()).map(({ status, ended_at: endedAt }) => [status, endedAt === null]),
    Array.from({ length: 4 }, () => ['completed', false]),
  );
});

test('a short turn is stored as it ended, with its numbers reserved, and shows its session again', async (context) => {
  const { database, message } = await startSession(context);
  await message('before');
  await database.query.updateTable('session_summaries').set({ archived_at: 1, job_id: 'job-1' }).execute();
  const { write } = database;
  const written: string[] = [];
  (database as { write: typeof write }).write = (statements) => {
    written.push(...statements.map(({ sql }) => sql.split(' ').slice(0, 3).join(' ')));
    return write(statements);
  };
  await message('hello');
  assert.deepEqual(written, [
    'insert into "turns"',
    'insert into "session_updates"',
    'update "sessions" set',
    'update "session_summaries" set',
  ]);
  const [summary] = await database.query.selectFrom('session_summaries').selectAll().execute();
  assert.equal(summary?.archived_at, null);
  assert.equal(summary?.job_id, '');
  assert.equal(summary?.turns, 3);
  for (let turn = 0; turn < 150; turn += 1) {
    await message('more');
    const [session] = await database.query.selectFrom('sessions').select('reserved_seq').execute();
    const last = await database.query.selectFrom('turns').select('last_seq').orderBy('id', 'desc').limit(1).execute();
    assert.ok(Number(session?.reserved_seq) >= Number(last[0]?.last_seq) + 64);
  }
});

test('the beginning of a longer turn is stored within some milliseconds', async (context) => {
  const { clock, message, turns, asked, allow } = await startSession(context);
  const ended = message('wait');
  await asked;
  assert.equal((await turns()).length, 1);
  await clock.advance(5);
  await until('the beginning to be stored', async () => (await turns())[1]?.status === 'running');
  allow();
  assert.equal((await ended).result?.status, 'completed');
  assert.equal((await turns())[1]?.status, 'completed');
});

test('the beginning of a turn with an idempotency key does not wait for others', async (context) => {
  const { message, turns, asked, allow } = await startSession(context);
  const ended = message('wait', { 'idempotency-key': 'k' });
  await asked;
  await until('the beginning to be stored', async () => (await turns())[1]?.status === 'running');
  allow();
  assert.equal((await ended).result?.status, 'completed');
});

for (const isStored of [true, false]) {
  const what = isStored ? 'was done without an answer' : 'failed';
  test(`a turn whose only commit ${what} is an error for its caller, and is stored as it ended`, async (context) => {
    const { clock, database, message, turns } = await startSession(context);
    const { write } = database;
    const target = database as { write: typeof write };
    target.write = async (statements) => {
      target.write = write;
      if (isStored) await write(statements);
      throw new AppError('STORAGE_UNAVAILABLE');
    };
    assert.equal((await message('hello')).error?.data.code, 'STORAGE_UNAVAILABLE');
    await clock.advance(100);
    await until('the turn to be stored', async () => (await turns())[1]?.ended_at !== undefined);
    assert.deepEqual(
      (await turns()).map(({ status }) => status),
      ['completed', 'completed'],
    );
    assert.equal((await message('again')).result?.output, 'again');
    const [session] = await database.query.selectFrom('sessions').select('instance').execute();
    assert.equal(session?.instance, '');
  });
}
