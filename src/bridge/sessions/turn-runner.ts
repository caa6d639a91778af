import { joinSignals } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentEvent, AgentProvider, AgentTurn, TurnEnd } from '../agents/agent-provider.ts';
import { MAX_OUTPUT_LENGTH } from '../agents/agent-text.ts';
import { superviseTurn } from '../agents/supervise-turn.ts';
import { type Artifacts, createProducedPaths, type LongOutput } from '../artifacts/create-artifacts.ts';
import type { Attachments } from '../attachments/create-attachments.ts';
import type { Checkpoints } from '../checkpoints/turn-checkpoints.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import { MULTI_AGENT_ID } from '../multi-agent/create-multi-agent.ts';
import { gatewayUnavailable, multiAgentRoute, type RouteRequest, wantsGateway } from '../routing/resolve-route.ts';
import type { Permissions } from '../workbench/permissions.ts';
import { placesForTurn, type Worktrees } from '../worktrees/create-worktrees.ts';
import { type LiveSession, type LiveTurn, taskOf } from './live-session.ts';
import type { ServerBox, WithConfigured } from './mcp-servers.ts';
import type { SessionRecords } from './session-records.ts';
import { placeOf, readChoices, waitsForLog } from './session-state.ts';
import { idsOf, type TurnLimits, takePlace } from './turn-limits.ts';
import {
  continuationLost,
  interruptedResult,
  type ResultBase,
  resultBase,
  resultOf,
  type TurnOutcome,
  unavailableResult,
} from './turn-outcome.ts';
import { createOutputTrace, type ReadLongText } from './update-log.ts';
import { eventUpdates, stageUpdate, startedUpdate, type UpdateOrigin } from './update-text.ts';
import type { WorkingDirectories } from './working-directory.ts';

/** Runs one turn of a session from its first check to its stored end. */
export interface TurnRunner {
  /** Resolves when the next turn may run; never rejects. */
  run(session: LiveSession, turn: LiveTurn): Promise<void>;
}

export interface TurnRunnerOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly trace?: AgentTurn['trace'] | undefined;
  readonly records: SessionRecords;
  readonly directories: WorkingDirectories;
  readonly limits: Pick<TurnLimits, 'ofAgent'>;
  readonly permissions: Pick<Permissions, 'forTurn' | 'checkServers'>;
  readonly serverBox: ServerBox;
  readonly withConfigured: WithConfigured;
  /** Undefined: working directories are not saved. */
  readonly checkpoints: Pick<Checkpoints, 'begin' | 'end' | 'drop'> | undefined;
  readonly worktrees: Pick<Worktrees, 'create' | 'placesOf' | 'noteWinner' | 'remove'>;
  readonly placeFiles: Attachments['place'];
  /** Who would do the work right now. May wait for a first look at the agents. */
  route(request: RouteRequest): Promise<RoutingResolution>;
  /** Called when an agent failed, because the program may have been removed. */
  agentFailed(providerId: string): void;
  /** Keeps what the turn has produced; never rejects. */
  readonly keepArtifacts: Artifacts['keep'];
  readonly readLongText: ReadLongText;
  /** Throws when the private folders of the owner hold too much. */
  checkScratch(owner: string): void;
  /** Keeps work that nobody waits for until the bridge stops. */
  keep(work: Promise<unknown>): void;
}

interface PreparedTurn {
  readonly provider: AgentProvider;
  readonly route: RoutingResolution;
  readonly workingDirectory: string;
  /** The working directory that the session keeps; empty: its scratch folder. */
  readonly ofSession: string;
  /** As those of `AgentTurn`. */
  readonly stepFolders: readonly string[] | undefined;
  readonly base: ResultBase;
}

export function createTurnRunner(options: TurnRunnerOptions): TurnRunner {
  const { providers, records, directories, clock, logger } = options;

  /** Everything that is checked at the last moment before an agent is asked. */
  async function prepare(session: LiveSession, turn: LiveTurn): Promise<PreparedTurn | TurnOutcome> {
    const { request } = turn;
    const { routing, prompt } = request;
    const continues = request.method === 'session.message';
    const origin = originOf(session, turn);
    const named = routing.explicitProviderId ?? '';
    const { providerId } = session;
    const isOpen = session.stored === 'open';
    if (continues && (!isOpen || session.reference === '')) {
      throw continuationLost(session.id, origin.threadId, isOpen ? providerId : named);
    }
    const isMultiAgent = runsSeveralAgents(session, turn);
    const route = isMultiAgent
      ? multiAgentRoute({ routing, prompt })
      : await options.route({ routing, prompt, continues, sessionAgent: isOpen ? providerId : '' });
    // Only the agent that has the conversation can continue it, and it is not replaced by another.
    const single = route.resolvedProviderId || route.resolvedGatewayProviderId;
    const worker = isMultiAgent ? MULTI_AGENT_ID : single;
    if (continues && !route.unavailable && worker !== providerId) {
      throw continuationLost(session.id, origin.threadId, providerId);
    }
    const provider = providers.get(worker);
    const base = resultBase(origin, route, '');
    if (turn.stopReason !== undefined) return stoppedOutcome(turn, base);
    if (route.unavailable || provider === undefined) return unavailableResult(base);
    // Before the folder is checked, because waiting may take long. The steps of a multi-agent run take places of their own.
    if (worker !== MULTI_AGENT_ID) {
      const gate = options.limits.ofAgent(worker);
      const ids = idsOf(request.principal);
      if (!(await takePlace(gate, ids, turn.stopping.signal, request.accepted))) return stoppedOutcome(turn, base);
      turn.leaveAgent = () => gate.leave(ids);
    }
    const folder = request.workingDirectory || (continues ? session.workingDirectory : '');
    if (folder === '') options.checkScratch(session.owner);
    const checked =
      folder === '' ? await directories.scratch(session.key) : await directories.check(folder, session.owner);
    const places = await placesForTurn(options.worktrees, session, turn, checked);
    const workingDirectory = places?.folder ?? checked;
    const ofSession = folder === '' ? '' : workingDirectory;
    options.permissions.checkServers(request.mcpServers, workingDirectory);
    if (turn.request.files.length > 0) await placeFiles(session, turn, workingDirectory);
    const place = { workingDirectory, ofSession, stepFolders: places?.steps };
    return { provider, route, ...place, base: resultBase(origin, route, workingDirectory) };
  }

  /** Puts the files of the prompt into the private folder of the session, whatever folder its agent works in. */
  async function placeFiles(session: LiveSession, turn: LiveTurn, workingDirectory: string): Promise<void> {
    const { files, uploader: owner } = turn.request;
    options.checkScratch(session.owner);
    const shelf = directories.shelfOf(session.key, session.owner, workingDirectory);
    const target = { owner, folder: await directories.scratch(session.key), shelf, turnId: turn.id };
    turn.placed = await options.placeFiles(target, files);
  }

  async function run(session: LiveSession, turn: LiveTurn): Promise<void> {
    try {
      const prepared = await prepare(session, turn).catch(toOutcome);
      const isReady = 'provider' in prepared;
      if (isReady) turn.request.accepted();
      const outcome = isReady ? await work(session, turn, prepared) : prepared;
      await records.conclude(session, turn, outcome);
      logEnd(session, turn, outcome);
    } catch (error) {
      await turn.beginning?.stored.catch(() => undefined);
      // That it waits is stored and was told, so it must end as well.
      const isTaken = errorCode(error) === 'SESSION_BUSY';
      if (turn.isStored && isTaken) await records.concludeTaken(session, turn, toOutcome(error));
      else turn.fail(error);
      // Another bridge has started the session: messages that wait for it here can be sent to that one.
      if (isTaken) for (const waiting of session.turns) if (!waiting.isStored) waiting.fail(error);
      const code = error instanceof AppError ? error.code : 'INTERNAL_ERROR';
      logEnd(session, turn, { failure: { code, details: {} } });
      if (turn.isStored && !isTaken) await records.conclude(session, turn, toOutcome(error));
    } finally {
      turn.leaveAgent?.();
    }
  }

  /** Logs one line for each turn. Prompts and outputs are not logged. */
  function logEnd(session: LiveSession, turn: LiveTurn, outcome: TurnOutcome): void {
    const isError = 'failure' in outcome;
    const line = {
      sessionId: session.id,
      turnId: turn.id,
      agent: session.providerId,
      status: isError ? 'failed' : outcome.status,
      durationMs: clock.now() - turn.createdAt,
      ...(isError
        ? { code: outcome.failure.code }
        : { code: outcome.code, usage: outcome.usage, costUsd: outcome.usage?.costUsd }),
    };
    if (line.status === 'completed' || line.status === 'cancelled') logger.info(line, 'turn ended');
    else logger.warn(line, 'turn ended');
  }

  async function work(session: LiveSession, turn: LiveTurn, prepared: PreparedTurn): Promise<TurnOutcome> {
    const { provider, base } = prepared;
    const origin = originOf(session, turn);
    const isStart = turn.request.method === 'session.start';
    const reference = isStart ? '' : session.reference;
    const before = placeOf(session);
    if (isStart) records.unchosen(session);
    const chosen = readChoices(session.choices);
    const mode = provider.modes?.find(({ id }) => id === chosen.mode);
    const permissions = turn.request.routing.permissions ?? mode?.permissions;
    const servers = isStart
      ? options.withConfigured(session.owner, turn.request.mcpServers)
      : options.serverBox.open(session.key, session.mcpServers);
    const mcpServers = isStart ? options.serverBox.seal(session.key, servers) : session.mcpServers;
    const { threadId } = origin;
    const place = { threadId, providerId: provider.id, reference, workingDirectory: prepared.ofSession, mcpServers };
    /** Aborts when the beginning could not be stored. Then no further updates of the turn are shown. */
    const unbegun = new AbortController();
    const beginning = records.begin(session, turn, base, place);
    const begun = beginning.stored.catch((error: unknown) => {
      session.stream.drop();
      unbegun.abort();
      throw errorCode(error) === 'STORAGE_CONFLICT' || errorCode(error) === 'STORAGE_DUPLICATE'
        ? new AppError('SESSION_BUSY', {}, { cause: error })
        : error;
    });
    // Awaited when the agent has ended.
    begun.catch(() => undefined);
    // Where no other bridge can take the session, the agent starts while the beginning is being stored.
    if (records.isShared || waitsForLog(session)) await begun;
    session.stream.emit(startedUpdate(origin, turn.request.prompt, turn.placed));
    let resolvedModel = '';
    let opened = '';
    const produced = createProducedPaths();
    const trace = createOutputTrace();
    const running = () => {
      if (!unbegun.signal.aborted) session.stream.emit(stageUpdate(origin, 'running', `${provider.id} is working.`));
    };
    const { signal, release } = joinSignals(turn.stopping.signal, unbegun.signal);
    // The agent starts while its folder is being saved, and gets its task when that is done.
    const isHere = prepared.ofSession !== '' && base.resolvedExecutionTarget !== 'gateway';
    const checkpoints = isHere ? options.checkpoints : undefined;
    const checkpoint = { sessionKey: session.key, turnId: turn.id, folder: prepared.workingDirectory };
    const ready = checkpoints?.begin(checkpoint, signal).then((text) => {
      if (text === '' || unbegun.signal.aborted) return;
      for (const update of eventUpdates(origin, { kind: 'status', text })) session.stream.emit(update);
    });
    const asking = options.permissions.forTurn({
      sessionKey: session.key,
      sessionId: session.id,
      owner: session.owner,
      turnId: turn.id,
      folder: prepared.workingDirectory,
      setting: permissions,
      editor: turn.request.ask,
    });
    const agentTurn: AgentTurn = {
      turnId: turn.id,
      ...(!isStart && { reference }),
      owner: session.owner,
      ...(turn.request.principal.member !== undefined && { member: turn.request.principal.member.id }),
      prompt: turn.request.prompt,
      ...(turn.placed.length > 0 && { files: turn.placed }),
      fileFolder: directories.filesOf(session.key),
      workingDirectory: prepared.workingDirectory,
      model: prepared.route.resolvedModel || chosen.model,
      ...(mode === undefined && chosen.mode !== '' && { mode: chosen.mode }),
      ...(chosen.thinking !== '' && { thinking: chosen.thinking }),
      ...(servers.length > 0 && { mcpServers: servers }),
      skills: prepared.route.resolvedSkills,
      ...(turn.request.plan === undefined ? {} : { plan: turn.request.plan }),
      ...(prepared.stepFolders !== undefined && { stepFolders: prepared.stepFolders }),
      won: (place) => options.keep(options.worktrees.noteWinner(session.key, place)),
      hop: turn.request.hop,
      ...(options.trace !== undefined && { trace: options.trace }),
      ...taskOf(turn.request),
      ...(ready !== undefined && { ready }),
      isReadOnly: permissions === 'deny',
      ask: asking.ask,
      asks: asking.asks,
      deniedPaths: asking.deniedPaths,
      usedModel(model) {
        resolvedModel = model;
      },
      leftBehind: (providerId, what) => records.leftBehind(session, providerId, what),
      offers(offers) {
        turn.offers = offers;
      },
      steerable(steer) {
        turn.steer = steer;
      },
      opened(changed) {
        const isFirst = opened === '' && isStart;
        opened = changed;
        if (unbegun.signal.aborted || session.reference === changed) return;
        records.opened(session, changed);
        if (isFirst) running();
      },
      report(event, step) {
        if (unbegun.signal.aborted) return undefined;
        const { stream } = session;
        // An agent that was asked to stop is not slowed down any more; what the store has no room for is dropped.
        const isStopping = signal.aborted;
        if (isStopping && !stream.hasRoom()) return undefined;
        trace.note(event, stream.lastSeq() + 1, step);
        for (const update of eventUpdates(step === undefined ? origin : { ...origin, ...step }, event)) {
          stream.emit(update);
        }
        produced.note(event);
        records.noted(session, event);
        if (event.kind === 'mode' && step === undefined) turn.mode = event.modeId;
        if (event.kind === 'permission') noteDecision(session, turn, step?.providerId ?? provider.id, event);
        return isStopping ? undefined : stream.room();
      },
    };
    if (!isStart) running();
    signal.addEventListener('abort', session.stream.giveRoom);
    const end = await superviseTurn({ provider, turn: agentTurn, signal, clock, keep: options.keep }).catch(toEnd);
    turn.steer = undefined;
    release();
    asking.end();
    await ready;
    try {
      // Otherwise it is stored together with the end.
      if (checkpoints !== undefined || !beginning.isWaiting()) await begun;
    } catch (error) {
      if (isStart && opened !== '') closeConversation(session, provider.id, opened);
      await checkpoints?.drop(checkpoint);
      if (isStart) options.keep(options.worktrees.remove(session.key));
      throw error;
    }
    if (checkpoints !== undefined) turn.changed = await checkpoints.end(checkpoint);
    // The session was started again, so its earlier conversation is closed.
    if (isStart && before.reference !== '') closeConversation(session, before.providerId, before.reference);
    const files = end.kind === 'lost' ? [] : (end.files ?? []);
    const from = {
      workingDirectory: prepared.workingDirectory,
      turnId: turn.id,
      owner: session.owner,
      sessionKey: session.key,
    };
    const outputs = trace.longTexts().map((text) => options.readLongText(session.key, text));
    if (outputs.length === 0) outputs.push(...longOutputOf(end));
    const artifacts = await options.keepArtifacts(from, produced.paths(), files, outputs);
    const truncated = outputs.length > 0 ? { truncated: true } : {};
    return outcomeOf(session, turn, { ...base, resolvedModel, artifacts: [...artifacts], ...truncated }, end);
  }

  function outcomeOf(session: LiveSession, turn: LiveTurn, base: ResultBase, end: TurnEnd): TurnOutcome {
    if (end.kind === 'lost') {
      const { id, threadId, providerId } = session;
      logger.warn({ sessionId: id, providerId, detail: end.detail.slice(0, 500) }, 'an agent has lost a session');
      return toOutcome(continuationLost(id, threadId, end.providerId ?? providerId));
    }
    if (end.kind === 'failed' && turn.stopReason === undefined) {
      options.agentFailed(session.providerId);
      if (end.code === 'GATEWAY_FAILED')
        return { failure: { code: end.code, details: { reason: end.error, ...end.members } } };
      if (end.code === 'GATEWAY_UNAVAILABLE') return unavailableResult({ ...base, ...gatewayUnavailable(end.error) });
    }
    if (end.kind === 'completed' || turn.stopReason === undefined) return resultOf(base, end);
    return { ...stoppedOutcome(turn, base, end.output), ...end.members };
  }

  /** Turns an error into an outcome. Unexpected errors are logged and become INTERNAL_ERROR. */
  function toOutcome(error: unknown): TurnOutcome {
    if (error instanceof AppError) return { failure: { code: error.code, details: error.details } };
    logger.error({ err: error }, 'a turn could not be prepared');
    return { failure: { code: 'INTERNAL_ERROR', details: {} } };
  }

  /** A fault of ours: the caller gets AGENT_FAILED without a reason, and the reason is logged. */
  function toEnd(error: unknown): TurnEnd {
    logger.error({ err: error }, 'an agent could not be run');
    return { kind: 'failed', code: 'AGENT_FAILED', error: 'The agent could not be run.', output: '' };
  }

  function closeConversation(session: LiveSession, providerId: string, reference: string): void {
    const left = (what: string) => records.leftBehind(session, providerId, what);
    const closed = providers.get(providerId)?.close(reference, { owner: session.owner, left });
    if (closed !== undefined) options.keep(closed);
  }

  function noteDecision(
    session: LiveSession,
    turn: LiveTurn,
    providerId: string,
    event: Extract<AgentEvent, { kind: 'permission' }>,
  ): void {
    const { title, decision, toolCallId, reason } = event;
    records.audit(session, turn, providerId, decision, { title, toolCallId, reason });
    logger.info({ sessionId: session.id, turnId: turn.id, providerId, decision, title }, 'permission answered');
  }

  return { run };
}

/**
 * Whether a turn is a multi-agent run: one that asks for it, or a message to a session of such runs that asks for no
 * other agent.
 */
export function runsSeveralAgents(session: LiveSession, { request }: LiveTurn): boolean {
  if (request.plan !== undefined) return true;
  const { routing, method } = request;
  if (method !== 'session.message' || session.providerId !== MULTI_AGENT_ID) return false;
  return !wantsGateway(routing) && (routing.explicitProviderId ?? '') === '';
}

/** Returns the names in the updates of a turn. The thread is the one that the caller gave, because apps drop updates with another one. */
export function originOf(session: LiveSession, turn: LiveTurn): UpdateOrigin {
  const { request } = turn;
  const ofSession = request.method === 'session.message' && session.stored === 'open' ? session.threadId : session.id;
  return { sessionId: session.id, threadId: request.threadId || ofSession, turnId: turn.id };
}

/** An output that is too long although none of the texts in it is, such as that of many agents at the same time. */
function longOutputOf(end: TurnEnd): LongOutput[] {
  if (end.kind === 'lost' || end.output.length <= MAX_OUTPUT_LENGTH) return [];
  return [{ label: 'output', chunks: [Buffer.from(end.output)] }];
}

function stoppedOutcome(turn: LiveTurn, base: ResultBase, output = ''): TurnOutcome {
  if (turn.stopReason === 'cancelled') return resultOf(base, { kind: 'cancelled', output });
  return interruptedResult(base, output, 'The bridge was stopped while the turn was open.');
}
