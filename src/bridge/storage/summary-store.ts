import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { BridgeSchema, SummaryRow, TurnRow } from './bridge-schema.ts';

export type SummaryBegin = Pick<
  SummaryRow,
  | 'session_key'
  | 'session_id'
  | 'thread_id'
  | 'owner'
  | 'tenant'
  | 'title'
  | 'search_text'
  | 'provider_id'
  | 'model'
  | 'folder'
  | 'job_id'
  | 'updated_at'
>;

export interface SummaryEnd {
  readonly key: string;
  readonly turnId: string;
  readonly status: string;
  readonly code: string;
  readonly model: string;
  /** Empty: as before, also of `offers`. */
  readonly mode: string;
  readonly offers: string;
  readonly seq: number;
  /** 1 when the beginning of the turn is stored by this as well: it shows the session again, and belongs to no job. */
  readonly isWhole: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly totalTokens: number;
  /** 1 when the agent told the cost, otherwise 0. */
  readonly hasCost: number;
  readonly costUsd: number;
  /** 1 when it is known what the session has changed, otherwise 0. */
  readonly hasChanges: number;
  readonly changedFiles: number;
  readonly linesAdded: number;
  readonly linesRemoved: number;
  readonly now: number;
}

export interface SummaryChange {
  readonly title?: string;
  readonly search_text?: string;
  readonly archived_at?: number | null;
  readonly pinned?: number;
  readonly mode?: string;
  readonly model?: string;
  readonly changed_files?: number;
  readonly lines_added?: number;
  readonly lines_removed?: number;
}

/** Where a page begins: after the row with these values, newest first. */
export interface SummaryPosition {
  readonly updatedAt: number;
  readonly key: string;
}

export interface SummaryScan {
  /** Undefined: of all owners. */
  readonly owner: string | undefined;
  readonly isArchived: boolean;
  readonly after: SummaryPosition | undefined;
  /** Only sessions of this thread. */
  readonly threadId: string | undefined;
  readonly limit: number;
}

export type OpenTurn = Pick<TurnRow, 'id' | 'session_key' | 'status'>;

/** Summaries of open sessions. What is named after a change gives a statement, for a commit that happens anyway. */
export interface SummaryStore {
  /** A turn begins: adds the summary, or shows it again. */
  begin(begun: SummaryBegin): Statement;
  /** A turn has ended. Storing the same end again changes nothing. */
  end(ended: SummaryEnd): Statement;
  setDoing(key: string, doing: string, seq: number): Statement;
  /** Returns a statement, for a commit with other changes. */
  set(key: string, change: SummaryChange): Statement;
  change(key: string, change: SummaryChange): Promise<void>;
  find(keys: readonly string[]): Promise<readonly SummaryRow[]>;
  /** Summaries in order, newest first. */
  scan(scan: SummaryScan): Promise<readonly SummaryRow[]>;
  /** How many are not archived, counted up to a limit. */
  count(owner: string | undefined, limit: number): Promise<number>;
  /** Turns that run or wait, on any bridge; their number depends on what is under way, not on what is stored. */
  openTurns(owner: string | undefined): Promise<readonly OpenTurn[]>;
  /** The sessions of open permission requests, one entry for each request. */
  openPermissions(owner: string | undefined): Promise<readonly { readonly session_key: string }[]>;
  /** Turns of one session that wait, oldest first; `owner` is that of the session. */
  queuedTurns(owner: string, sessionKey: string): Promise<readonly Pick<TurnRow, 'id' | 'prompt' | 'created_at'>[]>;
}

/** More open turns than any limit of the settings lets in. */
const MAX_OPEN_TURNS = 20_000;

export function createSummaryStore(database: Database<BridgeSchema>): SummaryStore {
  const { query } = database;
  const begin = database.statement((build, given: SummaryBegin) =>
    build
      .insertInto('session_summaries')
      .values({
        ...given,
        mode: '',
        offers: '',
        doing: '',
        turns: 0,
        input_tokens: 0,
        output_tokens: 0,
        total_tokens: 0,
        cost_usd: null,
        changed_files: 0,
        lines_added: 0,
        lines_removed: 0,
        last_turn: '',
        last_status: '',
        last_code: '',
        last_seq: 0,
        created_at: given.updated_at,
        archived_at: null,
        pinned: 0,
      })
      .onConflict((conflict) =>
        conflict.column('session_key').doUpdateSet((row) => ({
          thread_id: row.ref('excluded.thread_id'),
          title: sql<string>`case when session_summaries.title = '' then excluded.title else session_summaries.title end`,
          search_text: sql<string>`case when session_summaries.title = '' then excluded.search_text else session_summaries.search_text end`,
          provider_id: row.ref('excluded.provider_id'),
          model: row.ref('excluded.model'),
          folder: row.ref('excluded.folder'),
          doing: '',
          job_id: row.ref('excluded.job_id'),
          updated_at: row.ref('excluded.updated_at'),
          archived_at: null,
        })),
      ),
  );
  const end = database.statement((build, given: SummaryEnd) => {
    const isNew = (more: ReturnType<typeof sql>, column: string) =>
      sql<number>`case when last_turn = ${given.turnId} then ${sql.ref(column)} else ${sql.ref(column)} + ${more} end`;
    const known = (count: number, column: string) =>
      sql<number>`case when ${given.hasChanges} = 0 then ${sql.ref(column)} else ${count} end`;
    return build
      .updateTable('session_summaries')
      .set({
        // These read the turn that ended before: all expressions see the row as it was.
        turns: isNew(sql`1`, 'turns'),
        input_tokens: isNew(sql`${given.inputTokens}`, 'input_tokens'),
        output_tokens: isNew(sql`${given.outputTokens}`, 'output_tokens'),
        total_tokens: isNew(sql`${given.totalTokens}`, 'total_tokens'),
        cost_usd: sql<number>`case when last_turn = ${given.turnId} or ${given.hasCost} = 0 then cost_usd else coalesce(cost_usd, 0) + ${given.costUsd} end`,
        changed_files: known(given.changedFiles, 'changed_files'),
        lines_added: known(given.linesAdded, 'lines_added'),
        lines_removed: known(given.linesRemoved, 'lines_removed'),
        last_turn: given.turnId,
        last_status: given.status,
        last_code: given.code,
        model: sql<string>`case when ${given.model} = '' then model else ${given.model} end`,
        mode: sql<string>`case when ${given.mode} = '' then mode else ${given.mode} end`,
        offers: sql<string>`case when ${given.offers} = '' then offers else ${given.offers} end`,
        last_seq: given.seq,
        doing: '',
        job_id: sql<string>`case when ${given.isWhole} = 1 then '' else job_id end`,
        archived_at: sql<number | null>`case when ${given.isWhole} = 1 then null else archived_at end`,
        updated_at: given.now,
      })
      .where('session_key', '=', given.key);
  });
  const setDoing = database.statement((build, given: { key: string; doing: string; seq: number }) =>
    build
      .updateTable('session_summaries')
      .set({ doing: given.doing, last_seq: given.seq })
      .where('session_key', '=', given.key),
  );
  const set = (key: string, change: SummaryChange) =>
    query
      .updateTable('session_summaries')
      .set({ session_key: key, ...change })
      .where('session_key', '=', key)
      .compile();
  function openTurns(owner: string | undefined): Promise<readonly OpenTurn[]> {
    const open = query.selectFrom('turns').select(['id', 'session_key', 'status']).where('ended_at', 'is', null);
    const ofOwner = owner === undefined ? open : open.where('owner', '=', owner);
    return database.read(ofOwner.limit(MAX_OPEN_TURNS).compile());
  }
  return {
    begin,
    end,
    setDoing: (key, doing, seq) => setDoing({ key, doing, seq }),
    set,
    async change(key, change) {
      await database.write([set(key, change)]);
    },
    async find(keys) {
      if (keys.length === 0) return [];
      const found = query.selectFrom('session_summaries').selectAll().where('session_key', 'in', keys);
      return database.readKeyed(found.compile());
    },
    scan({ owner, isArchived, after, threadId, limit }) {
      let rows = query
        .selectFrom('session_summaries')
        .selectAll()
        .where('archived_at', isArchived ? 'is not' : 'is', null);
      if (owner !== undefined) rows = rows.where('owner', '=', owner);
      if (threadId !== undefined) {
        const ofThread = query.selectFrom('sessions').select('key').where('thread_id', '=', threadId);
        rows = rows.where('session_key', 'in', ofThread.where('closed_at', 'is', null));
      }
      if (after !== undefined) {
        rows = rows.where(({ eb, refTuple, tuple }) =>
          eb(refTuple('updated_at', 'session_key'), '<', tuple(after.updatedAt, after.key)),
        );
      }
      return database.read(rows.orderBy('updated_at', 'desc').orderBy('session_key', 'desc').limit(limit).compile());
    },
    async count(owner, limit) {
      let rows = query
        .selectFrom('session_summaries')
        .select('session_key')
        .where('archived_at', 'is', null)
        .orderBy('updated_at');
      if (owner !== undefined) rows = rows.where('owner', '=', owner);
      const counted = query
        .selectFrom(rows.limit(limit).as('some'))
        .select(({ fn }) => fn.countAll<number>().as('count'));
      return Number((await database.read(counted.compile()))[0]?.count ?? 0);
    },
    openTurns,
    openPermissions(owner) {
      const open = query.selectFrom('permissions').select('session_key').where('state', '=', sql.lit('open'));
      const ofOwner = owner === undefined ? open : open.where('owner', '=', owner);
      return database.read(ofOwner.limit(MAX_OPEN_TURNS).compile());
    },
    async queuedTurns(owner, sessionKey) {
      // By what is open: a search by the session would look at all turns that it ever had.
      const open = await openTurns(owner);
      const waiting = open.filter((turn) => turn.session_key === sessionKey && turn.status === 'queued');
      if (waiting.length === 0) return [];
      const ids = waiting.map(({ id }) => id);
      const rows = query.selectFrom('turns').select(['id', 'prompt', 'created_at']).where('id', 'in', ids);
      return database.read(rows.where('ended_at', 'is', null).where('status', '=', 'queued').orderBy('id').compile());
    },
  };
}
