import { repeat, withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import type { Named, Runtime } from '../../platform/runtime/runtime.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import type { AgentProvider } from '../agents/agent-provider.ts';
import type { Checkpoints } from '../checkpoints/turn-checkpoints.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import type { ShownMcpServer } from '../contract/session.ts';
import { type Lease, repeatAfterDeaths, watchLosses } from '../instances/instance-registry.ts';
import type { RouteRequest } from '../routing/resolve-route.ts';
import type { BridgeSchema } from '../storage/bridge-schema.ts';
import { createInstanceStore } from '../storage/instance-and-route-stores.ts';
import { createAuditStore, createSessionStore } from '../storage/session-store.ts';
import { createSummaryStore } from '../storage/summary-store.ts';
import { createTurnStore } from '../storage/turn-store.ts';
import { createRetentionStore, createUpdateStore } from '../storage/update-store.ts';
import { isWorktreeOf, type Worktrees } from '../worktrees/create-worktrees.ts';
import { type Conversations, type ConversationsOptions, createConversations } from './conversations.ts';
import {
  createScratchSpace,
  type Retention,
  type ScratchSpaceOptions,
  SWEEP_PAUSE_MS,
  settleInterrupted,
  sweepFolders,
  sweepOldRecords,
} from './housekeeping.ts';
import { createSessionTable, forgetUnbegun, type LiveSession, stopTurn } from './live-session.ts';
import { createServerBox, type ServerBox, shownServers } from './mcp-servers.ts';
import { createSessionOrchestrator, type SessionOrchestrator } from './session-orchestrator.ts';
import { createSessionRecords } from './session-records.ts';
import { createSessionStates } from './session-state.ts';
import { createSessionSummaries, type SessionSummaries } from './session-summaries.ts';
import type { TurnLimits } from './turn-limits.ts';
import { createReplay, createTurnResumption } from './turn-resumption.ts';
import { createTurnRunner, type TurnRunnerOptions } from './turn-runner.ts';
import { createUpdateHub, type UpdateHub } from './update-hub.ts';
import { createLongTextReader, createUpdateLog, type SessionFence } from './update-log.ts';
import { createUpdateStream } from './update-stream.ts';
import type { WorkingDirectories } from './working-directory.ts';

/** What is known of a session from before. */
export interface SessionPast {
  readonly providerId: string;
  /** Whether its agent has a conversation, which a message can continue. */
  readonly hasConversation: boolean;
  readonly mcpServers: readonly ShownMcpServer[];
  /** What was asked, by turn. */
  readonly prompts: ReadonlyMap<string, string>;
}

export interface Sessions {
  readonly orchestrator: SessionOrchestrator;
  readonly hub: UpdateHub;
  readonly summaries: SessionSummaries;
  readonly conversations: Conversations;
  readonly serverBox: ServerBox;
  /** Stores what waits: what clients have seen can then be read. */
  flush(): Promise<void>;
  /** Undefined: no other bridge has taken that session, which runs here. Otherwise resolves when it is known whether one has. */
  doubt(owner: string, sessionId: string): Promise<unknown> | undefined;
  /** Undefined when the principal has no open session of that name. */
  past(principal: Principal, sessionId: string): Promise<SessionPast | undefined>;
  /** Takes no new turns. Those under way get most of the time that a drain has, then they are stopped like a cancelled turn. */
  settle(): Promise<void>;
  /** Ends turns, agents and everything that runs by itself; stores what is left to store. */
  stop(): Promise<void>;
}

export interface SessionsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly directories: WorkingDirectories;
  /** Undefined: working directories are not saved. */
  readonly checkpoints: Checkpoints | undefined;
  readonly worktrees: Worktrees;
  /** Makes another instance store what it has published of a session that is followed here. */
  flushElsewhere?: ((sessionKey: string) => Promise<void>) | undefined;
  /** Tells other instances that a turn has begun or ended, or that a session was closed. */
  tellOthers?: ((sessionKey: string) => void) | undefined;
  /** The id of this running bridge. */
  readonly instance: string;
  /** Its data directory, where others share the database. */
  readonly home?: string | undefined;
  readonly lease: Lease;
  readonly retention: Retention;
  /** What turns begin their traces with. Undefined: nobody collects traces. */
  readonly trace?: TurnRunnerOptions['trace'];
  readonly limits: TurnLimits;
  readonly permissions: TurnRunnerOptions['permissions'];
  readonly placeFiles: TurnRunnerOptions['placeFiles'];
  readonly secretBox: SecretBox;
  readonly withConfigured: TurnRunnerOptions['withConfigured'];
  route(request: RouteRequest): Promise<RoutingResolution>;
  agentFailed(providerId: string): void;
  readonly keepArtifacts: TurnRunnerOptions['keepArtifacts'];
  /** Removes what the turns of a session have produced; its links lead nowhere then. */
  removeArtifacts(sessionKey: string): Promise<void>;
  /** How long turns under way may go on during a drain. Undefined: 25 seconds. */
  readonly settleMs?: (() => number) | undefined;
  /** Where the private folders of sessions are, and how much they may hold. Undefined: they are not looked after. */
  readonly scratch: Pick<ScratchSpaceOptions, 'folder' | 'shelves' | 'maxBytes' | 'maxBytesOfOwner'> | undefined;
}

const SETTLE_PAUSE_MS = 500;
/** A little longer than the five seconds that an agent may take to be quiet. */
const CLEAR_UP_MS = 6_000;
/** Checkpoints are measured where they are saved. */
const UNLIMITED = { maxBytes: Number.POSITIVE_INFINITY, maxBytesOfOwner: Number.POSITIVE_INFINITY };
const MAX_TURNS_OF_THE_PAST = 10_000;
/** How long turns and forwarded calls may go on: of the 30 seconds of a drain an agent has five to be quiet. */
export const SETTLE_MS = 25_000;

/** Puts the parts of the session orchestrator together, and ends what an earlier run left open. */
export async function createSessions(options: SessionsOptions): Promise<Sessions> {
  const { database, providers, directories, checkpoints, instance, lease, clock, makeId, logger } = options;
  const sessions = createSessionStore(database);
  const turns = createTurnStore(database);
  const updates = createUpdateStore(database);
  const instances = createInstanceStore(database);
  const write = (statements: readonly Statement[]) => database.write(statements);
  const log = createUpdateLog({
    clock,
    write,
    fence: sessions.isShared ? createFence() : undefined,
    insertChunks: updates.insert,
    onLost: (count) => logger.error({ count }, 'updates of sessions could not be stored'),
  });
  const isSure = watchLosses(
    lease,
    // An agent that says nothing writes nothing, and would never find out that its session was taken.
    () => Promise.all([...table.all()].map(({ key, turns: own }) => own.length > 0 && log.storeOwn(key, []))),
    log.look,
  );
  lease.onOutage(() => {
    const turnsAtWork = [...table.all()].flatMap(({ turns: own }) => own);
    if (turnsAtWork.length > 0) logger.error({ turns: turnsAtWork.length }, 'turns stopped: no database');
    for (const turn of turnsAtWork) stopTurn(turn, 'interrupted');
  });
  const flush = (key: string) => Promise.all([log.flush(), options.flushElsewhere?.(key)]);
  const replay = createReplay(flush, updates);
  const hub = createUpdateHub(replay, clock);
  const hasBegunElsewhere = async ({ id, owner }: LiveSession) =>
    sessions.isShared && (await sessions.find(id, owner)) !== undefined;

  /** Work that nobody waits for, until the bridge stops. */
  const kept = new Set<Promise<unknown>>();
  function keep(work: Promise<unknown>): void {
    const noted = work
      .catch((error: unknown) => logger.error({ err: error }, 'clearing up after a session failed'))
      .finally(() => kept.delete(noted));
    kept.add(noted);
  }

  const { change } = createSessionStates(sessions, instance, options.home);
  const table = createSessionTable({
    store: sessions,
    clock,
    change,
    makeKey: () => makeId('ses_'),
    createStream: (key, lastSeq) =>
      createUpdateStream({
        lastSeq,
        publish(seq, text) {
          log.update(key, seq, text);
          hub.publish(key, seq, text);
        },
        hasRoom: log.hasRoom,
        whenRoom: log.whenRoom,
        receiversKeepUp: () => hub.room(key),
        reserve: (upTo) => log.storeOwn(key, [sessions.reserve(key, upTo)]),
      }),
    usedElsewhere: hub.usedElsewhere,
  });
  const audits = createAuditStore(database);
  const summaryStore = createSummaryStore(database);
  const summaries = createSessionSummaries(summaryStore, clock, options.tellOthers);
  const records = createSessionRecords({
    sessions,
    change,
    turns,
    audits,
    summaries,
    log,
    hub,
    instance,
    clock,
    makeId,
    write,
    insertUpdates: updates.insert,
    doubtOver: (session) => forgetUnbegun(session, table, hub),
    async readUpdate(key, seq) {
      const [chunk] = await updates.readAfter(key, seq - 1);
      return chunk?.updates.split('\n')[seq - chunk.first_seq];
    },
  });
  const scratch =
    options.scratch === undefined
      ? undefined
      : createScratchSpace({ ...options.scratch, clock, ownerOf: sessions.ownerOf });
  const readLongText = createLongTextReader(log, updates);
  const serverBox = createServerBox(options.secretBox);
  const runner = createTurnRunner({
    providers,
    trace: options.trace,
    records,
    directories,
    limits: options.limits,
    permissions: options.permissions,
    serverBox,
    withConfigured: options.withConfigured,
    checkpoints,
    worktrees: options.worktrees,
    placeFiles: options.placeFiles,
    route: options.route,
    agentFailed: options.agentFailed,
    keepArtifacts: options.keepArtifacts,
    readLongText,
    checkScratch: (owner: string) => scratch?.check(owner),
    keep,
    clock,
    logger,
  } satisfies Named<TurnRunnerOptions>);
  const orchestrator = createSessionOrchestrator({
    table,
    change,
    records,
    runner,
    hub,
    limits: options.limits,
    resumption: createTurnResumption({ turns, hub, replay, clock, hasBegunElsewhere }),
    clock,
    makeId,
    async discard(session: LiveSession) {
      const { key, providerId, reference, owner, workingDirectory } = session;
      const left = (what: string) => records.leftBehind(session, providerId, what);
      const closed = reference === '' ? undefined : providers.get(providerId)?.close(reference, { owner, left });
      const setAside = directories.setScratchAside(key);
      // The agent may write there until its conversation is closed.
      keep(Promise.resolve(closed).finally(async () => (await setAside)()));
      await setAside.catch(() => undefined);
      const worktree = isWorktreeOf(key, workingDirectory) ? removeWorktrees(key, closed) : undefined;
      await Promise.all([options.removeArtifacts(key), checkpoints?.remove(key), worktree]);
    },
  });

  /** The agent may write there until its conversation is closed. What cannot be removed now is removed by a later sweep. */
  async function removeWorktrees(key: string, closed: Promise<unknown> | undefined): Promise<void> {
    await closed?.catch(() => undefined);
    await options.worktrees
      .remove(key)
      .catch((error: unknown) => logger.warn({ err: error }, 'the worktree of a closed session was not removed'));
  }

  /** A session that another bridge has taken is stopped here, and its clients get what is stored. */
  function createFence(): SessionFence {
    return {
      mayShow: () => isSure(),
      statement(key) {
        const session = table.byKey(key);
        // One that is being closed counts as closed before that is stored.
        const isStored = session !== undefined && session.stored !== 'absent';
        return isStored ? sessions.fence(key, session.epoch) : undefined;
      },
      async isKept(key) {
        const session = table.byKey(key);
        const holder = await sessions.holderOf(key);
        // What takes the beginning of a turn back has come in between.
        if (session !== undefined && holder?.epoch === session.epoch) return true;
        if (session === undefined || holder?.instance !== instance) return false;
        // Otherwise it is on its way, and the row has the former epoch again afterwards.
        if (session.isDoubted) throw new AppError('STORAGE_UNAVAILABLE');
        change(session, { kind: 'kept', epoch: holder.epoch });
        return true;
      },
      onTaken(key) {
        const session = table.byKey(key);
        logger.warn({ sessionId: session?.id }, 'another bridge has ended the turn of a session and may use it now');
        session?.stream.abandon();
        for (const turn of session?.turns ?? []) stopTurn(turn, 'interrupted');
      },
    };
  }

  /** Where the store is ours alone, whatever another instance left open died with it. */
  async function settleDead(): Promise<void> {
    const judgedBy = lease.judgesUntil();
    if (judgedBy === undefined) return;
    const { deadAfterMs } = lease;
    const ended = (key: string) => {
      hub.catchUp(key);
      summaries.stored(key);
    };
    const dead = { deadAfterMs, judgedBy };
    const settled = await settleInterrupted({ turns, updates, instance, ...dead, now: clock.now(), ended });
    await instances.removeOthers(instance, deadAfterMs, judgedBy);
    if (settled > 0) logger.warn({ settled }, 'turns that died with their bridge were ended as interrupted');
  }
  await settleDead();

  const retention = createRetentionStore(database);
  const repeated = [
    repeat({
      clock,
      pauseMs: SWEEP_PAUSE_MS,
      work: (signal) =>
        sweepOldRecords({
          store: retention,
          retention: options.retention,
          clock,
          signal,
          expire: orchestrator.expire,
        }),
      onError: (error) => logger.warn({ err: error }, 'old records could not be deleted'),
    }),
  ];
  const saved =
    checkpoints === undefined
      ? undefined
      : createScratchSpace({ ...UNLIMITED, folder: checkpoints.folder, clock, ownerOf: sessions.ownerOf });
  repeated.push(...sweepFolders({ clock, logger, spaces: [scratch, saved], worktrees: options.worktrees, sessions }));
  if (sessions.isShared) {
    repeated.push(
      repeatAfterDeaths({
        clock,
        lease,
        pauseMs: SETTLE_PAUSE_MS,
        work: async () => {
          await records.concludeLeft();
          await settleDead();
        },
        onError: (error) => logger.warn({ err: error }, 'turns of dead bridges could not be ended'),
      }),
    );
  }

  return {
    orchestrator,
    hub,
    summaries,
    serverBox,
    conversations: createConversations({
      database,
      providers,
      directories,
      home: options.home,
      clock,
      makeId,
      serverBox,
      table,
      change,
      alone: orchestrator.alone,
      sessions,
      summaries: summaryStore,
      turns,
      records,
      ended: options.limits.ended,
      stored: summaries.stored,
    } satisfies Named<ConversationsOptions>),
    flush: log.flush,
    doubt(owner, sessionId) {
      const session = table.peek(owner, sessionId);
      if (session?.stream.isAbandoned()) return Promise.resolve();
      if (session === undefined || isSure()) return undefined;
      const checked = log.storeOwn(session.key, []);
      return log.flush().then(() => checked);
    },
    async past(principal, sessionId) {
      const session = await table.load(principal, sessionId);
      if (session?.stored !== 'open') return undefined;
      await log.flush();
      const asked = await turns.prompts(session.key, MAX_TURNS_OF_THE_PAST);
      const prompts = new Map(asked.map(({ id, prompt }) => [id, JSON.parse(prompt) as string]));
      const mcpServers = shownServers(serverBox.open(session.key, session.mcpServers));
      const hasConversation = session.reference !== '';
      return { providerId: session.providerId, hasConversation, mcpServers, prompts };
    },
    async settle() {
      await withinTime(clock, options.settleMs?.() ?? SETTLE_MS, orchestrator.settle(), () => orchestrator.interrupt());
    },
    async stop() {
      await Promise.all(repeated.map((one) => one.stop()));
      await orchestrator.interrupt();
      await withinTime(clock, CLEAR_UP_MS, Promise.all(kept), () => undefined);
      await Promise.allSettled([...providers.values()].map((provider) => provider.stop()));
      await checkpoints?.settle();
      await log.close();
    },
  };
}
