import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { call, openClient } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

/** The next beginning of a turn is stored or not, and in both cases nobody learns of it. */
function loseNextBeginning(database: Database<BridgeSchema>, isStored: boolean): void {
  const { write } = database;
  const target = database as { write: typeof write };
  target.write = async (statements) => {
    if (!statements.some((one) => 'sql' in one && one.sql.startsWith('insert into "turns"'))) return write(statements);
    target.write = write;
    if (isStored) await write(statements);
    throw new AppError('STORAGE_UNAVAILABLE');
  };
}

for (const isStored of [true, false]) {
  const what = isStored ? 'was stored without an answer' : 'was not stored';
  test(`a turn whose beginning ${what} is ended, and its session goes on`, async (context) => {
    const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
    const turn = async (method: string, sessionId: string) =>
      (await call(url, method, { sessionId, taskPrompt: 'hello' })).error?.data.code ?? 'ok';
    const openTurns = () => database.query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
    assert.equal(await turn('session.start', 'known'), 'ok');
    for (const [method, sessionId, next] of [
      ['session.message', 'known', 'session.message'],
      ['session.start', 'new', 'session.start'],
    ] as const) {
      loseNextBeginning(database, isStored);
      assert.equal(await turn(method, sessionId), 'STORAGE_UNAVAILABLE');
      await until('the turn to be ended', async () => (await openTurns()).length === 0);
      assert.equal(await turn(next, sessionId), 'ok');
      assert.equal(await turn('session.message', sessionId), 'ok');
    }
    const sessions = await database.query.selectFrom('sessions').select('instance').execute();
    assert.deepEqual(sessions, [{ instance: '' }, { instance: '' }]);
  });
}

test('a turn whose beginning was stored without an answer is done when its call is repeated with the same idempotency key', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const turn = (method: string, headers = {}) => call(url, method, { sessionId: 's', taskPrompt: 'hello' }, headers);
  await turn('session.start');
  loseNextBeginning(database, true);
  const key = { 'idempotency-key': 'once' };
  assert.equal((await turn('session.message', key)).error?.data.code, 'STORAGE_UNAVAILABLE');
  const turns = () => database.query.selectFrom('turns').select('id').execute();
  await until('it to be taken back', async () => (await turns()).length === 1);
  const [second, third] = [await turn('session.message', key), await turn('session.message', key)];
  assert.deepEqual([second.result?.status, second.result?.output], ['completed', 'hello']);
  assert.equal(third.result?.turnId, second.result?.turnId);
});

test('a call whose turn may be stored is not said to be unknown when it is repeated, until the turn is taken back', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const { write } = database;
  const target = database as { write: typeof write };
  const { promise: isBack, resolve: comeBack } = Promise.withResolvers<void>();
  const afterThat: typeof write = async (statements) => {
    await isBack;
    return write(statements);
  };
  target.write = async (statements) => {
    target.write = afterThat;
    await write(statements);
    throw new AppError('STORAGE_UNAVAILABLE');
  };
  const turn = async (headers = {}) =>
    (await call(url, 'session.start', { sessionId: 's', taskPrompt: 'hello' }, headers)).error?.data.code;
  const repeated = () => turn({ 'last-event-id': '0' });
  assert.equal(await turn(), 'STORAGE_UNAVAILABLE');
  const meanwhile = await repeated();
  comeBack();
  assert.equal(meanwhile, 'SESSION_BUSY');
  await until('it to be taken back', async () => (await repeated()) === 'RESUME_NOT_FOUND');
  assert.deepEqual(await database.query.selectFrom('turns').select('id').execute(), []);
});

test('what waits behind the first turn of a session gets no number until the session is stored', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const { write } = database;
  const target = database as { write: typeof write };
  const { promise: isRefused, resolve: refuse } = Promise.withResolvers<void>();
  const { promise: isBegun, resolve: begin } = Promise.withResolvers<void>();
  target.write = async () => {
    target.write = write;
    begin();
    await isRefused;
    throw new AppError('STORAGE_FULL');
  };
  const client = await openClient(context, url, { query: 'sessionId=new' });
  const turn = async (method: string) =>
    (await client.call(method, { sessionId: 'new', taskPrompt: 'hello' })).error?.data.code ?? 'ok';
  const first = turn('session.start');
  await isBegun;
  const second = turn('session.message');
  // Calls about one session are let in as they came: when this one is answered, the one before it waits.
  assert.equal(await turn('session.start'), 'SESSION_BUSY');
  refuse();
  assert.deepEqual(await Promise.all([first, second]), ['STORAGE_FULL', 'SESSION_CONTINUATION_UNAVAILABLE']);
  assert.equal(await turn('session.start'), 'ok');
  await client.seen(({ event }) => event === 'completed');
  assert.deepEqual(
    client.updates.map(({ seq }) => seq),
    client.updates.map((_, index) => index + 1),
  );
});

test('who follows a session before its first turn, of whose beginning nobody learns, sees the next one from its first update', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const client = await openClient(context, url, { query: 'sessionId=new&afterSeq=0' });
  const turn = async (method: string) =>
    (await call(url, method, { sessionId: 'new', taskPrompt: 'hello' })).error?.data.code ?? 'ok';
  loseNextBeginning(database, true);
  assert.equal(await turn('session.start'), 'STORAGE_UNAVAILABLE');
  assert.equal(await turn('session.message'), 'SESSION_CONTINUATION_UNAVAILABLE');
  assert.equal(await turn('session.start'), 'ok');
  await client.seen(({ event }) => event === 'completed');
  assert.equal(client.updates[0]?.event, 'started');
});

for (const isStored of [true, false]) {
  const what = isStored ? 'was stored without an answer' : 'was not stored';
  test(`DB-17: a turn whose beginning ${what} leaves folder, thread, agent and conversation of its session as they were`, async (context) => {
    const [one, two] = [createScriptedProvider('one'), createScriptedProvider('two')];
    const { url, root, database } = await startBridge(context, { providers: [one, two] });
    const [kept, other] = [join(root, 'kept'), join(root, 'other')];
    for (const folder of [kept, other]) await mkdir(folder);
    const first = { sessionId: 's', taskPrompt: 'a', threadId: 't', workingDirectory: kept };
    assert.equal((await call(url, 'session.start', first)).result?.status, 'completed');
    const elsewhere = { sessionId: 's', taskPrompt: 'b', threadId: 'u', workingDirectory: other };
    const routing = { explicitProviderId: 'two' };
    const stored = () =>
      database.query
        .selectFrom('sessions')
        .select(['thread_id', 'provider_id', 'reference', 'working_directory', 'instance'])
        .executeTakeFirst();
    const before = await stored();
    for (const [method, params] of [
      ['session.message', elsewhere],
      ['session.start', { ...elsewhere, routing }],
    ] as const) {
      loseNextBeginning(database, isStored);
      assert.equal((await call(url, method, params)).error?.data.code, 'STORAGE_UNAVAILABLE');
      await until('the store to be as before', async () => JSON.stringify(await stored()) === JSON.stringify(before));
      const { result } = await call(url, 'session.message', { sessionId: 's', taskPrompt: 'c' });
      assert.deepEqual(
        [result?.status, result?.threadId, result?.resolvedWorkingDirectory, result?.resolvedProviderId],
        ['completed', 't', kept, 'one'],
      );
    }
    assert.deepEqual(one.closed, [], 'its conversation goes on');
  });
}

test('nothing that an agent says after the beginning of its turn could not be stored is shown, and no number is used twice', async (context) => {
  const lastWords = Promise.withResolvers<void>();
  const one = createScriptedProvider('one', async ({ count, prompt, report, signal }) => {
    if (prompt !== 'late') return { kind: 'completed', output: `${prompt} ${count}`, stopReason: 'end_turn' };
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    // What takes the beginning back is stored by now.
    await new Promise((resolve) => setTimeout(resolve, 200));
    report({ kind: 'text', text: 'too late' });
    lastWords.resolve();
    return { kind: 'cancelled', output: '' };
  });
  const { url, database } = await startBridge(context, { providers: [one] });
  const turn = async (method: string, taskPrompt: string) =>
    (await call(url, method, { sessionId: 's', taskPrompt })).error?.data.code ?? 'ok';
  for (const [method, isKnown] of [
    ['session.start', false],
    ['session.message', true],
  ] as const) {
    const client = await openClient(context, url, { query: 'sessionId=s&afterSeq=0' });
    loseNextBeginning(database, false);
    assert.equal(await turn(method, 'late'), 'STORAGE_UNAVAILABLE');
    await lastWords.promise;
    assert.equal(await turn(method, 'again'), 'ok');
    const ends = isKnown ? 2 : 1;
    await client.seen(() => client.updates.filter(({ event }) => event === 'completed').length === ends);
    assert.ok(client.updates.every(({ event }) => event !== 'delta'));
    if (!isKnown) assert.equal(client.updates.length, 3, 'nothing of a session is shown before it is stored');
    assert.equal(new Set(client.updates.map(({ seq }) => seq)).size, client.updates.length);
  }
});

test('a session whose close was stored without an answer is started again, and the close does not end the new turn', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const turn = async () => (await call(url, 'session.start', { sessionId: 's', taskPrompt: 'hello' })).result?.status;
  assert.equal(await turn(), 'completed');
  const { write } = database;
  const target = database as { write: typeof write };
  target.write = async (statements) => {
    const stored = await write(statements);
    const closes = statements.some((one) => 'sql' in one && one.sql.startsWith('delete from "turns"'));
    if (!closes) return stored;
    target.write = write;
    throw new AppError('STORAGE_UNAVAILABLE');
  };
  const closed = await call(url, 'session.close', { sessionId: 's' });
  assert.equal(closed.error?.data.code, 'STORAGE_UNAVAILABLE');
  assert.equal(await turn(), 'completed');
  const rows = () => database.query.selectFrom('turns').select('status').execute();
  assert.deepEqual(await rows(), [{ status: 'completed' }]);
  const [session] = await database.query.selectFrom('sessions').select('closed_at').execute();
  assert.equal(session?.closed_at, null);
  const on = await call(url, 'session.message', { sessionId: 's', taskPrompt: 'on' });
  assert.equal(on.result?.status, 'completed', JSON.stringify(on.error));
  assert.equal((await rows()).length, 2);
});

test('a session is said to be closed when that is stored, also by a call that is made again', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const close = async () => (await call(url, 'session.close', { sessionId: 's' })).error?.data.code ?? 'ok';
  await call(url, 'session.start', { sessionId: 's', taskPrompt: 'hello' });
  const { write } = database;
  const target = database as { write: typeof write };
  target.write = () => Promise.reject(new AppError('STORAGE_UNAVAILABLE'));
  const first = await close();
  const second = await close();
  target.write = write;
  assert.deepEqual([first, second], ['STORAGE_UNAVAILABLE', 'STORAGE_UNAVAILABLE']);
  assert.equal(await close(), 'ok');
  const [session] = await database.query.selectFrom('sessions').select('closed_at').execute();
  assert.notEqual(session?.closed_at, null);
});

test('a close that could not remove everything is stored, and removes the rest when it is called again', async (context) => {
  const { url, database } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const close = async () => (await call(url, 'session.close', { sessionId: 's' })).error?.data.code ?? 'ok';
  await call(url, 'session.start', { sessionId: 's', taskPrompt: 'hello' });
  const [session] = await database.query.selectFrom('sessions').selectAll().execute();
  const { key = '', owner = '', tenant = '' } = session ?? {};
  const names = { id: 'art_1', owner, tenant, session_key: key, turn_id: 't', relative_path: '"a.txt"', home: '' };
  const facts = { content_type: 'text/plain', size_bytes: 1, sha256: '', created_at: 1, expires_at: 2 ** 50 };
  await database.query
    .insertInto('artifacts')
    .values({ ...names, ...facts })
    .execute();
  const { read } = database;
  const target = database as { read: typeof read };
  target.read = async (statement) => {
    if (!statement.sql.includes('from "artifacts"')) return read(statement);
    target.read = read;
    throw new AppError('STORAGE_UNAVAILABLE');
  };
  assert.equal(await close(), 'STORAGE_UNAVAILABLE');
  const rows = () => database.query.selectFrom('sessions').select('closed_at').execute();
  assert.notEqual((await rows())[0]?.closed_at, null);
  assert.equal(await close(), 'ok');
  assert.deepEqual(await database.query.selectFrom('artifacts').select('id').execute(), []);
});
