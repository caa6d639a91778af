import { AppError } from '../../platform/errors/app-error.ts';
import { ownersSought, type Principal, sees } from '../../platform/identity/principal.ts';
import type {
  AuditPage,
  AuditQuery,
  PlainUpdate,
  Summary,
  TurnPage,
  TurnView,
  UpdatePage,
  UpdateQuery,
} from '../contract/workbench.ts';
import { mergedPages } from '../principal.ts';
import { splitTextLast } from '../sessions/update-text.ts';
import type { AuditRow, UpdateChunkRow } from '../storage/bridge-schema.ts';
import type { UpdateStore } from '../storage/update-store.ts';
import type { HistoryStore, StoredTurn } from '../storage/workbench-stores.ts';
import { plainUpdate } from './plain-update.ts';
import { decodeCursor, encodeCursor } from './session-list.ts';

/** The history of sessions: their turns, their updates, and decisions about permissions. */
export interface History {
  turns(sessionKey: string, before: string | undefined, limit?: number): Promise<TurnPage>;
  updates(sessionKey: string, query: UpdateQuery): Promise<UpdatePage>;
  /** The tool calls of a session, from a number on. Most of a long session is text, which is not read for them. */
  toolCalls(sessionKey: string, afterSeq: number): AsyncGenerator<PlainUpdate>;
  /** The number of the first update of a turn; undefined when the session has no such turn. */
  firstSeq(sessionKey: string, turnId: string): Promise<number | undefined>;
  audit(principal: Principal, query: AuditQuery): Promise<AuditPage>;
  /** The whole session, in pieces of text. */
  exported(sessionKey: string, session: Summary, form: ExportForm): AsyncGenerator<string>;
  /** One page of the same text, and where the next one begins. */
  exportedPage(sessionKey: string, session: Summary, form: ExportForm, cursor: string): Promise<ExportPage>;
}

type ExportForm = 'markdown' | 'json';

interface ExportPage {
  readonly text: string;
  /** Null: this is the last page. */
  readonly nextCursor: string | null;
}

/** A piece of an export that is never divided. Its cursor continues after it. */
type ExportPiece = ExportPage;

interface HistoryOptions {
  readonly store: HistoryStore;
  readonly updates: Pick<UpdateStore, 'readAfter' | 'readNaming'>;
  /** Stores waiting updates, so that everything that clients have seen can be read. */
  flush(): Promise<void>;
}

const DEFAULT_LIMIT = 50;
const DEFAULT_UPDATES = 300;
const MAX_TEXT_LENGTH = 16_384;
/** Of the stored outcome: members and the beginning of the output. Most outcomes are shorter. */
const READ_LENGTH = 65_536;
/** A page of updates ends after so many characters, whatever the limit says. */
const MAX_PAGE_LENGTH = 4 * 1024 * 1024;
/** The maximum number of chunks read for one page, even if few of their updates are of the wanted kinds. */
const MAX_CHUNKS = 64;
/** Most pages need the last chunks only, so few are read first. */
const CHUNKS_READ_FIRST = 2;
const MAX_AUDIT_SCANNED = 2000;
/** An export has every text as a whole, so one turn is read at a time. */
const WHOLE_LENGTH = 2 ** 30;
/** A page of an export ends with the piece that passes so many characters. */
const EXPORT_PAGE_LENGTH = 1024 * 1024;
const TURN = 'turn-';
const UPDATE = 'update-';
/** The kind of updates about tool calls. Few other updates contain this word in their stored text. */
const TOOL_CALL = 'tool_call';
const MAX_TOOL_LINES = 1000;
const MAX_TOOL_LINE = 500;

export function createHistory({ store, updates, flush }: HistoryOptions): History {
  async function turnView(turn: StoredTurn, maxLength = MAX_TEXT_LENGTH): Promise<TurnView> {
    const prompt = firstOf(turn.prompt, turn.prompt.length < turn.prompt_length, maxLength);
    const outcome = await readOutcome(turn, maxLength);
    const usage = outcome.members.usage ?? null;
    return {
      turnId: turn.id,
      method: turn.method,
      prompt: prompt.text,
      attachments: JSON.parse(turn.attachments) as TurnView['attachments'],
      status: turn.status,
      code: outcome.members.code ?? '',
      error: outcome.members.error ?? '',
      output: outcome.output.text,
      truncated: prompt.isCut || outcome.output.isCut,
      usage,
      costUsd: usage?.costUsd ?? null,
      artifacts: outcome.members.artifacts ?? [],
      ...(outcome.members.steps !== undefined && { steps: outcome.members.steps }),
      firstSeq: turn.first_seq,
      lastSeq: turn.last_seq,
      createdAt: turn.created_at,
      endedAt: turn.ended_at,
    };
  }

  async function readOutcome(
    turn: StoredTurn,
    maxLength: number,
  ): Promise<{ members: OutcomeMembers; output: CutText }> {
    const isPart = turn.outcome.length < turn.outcome_length;
    const split = splitTextLast(turn.outcome);
    const isWholeHead = split !== undefined && split.text !== '';
    // Steps and artifacts can be longer than what was read, and results of 0.1.0 have no head: then all of it is needed.
    const stored = isPart && !isWholeHead ? ((await store.outcome(turn.id)) ?? '') : turn.outcome;
    const parts = splitTextLast(stored);
    if (parts !== undefined) {
      const members = JSON.parse(`{${parts.head}}`) as OutcomeMembers;
      return { members, output: firstOf(parts.text, isPart && isWholeHead, maxLength) };
    }
    if (stored === '') return { members: {}, output: { text: '', isCut: false } };
    const whole = JSON.parse(stored) as OutcomeMembers & { output?: string; failure?: { code: string } };
    if (whole.failure !== undefined) {
      return { members: { code: whole.failure.code, error: whole.failure.code }, output: { text: '', isCut: false } };
    }
    return { members: whole, output: cut(whole.output ?? '', maxLength) };
  }

  /** The updates of a page in order; `isForward` says from which end it is filled. */
  function collect(chunks: readonly UpdateChunkRow[], wanted: Wanted): Collected {
    const { limit, kinds, isForward, covers } = wanted;
    const found: PlainUpdate[] = [];
    let edge: number | undefined;
    let length = 0;
    for (const chunk of chunks) {
      const lines = chunk.updates.split('\n');
      for (let at = 0; at < lines.length; at += 1) {
        const index = isForward ? at : lines.length - 1 - at;
        const seq = chunk.first_seq + index;
        if (!covers(seq)) continue;
        if (found.length >= limit || length > MAX_PAGE_LENGTH) return { found, edge, isFull: true };
        const text = lines[index] ?? '';
        const update = plainUpdate(text, chunk.at);
        edge = seq;
        if (kinds !== undefined && !kinds.has(update.kind)) continue;
        found.push(update);
        length += text.length;
      }
    }
    return { found, edge, isFull: false };
  }

  async function readPage(sessionKey: string, wanted: Wanted, from: number): Promise<Collected> {
    let all: Collected = { found: [], edge: undefined, isFull: false };
    let at = from;
    for (let read = 0, size = CHUNKS_READ_FIRST; read < MAX_CHUNKS; size *= 2) {
      const chunks = wanted.isForward
        ? await updates.readAfter(sessionKey, at)
        : await store.chunksBefore(sessionKey, at, Math.min(size, MAX_CHUNKS - read));
      if (chunks.length === 0) return all;
      read += chunks.length;
      const more = collect(chunks, { ...wanted, limit: wanted.limit - all.found.length });
      all = { found: [...all.found, ...more.found], edge: more.edge ?? all.edge, isFull: more.isFull };
      if (more.isFull) return all;
      at = wanted.isForward ? (chunks.at(-1)?.last_seq ?? at) : (chunks.at(-1)?.first_seq ?? at);
    }
    return all;
  }

  async function* eachTurn(sessionKey: string, after: string): AsyncGenerator<TurnView> {
    for (let last = after; ; ) {
      const [row] = await store.turnsAfter(sessionKey, last, 1, WHOLE_LENGTH);
      if (row === undefined) return;
      yield await turnView(row, WHOLE_LENGTH);
      last = row.id;
    }
  }

  async function* eachUpdate(sessionKey: string, afterSeq = 0, naming?: string): AsyncGenerator<PlainUpdate> {
    for (let last = afterSeq; ; ) {
      const chunks = await (naming === undefined
        ? updates.readAfter(sessionKey, last)
        : updates.readNaming(sessionKey, last, naming));
      if (chunks.length === 0) return;
      for (const chunk of chunks) {
        for (const [index, text] of chunk.updates.split('\n').entries()) {
          if (chunk.first_seq + index <= last || (naming !== undefined && !text.includes(naming))) continue;
          yield plainUpdate(text, chunk.at);
        }
        last = chunk.last_seq;
      }
    }
  }

  function exportPieces(
    sessionKey: string,
    session: Summary,
    form: ExportForm,
    cursor: string,
  ): AsyncGenerator<ExportPiece> {
    if (form === 'json') return jsonPieces(sessionKey, session, cursor);
    if (cursor.startsWith(UPDATE)) throw new AppError('INVALID_REQUEST', { reason: 'the cursor is one of form=json' });
    return markdownPieces(sessionKey, session, cursor);
  }

  async function* jsonPieces(sessionKey: string, session: Summary, cursor: string): AsyncGenerator<ExportPiece> {
    if (!cursor.startsWith(UPDATE)) {
      let last = cursor.slice(TURN.length);
      if (cursor === '') yield { text: `{"session":${JSON.stringify(session)},"turns":[`, nextCursor: TURN };
      for await (const turn of eachTurn(sessionKey, last)) {
        yield { text: `${last === '' ? '' : ','}\n${JSON.stringify(turn)}`, nextCursor: `${TURN}${turn.turnId}` };
        last = turn.turnId;
      }
      yield { text: '\n],"updates":[', nextCursor: `${UPDATE}0` };
    }
    let last = cursor.startsWith(UPDATE) ? Number(cursor.slice(UPDATE.length)) : 0;
    for await (const update of eachUpdate(sessionKey, last)) {
      yield { text: `${last === 0 ? '' : ','}\n${JSON.stringify(update)}`, nextCursor: `${UPDATE}${update.seq}` };
      last = update.seq;
    }
    yield { text: '\n]}\n', nextCursor: null };
  }

  async function* markdownPieces(sessionKey: string, session: Summary, cursor: string): AsyncGenerator<ExportPiece> {
    const last = cursor.slice(TURN.length);
    const folder = session.folder === '' ? '' : `, ${oneLine(session.folder)}`;
    if (cursor === '') {
      yield { text: `# ${oneLine(session.title)}\n\n${session.providerId}${folder}\n`, nextCursor: TURN };
    }
    for await (const turn of eachTurn(sessionKey, last)) {
      const { status, error, output, turnId } = turn;
      const text = [
        `\n## ${new Date(turn.createdAt).toISOString()}\n\n${quoted(turn.prompt)}\n\n`,
        await toolLines(sessionKey, turn),
        output === '' ? '' : `${output}\n`,
        status === 'completed' ? '' : `\n*${status}${error === '' ? '' : `: ${oneLine(error)}`}*\n`,
      ].join('');
      yield { text, nextCursor: `${TURN}${turnId}` };
    }
  }

  async function toolLines(sessionKey: string, { firstSeq, lastSeq }: TurnView): Promise<string> {
    const lines = new Map<string, string>();
    for await (const update of eachUpdate(sessionKey, firstSeq - 1, TOOL_CALL)) {
      if ((lastSeq > 0 && update.seq > lastSeq) || lines.size >= MAX_TOOL_LINES) break;
      if (update.kind !== TOOL_CALL || !('toolCallId' in update) || lines.has(String(update.toolCallId))) continue;
      lines.set(String(update.toolCallId), `- ${oneLine(String(update.title)).slice(0, MAX_TOOL_LINE)}\n`);
    }
    return lines.size > 0 ? `${[...lines.values()].join('')}\n` : '';
  }

  return {
    async turns(sessionKey, before, limit = DEFAULT_LIMIT) {
      await flush();
      const rows = await store.turns(sessionKey, before, limit + 1, READ_LENGTH);
      const turns = await Promise.all(rows.slice(0, limit).map((row) => turnView(row)));
      return { turns, nextCursor: rows.length > limit ? (turns.at(-1)?.turnId ?? null) : null };
    },
    async updates(sessionKey, { afterSeq, beforeSeq, limit = DEFAULT_UPDATES, kinds }) {
      if (afterSeq !== undefined && beforeSeq !== undefined) {
        throw new AppError('INVALID_REQUEST', { reason: 'give afterSeq or beforeSeq, not both' });
      }
      await flush();
      const isForward = afterSeq !== undefined;
      const from = afterSeq ?? beforeSeq ?? Number.MAX_SAFE_INTEGER;
      const covers = (seq: number) => (isForward ? seq > from : seq < from);
      const wanted = { limit, kinds: kinds === undefined ? undefined : new Set(kinds.split(',')), isForward, covers };
      const bounds = await store.bounds(sessionKey);
      const { found, edge } = await readPage(sessionKey, wanted, from);
      if (bounds === undefined || edge === undefined) {
        const nowhere = Math.min(from, bounds?.last ?? 0);
        const hasEarlier = bounds !== undefined && isForward && bounds.first <= from;
        return {
          updates: [],
          firstSeq: nowhere,
          lastSeq: nowhere,
          hasEarlier,
          hasLater: !isForward && bounds !== undefined,
        };
      }
      const firstSeq = isForward ? from + 1 : edge;
      // Updates may have been stored after the bounds were read: the next page must not contain updates of this one.
      const newest = Math.max(bounds.last, found[0]?.seq ?? 0);
      const lastSeq = isForward ? edge : Math.min(from - 1, newest);
      return {
        updates: isForward ? [...found] : found.toReversed(),
        firstSeq,
        lastSeq,
        hasEarlier: bounds.first < firstSeq,
        hasLater: bounds.last > lastSeq,
      };
    },
    async *toolCalls(sessionKey, afterSeq) {
      await flush();
      for await (const update of eachUpdate(sessionKey, afterSeq, TOOL_CALL))
        if (update.kind === TOOL_CALL) yield update;
    },
    async firstSeq(sessionKey, turnId) {
      await flush();
      return store.firstSeq(sessionKey, turnId);
    },
    async audit(principal, { owner, action, sessionId, from, to, limit = DEFAULT_LIMIT, cursor }) {
      if (owner !== undefined && !sees(principal, owner)) return { entries: [], nextCursor: null };
      await flush();
      const [at, id] = cursor === undefined ? [] : decodeCursor(cursor);
      const isFiltered = action !== undefined || sessionId !== undefined;
      const scanned = isFiltered ? MAX_AUDIT_SCANNED : limit + 1;
      const after = at === undefined || id === undefined ? undefined : { at, id };
      const rows = await mergedPages(
        owner === undefined ? ownersSought(principal) : [owner],
        (one) => store.audit({ owner: one, from, to, after, limit: scanned }),
        { order: (one, other) => other.at - one.at || (one.id < other.id ? 1 : -1), limit: scanned },
      );
      const fits = (row: AuditRow) =>
        (action === undefined || row.action === action) && (sessionId === undefined || row.session_id === sessionId);
      const fitting = rows.filter(fits);
      const shown = fitting.slice(0, limit);
      const last = fitting.length > limit ? shown.at(-1) : rows.length === scanned ? rows.at(-1) : undefined;
      return { entries: shown.map(auditEntry), nextCursor: last === undefined ? null : encodeCursor(last.at, last.id) };
    },
    async *exported(sessionKey, session, form) {
      await flush();
      for await (const { text } of exportPieces(sessionKey, session, form, '')) yield text;
    },
    async exportedPage(sessionKey, session, form, cursor) {
      await flush();
      let text = '';
      for await (const piece of exportPieces(sessionKey, session, form, cursor)) {
        text += piece.text;
        if (piece.nextCursor === null || text.length > EXPORT_PAGE_LENGTH) return { ...piece, text };
      }
      return { text, nextCursor: null };
    },
  };
}

type OutcomeMembers = Partial<Pick<TurnView, 'code' | 'error' | 'artifacts' | 'steps'>> & {
  readonly usage?: NonNullable<TurnView['usage']>;
};

interface Wanted {
  readonly limit: number;
  readonly kinds: ReadonlySet<string> | undefined;
  readonly isForward: boolean;
  covers(seq: number): boolean;
}

interface Collected {
  readonly found: readonly PlainUpdate[];
  /** The number that was looked at last. */
  readonly edge: number | undefined;
  readonly isFull: boolean;
}

interface CutText {
  readonly text: string;
  readonly isCut: boolean;
}

/** The beginning of a text that is given as JSON, whole or cut off anywhere. */
function firstOf(json: string, isPart: boolean, maxLength: number): CutText {
  if (!isPart) return cut(json === '' ? '' : (JSON.parse(json) as string), maxLength);
  // An escape sequence may be cut in two: its remaining half is removed.
  const end = json.slice(0, maxLength).replace(/\\(?:u[0-9a-f]{0,3})?$/i, '');
  const isEscaped = /(?:^|[^\\])(?:\\\\)*\\$/.test(end);
  return { text: (JSON.parse(`${isEscaped ? end.slice(0, -1) : end}"`) as string).toWellFormed(), isCut: true };
}

function cut(text: string, maxLength: number): CutText {
  if (text.length <= maxLength) return { text, isCut: false };
  return { text: text.slice(0, maxLength).toWellFormed(), isCut: true };
}

function auditEntry(row: AuditRow): AuditPage['entries'][number] {
  return {
    id: row.id,
    at: row.at,
    owner: row.owner,
    action: row.action,
    decision: row.decision,
    sessionId: row.session_id,
    turnId: row.turn_id,
    providerId: row.provider_id,
    subject: JSON.parse(row.subject) as unknown,
  };
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim();
}

function quoted(text: string): string {
  return text
    .split('\n')
    .map((line) => `> ${line}`)
    .join('\n');
}
