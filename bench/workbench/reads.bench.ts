import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../src/bridge/storage/bridge-schema.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import { endedRow } from '../../test/kit/bridge/job-rows.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { type Scope, temporaryFolder } from '../../test/kit/running-program.ts';
import { openBridgeClient } from '../bridge/bridge-client.ts';
import { AGENT_ID, startScriptedBridge } from '../bridge/scripted-bridge.ts';

/** Microseconds for one read, round by round, of little and of much. */
export interface ReadCost {
  readonly name: string;
  readonly few: number[];
  readonly many: number[];
}

export interface ReadRounds {
  readonly rounds: number;
  readonly callsPerRound: number;
}

interface Place {
  get(path: string): Promise<unknown>;
  call(method: string, params: object): Promise<unknown>;
}

type Read = readonly [name: string, run: (place: Place) => Promise<unknown>];

const SESSIONS = '/api/bridge/sessions';
const LONG = 'long';

/** First pages. Each has as many rows with few stored as with many. */
const LISTS: readonly Read[] = [
  ['`GET /api/bridge/sessions`', ({ get }) => get(SESSIONS)],
  ['the same of one owner', ({ get }) => get(`${SESSIONS}?owner=main`)],
  ...['idle', 'running', 'archived'].map(
    (state): Read => [`the same with \`state=${state}\``, ({ get }) => get(`${SESSIONS}?state=${state}`)],
  ),
  ['`app.jobs.list`', ({ call }) => call('app.jobs.list', { limit: 50 })],
  ['`app.jobs.list` with `status`', ({ call }) => call('app.jobs.list', { limit: 50, status: 'completed' })],
  ['`GET /api/bridge/permissions`', ({ get }) => get('/api/bridge/permissions')],
  ['`GET …/turns` of a session that has all of them', ({ get }) => get(`${SESSIONS}/${LONG}/turns`)],
  ['`GET …/:sessionId` of the same', ({ get }) => get(`${SESSIONS}/${LONG}`)],
];

/** Lists of two programs, one with few sessions, jobs and turns in its store and one with many, in turn. */
export async function benchLists(
  options: ReadRounds & { readonly few: number; readonly many: number },
): Promise<readonly ReadCost[]> {
  const scope = createScope();
  try {
    const few = await startFilled(scope, options.few);
    const many = await startFilled(scope, options.many);
    return await compare(LISTS, few, many, options);
  } finally {
    await scope.end();
  }
}

/** Opening a session of many updates beside one of a page, both written by the program itself, in the same program. */
export async function benchOpening(
  options: ReadRounds & { readonly few: number; readonly many: number },
): Promise<readonly ReadCost[]> {
  const scope = createScope();
  try {
    const { url } = await startScriptedBridge(scope);
    const place = await openPlace(scope, url);
    const prompts = { few: `flood ${options.few}`, many: `flood ${options.many}` };
    for (const [sessionId, taskPrompt] of Object.entries(prompts)) {
      await place.call('session.start', { sessionId, taskPrompt });
    }
    const ofSession = (sessionId: string): Place => ({
      get: (path) => place.get(`${SESSIONS}/${sessionId}${path}`),
      call: place.call,
    });
    const reads: readonly Read[] = [
      [`\`GET …/updates\`, a page of ${options.few}`, ({ get }) => get(`/updates?limit=${options.few}`)],
      ['`GET …/:sessionId`', ({ get }) => get('')],
    ];
    return await compare(reads, ofSession('few'), ofSession('many'), options);
  } finally {
    await scope.end();
  }
}

async function compare(
  reads: readonly Read[],
  few: Place,
  many: Place,
  { rounds, callsPerRound }: ReadRounds,
): Promise<readonly ReadCost[]> {
  const costs = reads.map(([name]): ReadCost => ({ name, few: [], many: [] }));
  for (let round = -1; round < rounds; round += 1) {
    for (const [index, [, run]] of reads.entries()) {
      const taken = { few: await costOf(run, few, callsPerRound), many: await costOf(run, many, callsPerRound) };
      // The first round fills caches.
      if (round < 0) continue;
      costs[index]?.few.push(taken.few);
      costs[index]?.many.push(taken.many);
    }
  }
  return costs;
}

async function costOf(run: Read[1], place: Place, times: number): Promise<number> {
  const started = performance.now();
  for (let time = 0; time < times; time += 1) await run(place);
  return ((performance.now() - started) * 1000) / times;
}

async function startFilled(scope: Scope, count: number): Promise<Place> {
  const folder = await temporaryFolder(scope);
  await fill(join(folder, 'bridge.db'), count);
  const { url } = await startScriptedBridge(scope, {}, folder);
  return openPlace(scope, url);
}

async function openPlace(scope: Scope, url: string): Promise<Place> {
  const client = await openBridgeClient(url);
  scope.after(() => client.close());
  return {
    call: client.call,
    async get(path) {
      const response = await fetch(`${url}${path}`);
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
      return response.arrayBuffer();
    },
  };
}

/** Writes rows into a file of the bridge's schema, as old as this moment, so that none is removed for its age. */
async function fill(file: string, count: number): Promise<void> {
  const definition = { name: 'bridge', migrations: bridgeMigrations, clock: systemClock };
  await (await openDatabase<BridgeSchema>({ ...definition, location: { engine: 'sqlite', file } })).close();
  const database = new DatabaseSync(file);
  try {
    database.exec('PRAGMA synchronous = OFF; BEGIN');
    const now = Date.now();
    const insert = (table: string, row: Readonly<Record<string, string | number | null>>, from: number) =>
      insertMany(database, table, row, from, count);
    const names = { owner: 'main', tenant: 'default', provider_id: AGENT_ID };
    const session = { ...names, thread_id: '$id', instance: '', reference: '', working_directory: '', choices: '' };
    const moments = { reserved_seq: 9, created_at: now, updated_at: now, closed_at: null };
    // One session more, which has all turns.
    const longOne = { key: LONG, session_id: LONG };
    insertMany(database, 'sessions', { ...session, ...moments, ...longOne }, count, count + 1);
    insert('sessions', { ...session, ...moments, key: '$id', session_id: '$id' }, 0);
    const texts = {
      title: '"Fix the build"',
      search_text: 'fix the build',
      model: 'm',
      mode: '',
      offers: '',
      folder: '',
    };
    const numbers = { turns: 1, input_tokens: 1, output_tokens: 1, total_tokens: 2, changed_files: 0, pinned: 0 };
    const last = { last_turn: '$id', last_status: 'completed', last_code: '', last_seq: 9, job_id: '', doing: '' };
    const summary = { ...names, ...texts, ...numbers, ...last, lines_added: 0, lines_removed: 0, cost_usd: null };
    const { reserved_seq: _seq, closed_at: _closed, ...times } = moments;
    const shown = { ...summary, ...times, thread_id: '$id' };
    const archivedFrom = Math.floor(count * 0.75);
    const open = { ...shown, session_key: '$id', session_id: '$id', archived_at: null };
    insertMany(database, 'session_summaries', open, 0, archivedFrom);
    insertMany(database, 'session_summaries', { ...open, archived_at: now }, archivedFrom, count);
    const longSummary = { ...shown, session_key: LONG, session_id: LONG, archived_at: null };
    insertMany(database, 'session_summaries', longSummary, count, count + 1);
    const job = endedRow({
      provider_id: AGENT_ID,
      created_at: now,
      started_at: now,
      completed_at: now,
      deadline_at: now,
    });
    insert('jobs', { ...job, id: '$id', session_id: '$id', thread_id: '$id' }, 0);
    const asked = { method: 'session.message', request_id: '1', request_fingerprint: '$id', idempotency_key: '' };
    const outcome = JSON.stringify({ status: 'completed', output: 'done' });
    const answered = { prompt: '"go on"', attachments: '[]', status: 'completed', base: '{}', outcome };
    const { provider_id: _provider, ...owned } = names;
    const turn = { ...owned, ...asked, ...answered, instance: '', first_seq: 1, last_seq: 9 };
    insert('turns', { ...turn, id: '$id', session_key: LONG, created_at: now, ended_at: now }, 0);
    // Answered: what is open is little.
    const request = { tool_call_id: '""', title: '""', input: '""', options: '[]', reason: '""', tool_kind: 'execute' };
    const answer = {
      state: 'allowed',
      option_id: '',
      scope: '',
      answered_by: '',
      form: '',
      given: '',
      answered_at: now,
    };
    const place = { session_key: LONG, session_id: LONG, turn_id: '$id', instance: '', folder: '' };
    insert(
      'permissions',
      { ...owned, ...request, ...answer, ...place, id: '$id', created_at: now, expires_at: now },
      0,
    );
    database.exec('COMMIT');
  } finally {
    database.close();
  }
}

const ID_PREFIX: Readonly<Record<string, string>> = { jobs: 'job-', turns: 'turn-' };

/** The same row again and again; `$id` stands for a name that grows with the rows. */
function insertMany(
  database: DatabaseSync,
  table: string,
  row: Readonly<Record<string, string | number | null>>,
  from: number,
  to: number,
): void {
  const columns = Object.keys(row);
  const values = columns.map((column) => (row[column] === '$id' ? `printf('${ID_PREFIX[table] ?? ''}%010d', n)` : '?'));
  const given = Object.values(row).filter((value) => value !== '$id');
  database
    .prepare(
      `INSERT INTO ${table} (${columns.join(', ')})
       WITH RECURSIVE numbers(n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ${to})
       SELECT ${values.join(', ')} FROM numbers`,
    )
    .run(...given);
}
