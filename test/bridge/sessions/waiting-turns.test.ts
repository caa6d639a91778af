import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { openClient } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import type { Scope } from '../../kit/running-program.ts';
import { createScriptedProvider, echo, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

/** A session whose first turn goes on until it is told to end; then it tells so much. */
async function startBusySession(scope: Scope, texts: number) {
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
  const script: TurnScript = async (turn) => {
    if (turn.count > 0) return echo(turn);
    await mayEnd;
    for (let left = texts; left > 0; left -= 1) turn.report({ kind: 'text', text: '.' });
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  };
  const { url, database } = await startBridge(scope, { providers: [createScriptedProvider('one', script)] });
  const client = await openClient(scope, url, { query: 'sessionId=s' });
  const turn = async (method: string) =>
    (await client.call(method, { sessionId: 's', taskPrompt: 'hello' })).error?.data.code ?? 'ok';
  const first = turn('session.start');
  await client.seen(({ event }) => event === 'running');
  const second = turn('session.message');
  await client.seen(({ event }) => event === 'queued');
  return { database, client, turn, end, first, second };
}

/** The next turn cannot begin. */
function refuseNextBeginning(database: Database<BridgeSchema>): void {
  const { write } = database;
  const target = database as { write: typeof write };
  target.write = async (statements) => {
    const [first, turn] = statements;
    const isBeginning = statements.length === 3 && first?.sql.startsWith('update "sessions"');
    if (!isBeginning || !turn?.sql.startsWith('insert into "turns"')) return write(statements);
    target.write = write;
    throw new AppError('STORAGE_FULL');
  };
}

test('a turn that waits runs after one that told much at its very end', async (context) => {
  // More than half of the numbers that are reserved at once: more are asked for while the turn ends.
  const { end, first, second, turn, client } = await startBusySession(context, 100);
  end();
  assert.deepEqual([await first, await second, await turn('session.message')], ['ok', 'ok', 'ok']);
  const numbers = client.updates.map(({ seq }) => seq);
  assert.deepEqual(
    numbers,
    numbers.map((_, index) => index + 1),
  );
});

test('a turn that waited and could not begin has an end, for the store and for who follows its session', async (context) => {
  const { database, end, first, second, turn, client } = await startBusySession(context, 1);
  refuseNextBeginning(database);
  end();
  assert.deepEqual([await first, await second, await turn('session.message')], ['ok', 'STORAGE_FULL', 'ok']);
  const { turnId } = await client.seen(({ event }) => event === 'queued');
  await client.seen((update) => update.event === 'failed' && update.turnId === turnId);
  const openTurns = () => database.query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
  await until('all turns to be ended', async () => (await openTurns()).length === 0);
});
