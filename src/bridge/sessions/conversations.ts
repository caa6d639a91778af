import type { Database } from '../../platform/database/database.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentOffers, AgentProvider } from '../agents/agent-provider.ts';
import type { SessionView } from '../contract/workbench.ts';
import { MULTI_AGENT_ID } from '../multi-agent/create-multi-agent.ts';
import { TENANT } from '../principal.ts';
import type { BridgeSchema, SessionRow } from '../storage/bridge-schema.ts';
import type { SessionStore } from '../storage/session-store.ts';
import type { SummaryStore } from '../storage/summary-store.ts';
import type { TurnStore } from '../storage/turn-store.ts';
import { type LiveSession, type SessionTable, stopTurn } from './live-session.ts';
import type { ServerBox } from './mcp-servers.ts';
import type { SessionOrchestrator } from './session-orchestrator.ts';
import type { SessionRecords } from './session-records.ts';
import { readChoices, type SessionChoices, type SessionStates } from './session-state.ts';
import { searchText } from './session-summaries.ts';
import type { TurnLimits } from './turn-limits.ts';
import { originOf } from './turn-runner.ts';
import { eventUpdates } from './update-text.ts';
import type { WorkingDirectories } from './working-directory.ts';

/** What people do with the conversation of a session besides sending turns. The caller may work in the session. */
export interface Conversations {
  /** Sends a message to the running turn. Throws NOT_STEERABLE. */
  steer(session: SessionRow, text: string): Promise<{ turnId: string }>;
  /** Removes a turn that waits: it ends as cancelled, and the others go on. Throws TURN_NOT_FOUND, TURN_NOT_WAITING. */
  withdraw(session: SessionRow, turnId: string): Promise<void>;
  /** Makes a copy of the session, which has the same owner and folder; `member` asks for it, for a team. Throws NOT_FORKABLE, TURN_NOT_FOUND, TURN_RUNNING. */
  fork(session: SessionRow, turnId: string | undefined, member: string | undefined): Promise<{ sessionId: string }>;
  /** Chooses mode, model and thinking of the next turns; empty: as the agent does. Throws UNKNOWN_MODE, UNKNOWN_MODEL, UNKNOWN_THINKING. */
  choose(session: SessionRow, chosen: Partial<SessionChoices>): Promise<void>;
  /** What people can choose from; `stored` is what the agent has told, as JSON text. */
  offered(providerId: string, stored: string): Pick<SessionView, 'modes' | 'models' | 'thinkingLevels' | 'commands'>;
}

export interface ConversationsOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly database: Database<BridgeSchema>;
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly directories: Pick<WorkingDirectories, 'scratch'>;
  readonly serverBox: ServerBox;
  readonly table: Pick<SessionTable, 'loadOwn'>;
  readonly alone: SessionOrchestrator['alone'];
  readonly change: SessionStates['change'];
  /** The data directory of this bridge, where others share the database. */
  readonly home?: string | undefined;
  readonly sessions: Pick<SessionStore, 'insert' | 'setChoices'>;
  readonly summaries: Pick<SummaryStore, 'begin' | 'find' | 'set'>;
  readonly turns: Pick<TurnStore, 'latest' | 'isOf'>;
  readonly records: Pick<SessionRecords, 'withdraw'>;
  /** A turn is over that has not run. */
  readonly ended: TurnLimits['ended'];
  /** Tells watchers that a session is there. */
  stored(sessionKey: string): void;
}

const NO_OFFERS: AgentOffers = { modes: [], models: [], thinking: [], commands: [] };

export function createConversations(options: ConversationsOptions): Conversations {
  const { database, providers, directories, table, sessions, summaries, turns, clock, makeId } = options;

  /** The agent copies the whole conversation unless the turn is not the last one. */
  async function lastOfCopy({ key, id: sessionId }: LiveSession, turnId: string | undefined) {
    if (turnId === undefined || (await turns.latest(key))?.id === turnId) return {};
    if (!(await turns.isOf(key, turnId))) throw new AppError('TURN_NOT_FOUND', { turnId, sessionId });
    return { turnId };
  }

  async function copy(
    session: LiveSession,
    turnId: string | undefined,
    member: string | undefined,
  ): Promise<{ sessionId: string }> {
    const { owner, providerId, reference, workingDirectory: folder } = session;
    const provider = providers.get(providerId);
    if (reference === '') throw new AppError('NOT_FORKABLE', { reason: 'it has no conversation yet' });
    if (provider?.fork === undefined)
      throw new AppError('NOT_FORKABLE', { reason: 'its agent cannot copy conversations' });
    const last = await lastOfCopy(session, turnId);
    const [key, sessionId, now] = [makeId('ses_'), makeId('fork-'), clock.now()];
    const place = folder === '' ? await directories.scratch(key) : folder;
    const mcpServers = options.serverBox.open(session.key, session.mcpServers);
    const forked = await provider.fork(reference, { owner, member, folder: place, mcpServers, ...last });
    if ('why' in forked) throw new AppError('NOT_FORKABLE', { reason: forked.why });
    const [summary] = await summaries.find([session.key]);
    const title = `Copy of ${summary?.title ? (JSON.parse(summary.title) as string) : session.id}`;
    const names = { session_id: sessionId, thread_id: sessionId, owner, tenant: TENANT, provider_id: providerId };
    try {
      await database.write([
        sessions.insert({
          ...names,
          key,
          instance: '',
          home: options.home ?? '',
          reference: forked.reference,
          working_directory: folder,
          mcp_servers: options.serverBox.seal(key, mcpServers),
          reserved_seq: 0,
          created_at: now,
          updated_at: now,
          closed_at: null,
        }),
        sessions.setChoices(key, session.choices),
        summaries.begin({
          ...names,
          session_key: key,
          title: JSON.stringify(title),
          search_text: searchText(title, sessionId),
          model: summary?.model ?? '',
          folder,
          job_id: '',
          updated_at: now,
        }),
      ]);
    } catch (error) {
      await provider.close(forked.reference, { owner, left: () => undefined }).catch(() => undefined);
      throw error;
    }
    options.stored(key);
    return { sessionId };
  }

  function offered(providerId: string, stored: string) {
    // What an earlier release has stored has no thinking.
    const told = { ...NO_OFFERS, ...(stored === '' ? {} : (JSON.parse(stored) as Partial<AgentOffers>)) };
    const { modes = told.modes, thinking = told.thinking } = providers.get(providerId) ?? {};
    return {
      modes: modes.map(({ id, name }) => ({ id, name })),
      models: [...told.models],
      thinkingLevels: [...thinking],
      commands: [...told.commands],
    };
  }

  return {
    offered,
    async choose({ key, owner, session_id: sessionId }, chosen) {
      const session = await table.loadOwn(owner, sessionId);
      if (session === undefined) throw new AppError('SESSION_NOT_FOUND', { sessionId });
      const choice = { ...readChoices(session.choices), ...chosen };
      const { mode, model, thinking } = choice;
      const [summary] = await summaries.find([key]);
      const { modes, models, thinkingLevels } = offered(session.providerId, summary?.offers ?? '');
      if (mode !== '' && !modes.some(({ id }) => id === mode)) {
        throw new AppError('UNKNOWN_MODE', { mode, offered: listed(modes) });
      }
      const isOffered = models.length === 0 || models.some(({ id }) => id === model || id.endsWith(`/${model}`));
      if (model !== '' && (!isOffered || session.providerId === MULTI_AGENT_ID)) {
        throw new AppError('UNKNOWN_MODEL', { model, offered: listed(models) });
      }
      if (thinking !== '' && !thinkingLevels.some(({ id }) => id === thinking)) {
        throw new AppError('UNKNOWN_THINKING', { thinking, offered: listed(thinkingLevels) });
      }
      const choices = mode === '' && model === '' && thinking === '' ? '' : JSON.stringify(choice);
      const shown = { ...(chosen.mode !== undefined && { mode }), ...(chosen.model ? { model } : {}) };
      await database.write([sessions.setChoices(key, choices), summaries.set(key, shown)]);
      options.change(session, { kind: 'chosen', choices });
      options.stored(key);
    },
    async steer({ owner, session_id: sessionId }, text) {
      const session = await table.loadOwn(owner, sessionId);
      const turn = session?.turns[0];
      if (session === undefined || turn === undefined) {
        const isElsewhere = session?.state === 'elsewhere';
        const reason = isElsewhere ? 'the turn runs on another instance of the bridge' : 'no turn runs';
        throw new AppError('NOT_STEERABLE', { reason });
      }
      const { steer } = turn;
      if (steer === undefined) {
        throw new AppError('NOT_STEERABLE', { reason: 'the running turn takes no further messages' });
      }
      const isTaken = await steer(text);
      if (!isTaken) throw new AppError('NOT_STEERABLE', { reason: 'the agent did not take it' });
      // A turn has no updates after its end.
      const told = turn.steer === undefined ? [] : eventUpdates(originOf(session, turn), { kind: 'steer', text });
      for (const update of told) session.stream.emit(update);
      return { turnId: turn.id };
    },
    async withdraw({ key, owner, session_id: sessionId }, turnId) {
      const session = await table.loadOwn(owner, sessionId);
      const turn = session?.turns.find(({ id }) => id === turnId);
      if (session === undefined || turn === undefined || turn.beginning !== undefined) {
        if (turn === undefined && !(await turns.isOf(key, turnId))) {
          throw new AppError('TURN_NOT_FOUND', { turnId, sessionId });
        }
        throw new AppError('TURN_NOT_WAITING', { turnId });
      }
      const [first] = session.turns;
      // Should it come first from now on, it ends as soon as it does.
      stopTurn(turn, 'cancelled');
      if (turn === first || first?.isEnding || turn.waitingBase === undefined) return;
      await options.records.withdraw(session, turn, turn.waitingBase);
      const index = session.turns.indexOf(turn);
      // By now it may be the first one, and end as every turn does.
      if (index < 1) return;
      session.turns.splice(index, 1);
      options.ended(turn.request.principal);
    },
    fork: ({ owner, session_id: sessionId }, turnId, member) =>
      options.alone(owner, sessionId, (session) => copy(session, turnId, member)),
  };
}

const MAX_LISTED = 20;

function listed(choices: readonly { readonly id: string }[]): string {
  const ids = choices.slice(0, MAX_LISTED).map(({ id }) => id);
  return ids.length === 0 ? 'none' : `${ids.join(', ')}${choices.length > MAX_LISTED ? ', …' : ''}`;
}
