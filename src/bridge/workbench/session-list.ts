import { AppError } from '../../platform/errors/app-error.ts';
import { may, ownersSought, type Principal, sees } from '../../platform/identity/principal.ts';
import type { SessionChanges, SessionPage, SessionQuery, SessionView, Summary } from '../contract/workbench.ts';
import { mergedPages } from '../principal.ts';
import type { Conversations } from '../sessions/conversations.ts';
import { type ServerBox, shownServers } from '../sessions/mcp-servers.ts';
import { readChoices } from '../sessions/session-state.ts';
import { type SessionSummaries, searchText } from '../sessions/session-summaries.ts';
import type { SessionRow, SummaryRow } from '../storage/bridge-schema.ts';
import type { SessionStore } from '../storage/session-store.ts';
import type { OpenTurn, SummaryPosition, SummaryStore } from '../storage/summary-store.ts';
import { branchOf } from './folders.ts';
import type { Permissions } from './permissions.ts';

/** Lists sessions, shows one, and changes what people may change about it. */
export interface SessionList {
  list(principal: Principal, query: SessionQuery): Promise<SessionPage>;
  show(principal: Principal, sessionId: string, owner: string | undefined): Promise<SessionView>;
  change(
    principal: Principal,
    sessionId: string,
    owner: string | undefined,
    changes: Pick<SessionChanges, 'title' | 'archived' | 'pinned'>,
  ): Promise<{ session: Summary }>;
  /** The summaries of these sessions, by key; sessions that are gone are left out. */
  read(keys: readonly string[]): Promise<ReadonlyMap<string, Summary>>;
  /** The open session that the principal means by a name: its own first. Throws SESSION_NOT_FOUND. */
  find(principal: Principal, sessionId: string, owner: string | undefined): Promise<SessionRow>;
}

interface SessionListOptions {
  readonly sessions: Pick<SessionStore, 'find' | 'findSeen'>;
  readonly store: SummaryStore;
  readonly summaries: Pick<SessionSummaries, 'live' | 'stored'>;
  readonly permissions: Pick<Permissions, 'list'>;
  readonly offered: Conversations['offered'];
  readonly serverBox: Pick<ServerBox, 'open'>;
  /** Of this bridge; empty where it has none. */
  readonly nodeId: string;
  now(): number;
}

const DEFAULT_LIMIT = 50;
/** The maximum number of summaries read for one page, even if few of them match the filters. */
const MAX_SCANNED = 2000;
const MAX_COUNTED = 1000;
const QUEUED_PROMPT_LENGTH = 200;

interface LiveState {
  running: number;
  queued: number;
  /** Open permission requests. */
  asking: number;
}

type Owners = readonly string[] | undefined;
type LiveStates = ReadonlyMap<string, Readonly<LiveState>>;

export function createSessionList(options: SessionListOptions): SessionList {
  const { sessions, store, summaries, permissions, offered, now } = options;

  async function readStates(owners: Owners): Promise<LiveStates> {
    const turns = mergedPages(owners, store.openTurns);
    return statesOf(...(await Promise.all([turns, mergedPages(owners, store.openPermissions)])));
  }

  /** Reads the branch of each folder once. */
  async function toSummaries(rows: readonly SummaryRow[], states: LiveStates): Promise<Summary[]> {
    const folders = [...new Set(rows.map(({ folder }) => folder))].filter((folder) => folder !== '');
    const branches = new Map(await Promise.all(folders.map(async (one) => [one, await branchOf(one)] as const)));
    return rows.map((row) => ({ ...toSummary(row, states), branch: branches.get(row.folder) ?? '' }));
  }

  function toSummary(row: SummaryRow, states: LiveStates): Omit<Summary, 'branch'> {
    const { running = 0, queued = 0, asking = 0 } = states.get(row.session_key) ?? {};
    const live = summaries.live(row.session_key);
    return {
      sessionId: row.session_id,
      threadId: row.thread_id,
      owner: row.owner,
      title: row.title === '' ? row.session_id : (JSON.parse(row.title) as string),
      providerId: row.provider_id,
      model: row.model,
      mode: row.mode,
      folder: row.folder,
      state: stateOf(row, states),
      doing: running === 0 ? '' : (live?.doing ?? (row.doing === '' ? '' : (JSON.parse(row.doing) as string))),
      turns: row.turns + running + queued,
      queuedTurns: queued,
      openPermissions: asking,
      usage: { inputTokens: row.input_tokens, outputTokens: row.output_tokens, totalTokens: row.total_tokens },
      costUsd: row.cost_usd,
      changed: { files: row.changed_files, added: row.lines_added, removed: row.lines_removed },
      lastTurn: row.last_turn === '' ? null : { turnId: row.last_turn, status: row.last_status, code: row.last_code },
      lastSeq: Math.max(row.last_seq, live?.lastSeq ?? 0),
      jobId: row.job_id,
      nodeId: options.nodeId,
      createdAt: row.created_at,
      updatedAt: row.updated_at,
      archivedAt: row.archived_at,
      pinned: row.pinned === 1,
    };
  }

  async function find(principal: Principal, sessionId: string, owner: string | undefined): Promise<SessionRow> {
    const row = await lookUp(principal, sessionId, owner);
    if (row === undefined || row.closed_at !== null) throw new AppError('SESSION_NOT_FOUND', { sessionId });
    return row;
  }

  async function lookUp(principal: Principal, sessionId: string, owner: string | undefined) {
    if (owner !== undefined) return sees(principal, owner) ? sessions.find(sessionId, owner) : undefined;
    const own = await sessions.find(sessionId, principal.id);
    const owners = ownersSought(principal);
    return own?.closed_at === null || owners?.length === 1 ? own : sessions.findSeen(sessionId, owners);
  }

  async function one(session: SessionRow): Promise<Summary> {
    const [[row], states] = await Promise.all([store.find([session.key]), readStates([session.owner])]);
    const [summary] = await toSummaries(row === undefined ? [] : [row], states);
    if (summary === undefined) throw new AppError('SESSION_NOT_FOUND', { sessionId: session.session_id });
    return summary;
  }

  /** Reads matching rows, newest first. Stops after MAX_SCANNED rows, and returns where it stopped. */
  async function page(owners: Owners, query: SessionQuery, states: LiveStates) {
    const { state, providerId, folder, threadId, search, limit = DEFAULT_LIMIT } = query;
    const after = readCursor(query.cursor);
    const words = search === undefined ? undefined : searchText(search, '').trimEnd();
    const fits = (row: SummaryRow) =>
      (state === undefined || stateOf(row, states) === state) &&
      (providerId === undefined || row.provider_id === providerId) &&
      (folder === undefined || row.folder === folder) &&
      (words === undefined || row.search_text.includes(words));
    if (state === 'needs_you' || state === 'running' || state === 'waiting') {
      // Few sessions have open turns: they are found by those turns, however many other sessions there are.
      const live = await store.find([...states.keys()]);
      const sorted = live
        .filter((row) => fits(row) && (threadId === undefined || row.thread_id === threadId))
        .filter((row) => after === undefined || isAfter(row, after))
        .toSorted(newestFirst);
      return cutPage(sorted, limit);
    }
    const isArchived = state === 'archived';
    const fitting: SummaryRow[] = [];
    let last = after;
    // Begins with the size of a page: if most rows match, the rest is never read.
    for (let seen = 0, size = limit + 1; seen < MAX_SCANNED && fitting.length <= limit; seen += size, size *= 2) {
      const from = { isArchived, after: last, threadId, limit: Math.min(size, MAX_SCANNED - seen) };
      const scan = (owner: string | undefined) => store.scan({ ...from, owner });
      const rows = await mergedPages(owners, scan, { order: newestFirst, limit: from.limit });
      fitting.push(...rows.filter(fits));
      const end = rows.at(-1);
      if (end === undefined || rows.length < from.limit) return cutPage(fitting, limit);
      last = positionOf(end);
    }
    const found = cutPage(fitting, limit);
    if (found.next !== null || last === undefined) return found;
    return { rows: found.rows, next: encodeCursor(last.updatedAt, last.key) };
  }

  return {
    find,
    async read(keys) {
      const [rows, states] = await Promise.all([store.find(keys), readStates(undefined)]);
      const summarised = await toSummaries(rows, states);
      return new Map(rows.map(({ session_key: key }, index) => [key, summarised[index] as Summary]));
    },
    async list(principal, query) {
      const isSeen = query.owner === undefined || sees(principal, query.owner);
      const owners = isSeen && query.owner !== undefined ? [query.owner] : ownersSought(principal);
      const counting = mergedPages(owners, async (owner) => [await store.count(owner, MAX_COUNTED + 1)]);
      const [states, countsOf] = await Promise.all([readStates(owners), counting]);
      const counted = countsOf.reduce((sum, one) => sum + one, 0);
      const counts = { needsYou: 0, running: 0, waiting: 0, idle: 0 };
      for (const state of states.values()) counts[COUNTED[liveState(state)]] += 1;
      counts.idle = Math.max(0, Math.min(counted, MAX_COUNTED) - states.size);
      if (!isSeen) return { sessions: [], counts, nextCursor: null };
      const { rows, next } = await page(owners, query, states);
      return { sessions: await toSummaries(rows, states), counts, nextCursor: next };
    },
    async show(principal, sessionId, owner) {
      const session = await find(principal, sessionId, owner);
      const { key: sessionKey, owner: ownerOf } = session;
      const [[summary, row], queued, open] = await Promise.all([
        Promise.all([one(session), store.find([sessionKey])]),
        store.queuedTurns(ownerOf, sessionKey),
        permissions.list(principal, { sessionKey, owner: ownerOf }),
      ]);
      return {
        session: summary,
        ...offered(session.provider_id, row[0]?.offers ?? ''),
        thinking: readChoices(session.choices).thinking,
        permissions: open,
        mcpServers: shownServers(options.serverBox.open(sessionKey, session.mcp_servers)),
        queued: queued.map(({ id, prompt, created_at: createdAt }) => ({
          turnId: id,
          prompt: (JSON.parse(prompt) as string).slice(0, QUEUED_PROMPT_LENGTH).toWellFormed(),
          createdAt,
        })),
      };
    },
    async change(principal, sessionId, owner, { title, archived, pinned }) {
      const session = await find(principal, sessionId, owner);
      if (!may(principal, 'message', session.owner)) throw new AppError('FORBIDDEN');
      await store.change(session.key, {
        ...(title !== undefined && {
          title: JSON.stringify(title),
          search_text: searchText(title, session.session_id),
        }),
        ...(archived !== undefined && { archived_at: archived ? now() : null }),
        ...(pinned !== undefined && { pinned: pinned ? 1 : 0 }),
      });
      summaries.stored(session.key);
      return { session: await one(session) };
    },
  };
}

const COUNTED = { needs_you: 'needsYou', running: 'running', waiting: 'waiting' } as const;

function statesOf(turns: readonly OpenTurn[], requests: readonly { readonly session_key: string }[]): LiveStates {
  const states = new Map<string, LiveState>();
  const of = (key: string): LiveState => {
    const state = states.get(key) ?? { running: 0, queued: 0, asking: 0 };
    states.set(key, state);
    return state;
  };
  for (const { session_key: key, status } of turns) of(key)[status === 'queued' ? 'queued' : 'running'] += 1;
  // A request whose turn has just ended is about to be cancelled.
  for (const { session_key: key } of requests) if (states.has(key)) of(key).asking += 1;
  return states;
}

function liveState({ asking, running }: LiveState): keyof typeof COUNTED {
  if (asking > 0) return 'needs_you';
  return running > 0 ? 'running' : 'waiting';
}

function stateOf(row: SummaryRow, states: LiveStates): Summary['state'] {
  const open = states.get(row.session_key);
  if (open !== undefined) return liveState(open);
  return row.archived_at === null ? 'idle' : 'archived';
}

function positionOf({ updated_at: updatedAt, session_key: key }: SummaryRow): SummaryPosition {
  return { updatedAt, key };
}

/** Whether a row comes after a position, newest first. */
function isAfter({ updated_at: updatedAt, session_key: key }: SummaryRow, position: SummaryPosition): boolean {
  return updatedAt === position.updatedAt ? key < position.key : updatedAt < position.updatedAt;
}

function newestFirst(one: SummaryRow, other: SummaryRow): number {
  return isAfter(one, positionOf(other)) ? 1 : -1;
}

function cutPage(rows: readonly SummaryRow[], limit: number) {
  const last = rows[limit - 1];
  const next = last !== undefined && rows.length > limit ? cursorOf(last) : null;
  return { rows: rows.slice(0, limit), next };
}

function cursorOf({ updated_at: updatedAt, session_key: key }: SummaryRow): string {
  return encodeCursor(updatedAt, key);
}

function readCursor(cursor: string | undefined): SummaryPosition | undefined {
  if (cursor === undefined) return undefined;
  const [updatedAt, key] = decodeCursor(cursor);
  return { updatedAt, key };
}

/** A moment and an id, which together name one row of a list. */
export function decodeCursor(cursor: string): readonly [number, string] {
  try {
    const value: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString());
    if (Array.isArray(value) && value.length === 2) {
      const [at, id] = value as readonly unknown[];
      if (typeof at === 'number' && Number.isSafeInteger(at) && typeof id === 'string' && !id.includes('\0'))
        return [at, id];
    }
  } catch {
    // Falls through: the cursor was not made by `encodeCursor`.
  }
  throw new AppError('INVALID_REQUEST', { reason: 'cursor is not one that a list gave; leave it out to begin again' });
}

export function encodeCursor(at: number, id: string): string {
  return Buffer.from(JSON.stringify([at, id])).toString('base64url');
}
