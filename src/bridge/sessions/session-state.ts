import type { Statement } from '../../platform/database/statement.ts';
import { TENANT } from '../principal.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { SessionBefore, SessionPlace, SessionStore } from '../storage/session-store.ts';

/** What the store has of a session. */
type StoredState = 'absent' | 'open' | 'closed';

/**
 * Where a session is: not stored; its first turn begins; stored, and idle; a turn runs or waits here; being closed; closed, of
 * which only the names and the last number are left; used by another bridge; idle, and what takes back the beginning of a
 * turn, which may be stored, is on its way.
 */
export type SessionState = StoredState | 'starting' | 'running' | 'closing' | 'elsewhere' | 'in doubt';

/** What is known of a session. It changes in this file and nowhere else. */
export interface SessionFacts extends SessionPlace {
  readonly key: string;
  readonly id: string;
  readonly owner: string;
  readonly state: SessionState;
  readonly stored: StoredState;
  /** What people have chosen for its turns, as JSON text; empty: nothing. */
  readonly choices: string;
  /** Of the row, as this bridge knows it: what it writes about the session counts only while the row has the same. */
  readonly epoch: number;
  /** It is not known whether the beginning of a turn was stored; what takes it back is on its way. */
  readonly isDoubted: boolean;
  /** While a beginning is being stored: what the session was before. */
  readonly before: SessionBefore | undefined;
}

export type SessionEvent =
  /** The row of the session was read, while nothing of it runs here. */
  | { readonly kind: 'found'; readonly row: SessionRow }
  /** A turn stands in line. */
  | { readonly kind: 'queued' }
  /** A turn begins there, and numbers up to `upTo` are reserved with it. */
  | {
      readonly kind: 'begins';
      readonly place: SessionPlace;
      readonly expectedSeq: number;
      readonly upTo: number;
      readonly now: number;
    }
  | { readonly kind: 'begun'; readonly epoch: number }
  /** The row has another epoch than was known, and this bridge has the session. */
  | { readonly kind: 'kept'; readonly epoch: number }
  /** The beginning was not stored; or, where it is in doubt, it is taken back. Its numbers stay reserved. */
  | {
      readonly kind: 'not begun';
      readonly turnId: string;
      readonly upTo: number;
      readonly isDoubted: boolean;
      readonly now: number;
    }
  | { readonly kind: 'doubt over' }
  /** The agent has a name for the conversation. */
  | { readonly kind: 'opened'; readonly reference: string }
  /** People have chosen something for its next turns. */
  | { readonly kind: 'chosen'; readonly choices: string }
  | { readonly kind: 'turn ended'; readonly isLast: boolean; readonly lastSeq: number; readonly now: number }
  /** No turn is left in line. */
  | { readonly kind: 'idle' }
  | { readonly kind: 'close' }
  /** Its turns have ended, and its agent was told. */
  | { readonly kind: 'closed'; readonly now: number }
  /** Another bridge has taken it while it was being closed here: a call that has found it before must not go on with it. */
  | { readonly kind: 'taken' }
  /** Nothing of it is kept. */
  | { readonly kind: 'forgotten' };

export interface SessionStates {
  /** What an event makes of a session, and the statements that store it. Pure. Throws for an event that cannot be. */
  transition(session: SessionFacts, event: SessionEvent): Transition;
  /** Makes it so, and returns the statements. */
  change(session: SessionFacts, event: SessionEvent): readonly Statement[];
}

interface Transition {
  readonly next: Partial<SessionFacts>;
  readonly statements: readonly Statement[];
}

type Statements = Pick<
  SessionStore,
  | 'insert'
  | 'claim'
  | 'unclaim'
  | 'reserve'
  | 'setReference'
  | 'setChoices'
  | 'endTurn'
  | 'close'
  | 'discard'
  | 'forget'
>;

/** `instance` is this bridge, and `home` its data directory. */
export function createSessionStates(store: Statements, instance: string, home = ''): SessionStates {
  function transition(session: SessionFacts, event: SessionEvent): Transition {
    const { key, state, stored } = session;
    switch (event.kind) {
      case 'found': {
        const { row } = event;
        // It shows the beginning that is being taken back.
        if (session.isDoubted && row.instance === instance) return to({});
        const found = row.closed_at === null ? 'open' : 'closed';
        const isElsewhere = row.instance !== '' && row.instance !== instance;
        const { choices, epoch } = row;
        return to({
          ...placeOfRow(row),
          choices,
          epoch,
          stored: found,
          state: isElsewhere ? 'elsewhere' : idle(session, found),
        });
      }
      case 'queued':
        if (state === 'closing' || state === 'elsewhere') throw new Error(`a session that is ${state} takes no turn`);
        return to({ state: stored === 'open' ? 'running' : 'starting' });
      case 'begins': {
        const { place, upTo, now, expectedSeq } = event;
        const columns = {
          key,
          thread_id: place.threadId,
          instance,
          home,
          provider_id: place.providerId,
          reference: place.reference,
          working_directory: place.workingDirectory,
          mcp_servers: place.mcpServers,
          reserved_seq: upTo,
          updated_at: now,
        };
        const names = { session_id: session.id, owner: session.owner, tenant: TENANT };
        const taken =
          stored === 'absent'
            ? store.insert({ ...columns, ...names, created_at: now, closed_at: null })
            : store.claim({ ...columns, expectedSeq });
        return to({ ...place, before: beforeOf(session) }, taken);
      }
      case 'begun':
        return to({
          stored: 'open',
          before: undefined,
          epoch: event.epoch,
          ...(state === 'starting' && { state: 'running' }),
        });
      case 'kept':
        return to({ epoch: event.epoch });
      case 'not begun': {
        const { before = beforeOf(session) } = session;
        if (!event.isDoubted) return to({ ...placeOf(before), before: undefined });
        const doubted = { ...before, before: undefined, isDoubted: true };
        // All of it counts only where no other bridge has ended the turn since then: what that one has told stays.
        // Without a row there is nothing that holds the numbers.
        if (stored === 'absent') return to(doubted, ...store.discard(key, instance));
        if (stored === 'closed')
          return to(doubted, ...store.close(key, event.now, instance), store.reserve(key, event.upTo));
        return to(
          doubted,
          store.unclaim(key, event.turnId, before, instance),
          // The agent may have named its new conversation already, also where the beginning itself was not stored.
          store.setReference(key, before.providerId, before.reference, before.epoch),
          store.reserve(key, event.upTo),
        );
      }
      case 'doubt over':
        return to({ isDoubted: false, ...(state === 'in doubt' && { state: stored }) });
      case 'opened':
        return to({ reference: event.reference }, store.setReference(key, session.providerId, event.reference));
      case 'chosen':
        return to({ choices: event.choices }, store.setChoices(key, event.choices));
      case 'turn ended':
        return to({}, store.endTurn(key, instance, event.isLast ? '' : instance, event.lastSeq, event.now));
      case 'idle':
        return to(state === 'starting' || state === 'running' ? { state: idle(session, stored) } : {});
      case 'close':
        if (state === 'elsewhere') throw new Error('a session that is elsewhere cannot be closed here');
        return to({ state: 'closing' });
      case 'closed': {
        if (state !== 'closing') throw new Error(`a session that is ${state} is not being closed`);
        if (stored !== 'open') return to({ state: idle(session, stored) });
        const nothing = { providerId: '', reference: '', workingDirectory: '', mcpServers: '', choices: '' };
        return to({ ...nothing, stored: 'closed', state: idle(session, 'closed') }, ...store.close(key, event.now));
      }
      case 'taken':
        return to({ state: 'elsewhere' });
      case 'forgotten':
        // Nothing but its row is left. It may be stored late, and another bridge may have started the session again by then.
        return to({ stored: 'absent', state: 'absent' }, store.forget(key, session.epoch));
    }
  }

  return {
    transition,
    change(session, event) {
      const { next, statements } = transition(session, event);
      Object.assign(session, next);
      return statements;
    },
  };
}

export function newSession(key: string, id: string, owner: string): SessionFacts {
  const place = { threadId: id, providerId: '', reference: '', workingDirectory: '', mcpServers: '' };
  const nothing = { choices: '', epoch: 0, isDoubted: false, before: undefined };
  return { key, id, owner, ...place, ...nothing, state: 'absent', stored: 'absent' };
}

/**
 * Whether something that ends the session as it is may still be on its way to the store, or be stored once more because nobody knows
 * that it was: what takes a beginning back, or what closed the session. It must not come after the next beginning.
 */
export function waitsForLog({ isDoubted, stored }: Pick<SessionFacts, 'isDoubted' | 'stored'>): boolean {
  return isDoubted || stored === 'closed';
}

export interface SessionChoices {
  /** Empty: that of the agent, also of the others. */
  readonly mode: string;
  readonly model: string;
  readonly thinking: string;
}

export function readChoices(choices: string): SessionChoices {
  const chosen = choices === '' ? {} : (JSON.parse(choices) as Partial<SessionChoices>);
  return { mode: '', model: '', thinking: '', ...chosen };
}

export function placeOf(session: SessionPlace): SessionPlace {
  const { threadId, providerId, reference, workingDirectory, mcpServers } = session;
  return { threadId, providerId, reference, workingDirectory, mcpServers };
}

function beforeOf(session: SessionFacts): SessionBefore {
  return { ...placeOf(session), epoch: session.epoch };
}

function placeOfRow(row: SessionRow): SessionPlace {
  return {
    threadId: row.thread_id,
    providerId: row.provider_id,
    reference: row.reference,
    workingDirectory: row.working_directory,
    mcpServers: row.mcp_servers,
  };
}

function idle({ isDoubted }: SessionFacts, stored: StoredState): SessionState {
  return isDoubted ? 'in doubt' : stored;
}

function to(next: Partial<SessionFacts>, ...statements: readonly Statement[]): Transition {
  return { next, statements };
}
