import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'pg';
import { startPostgres } from '../kit/real-postgres.ts';
import { startProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const postgres = await startPostgres();
after(() => postgres.stop());

async function ask<Row>(text: string): Promise<Row[]> {
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  try {
    return (await client.query(text)).rows as Row[];
  } finally {
    await client.end();
  }
}

interface Counted {
  readonly query: string;
  readonly calls: number;
}

/** The statements that programs have sent within some seconds, those sent most often first. */
async function statementsIn(seconds: number): Promise<readonly Counted[]> {
  await ask('SELECT pg_stat_statements_reset()');
  await pause(seconds * 1000);
  return ask<Counted>(
    "SELECT query, calls::int FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%' ORDER BY calls DESC",
  );
}

const SECONDS = 20;
/** 0.75 were measured. A slow machine sends fewer, never more. */
const MAX_PER_SECOND = 1.5;

test('DS-10: an instance with nothing to do sends at most 1.5 statements a second', async (t) => {
  await ask("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'");
  await postgres.restart();
  await ask('CREATE EXTENSION pg_stat_statements');
  await startProgram(t, { args: ['--database', postgres.url] });
  const total = (counted: readonly Counted[]) => counted.reduce((sum, { calls }) => sum + calls, 0);
  await until('the end of what a start does', async () => total(await statementsIn(3)) <= 3 * MAX_PER_SECOND, 60_000);
  const counted = await statementsIn(SECONDS);
  const perSecond = total(counted) / SECONDS;
  t.diagnostic(`${perSecond} statements a second`);
  const list = counted.map(({ calls, query }) => `${calls} times ${query}`).join('\n');
  assert.ok(perSecond <= MAX_PER_SECOND, `${perSecond} statements a second:\n${list}`);
  assert.ok(total(counted) > 0, 'nothing was counted, not even heartbeats');
});
