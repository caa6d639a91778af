import type { Clock } from '../../platform/clock/clock.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { AgentEvent } from '../agents/agent-provider.ts';
import { TENANT } from '../principal.ts';
import type { SummaryStore } from '../storage/summary-store.ts';
import type { LiveSession, LiveTurn } from './live-session.ts';
import type { ResultBase, TurnOutcome } from './turn-outcome.ts';

/** Gets to know of changes that are stored. */
interface SummaryListener {
  changed(key: string): void;
  closed(session: { readonly key: string; readonly id: string; readonly owner: string }): void;
}

/** Keeps the summaries of sessions up to date, with statements for commits that happen anyway. */
export interface SessionSummaries {
  /** For the commit that stores the beginning of a turn. */
  begun(session: LiveSession, turn: LiveTurn, base: ResultBase, now: number): Statement;
  /** For the commit that stores the end of a turn. */
  ended(session: LiveSession, turn: LiveTurn, outcome: TurnOutcome, end: SummarizedEnd): Statement;
  /** Notes what an agent reports. Returns a statement at most once a second for each session. */
  noted(session: LiveSession, event: AgentEvent): Statement | undefined;
  /** Calls the listener when a change of a summary is stored, or when the running turn does something else. */
  onChange(listener: SummaryListener): void;
  /** Another instance has changed the summary of a session. */
  changedElsewhere(key: string): void;
  /** A change is stored. */
  stored(key: string): void;
  /** The session is closed, and its summary removed. */
  closed(session: LiveSession): void;
  /** What the running turn of a session of this bridge does, and its last number. */
  live(key: string): { readonly doing: string; readonly lastSeq: number } | undefined;
}

interface SummarizedEnd {
  readonly seq: number;
  /** The beginning is stored by the same commit. */
  readonly isWhole: boolean;
  readonly now: number;
}

interface LiveSummary {
  readonly session: LiveSession;
  doing: string;
  isStored: boolean;
  storedAt: number;
}

const MAX_TITLE_LENGTH = 120;
const MAX_DOING_LENGTH = 200;
const STORE_PAUSE_MS = 1000;

export function createSessionSummaries(
  store: SummaryStore,
  clock: Pick<Clock, 'monotonic'>,
  tellOthers?: (key: string) => void,
): SessionSummaries {
  const running = new Map<string, LiveSummary>();
  let listener: SummaryListener | undefined;
  return {
    begun(session, turn, base, now) {
      const { key, id, owner, workingDirectory: folder } = session;
      const summary: LiveSummary = {
        session,
        doing: '',
        isStored: true,
        storedAt: Number.NEGATIVE_INFINITY,
      };
      running.set(key, summary);
      const title = titleOf(turn.request.prompt);
      return store.begin({
        session_key: key,
        session_id: id,
        thread_id: base.threadId,
        owner,
        tenant: TENANT,
        title: JSON.stringify(title),
        search_text: searchText(title, id),
        provider_id: session.providerId,
        model: base.resolvedModel,
        folder,
        job_id: turn.request.jobId ?? '',
        updated_at: now,
      });
    },
    ended({ key }, turn, outcome, { seq, isWhole, now }) {
      running.delete(key);
      const isFailure = 'failure' in outcome;
      const { inputTokens = 0, outputTokens = 0, totalTokens, costUsd } = (isFailure ? undefined : outcome.usage) ?? {};
      return store.end({
        key,
        turnId: turn.id,
        status: isFailure ? 'failed' : outcome.status,
        code: isFailure ? outcome.failure.code : (outcome.code ?? ''),
        model: isFailure ? '' : outcome.resolvedModel,
        mode: turn.mode.toWellFormed().replaceAll('\0', ''),
        offers: turn.offers === undefined ? '' : JSON.stringify(turn.offers),
        seq,
        isWhole: isWhole ? 1 : 0,
        inputTokens: whole(inputTokens),
        outputTokens: whole(outputTokens),
        totalTokens: whole(totalTokens ?? inputTokens + outputTokens),
        hasCost: Number.isFinite(costUsd) ? 1 : 0,
        costUsd: Number.isFinite(costUsd) ? (costUsd ?? 0) : 0,
        hasChanges: turn.changed === undefined ? 0 : 1,
        changedFiles: turn.changed?.files ?? 0,
        linesAdded: turn.changed?.added ?? 0,
        linesRemoved: turn.changed?.removed ?? 0,
        now,
      });
    },
    noted({ key, stream }, event) {
      // Most events are pieces of text, which say nothing about what is being done.
      if (event.kind === 'text' || event.kind === 'thinking') return undefined;
      const summary = running.get(key);
      if (summary === undefined) return undefined;
      const doing = doingOf(event);
      if (doing !== '' && doing !== summary.doing) {
        summary.doing = doing;
        summary.isStored = false;
        listener?.changed(key);
      }
      const now = clock.monotonic();
      if (summary.isStored || now - summary.storedAt < STORE_PAUSE_MS) return undefined;
      summary.isStored = true;
      summary.storedAt = now;
      return store.setDoing(key, JSON.stringify(summary.doing), stream.lastSeq());
    },
    onChange(one) {
      listener = one;
    },
    changedElsewhere: (key) => listener?.changed(key),
    stored(key) {
      listener?.changed(key);
      tellOthers?.(key);
    },
    closed(session) {
      listener?.closed(session);
      tellOthers?.(session.key);
    },
    live(key) {
      const summary = running.get(key);
      return summary === undefined ? undefined : { doing: summary.doing, lastSeq: summary.session.stream.lastSeq() };
    },
  };
}

/** The first line of a prompt that has something in it. */
function titleOf(prompt: string): string {
  const start = prompt.slice(0, 4096).trimStart();
  const end = start.search(/[\r\n]/);
  return cut(end === -1 ? start : start.slice(0, end), MAX_TITLE_LENGTH);
}

/** Text columns take no NUL. */
export function searchText(title: string, sessionId: string): string {
  return `${title}\n${sessionId}`.toWellFormed().replaceAll('\0', '').toLowerCase();
}

function doingOf(event: AgentEvent): string {
  switch (event.kind) {
    case 'tool_call':
      return cut(event.title, MAX_DOING_LENGTH);
    case 'status':
      return cut(event.text, MAX_DOING_LENGTH);
    case 'plan':
      return cut(event.entries.find(({ status }) => status === 'in_progress')?.content ?? '', MAX_DOING_LENGTH);
    case 'stage':
      return cut(event.message, MAX_DOING_LENGTH);
    default:
      return '';
  }
}

function cut(text: string, length: number): string {
  const clean = text
    .slice(0, length + 1)
    .toWellFormed()
    .trimEnd();
  return clean.length <= length ? clean : `${clean.slice(0, length - 1).toWellFormed()}…`;
}

function whole(count: number): number {
  return Number.isFinite(count) && count > 0 ? Math.min(Math.round(count), Number.MAX_SAFE_INTEGER) : 0;
}
