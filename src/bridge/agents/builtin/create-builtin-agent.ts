import { type Clock, joinSignals, pause, unlessAborted } from '../../../platform/clock/clock.ts';
import { errorCode } from '../../../platform/errors/app-error.ts';
import { describeError, isExpected } from '../../../platform/errors/error-table.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { Environment } from '../../../platform/runtime/runtime.ts';
import { bridgeErrors } from '../../errors.ts';
import type { BuiltinConversationStore } from '../../storage/builtin-conversation-store.ts';
import { type AgentFence, environmentFor } from '../agent-fence.ts';
import { createBuiltinProbe } from '../agent-probe.ts';
import type { AgentMode, AgentProvider, AgentTurn, SupervisedTurn, TurnEnd } from '../agent-provider.ts';
import { promptContent } from '../prompt-content.ts';
import type { AgentsToAsk } from './ask-agent.ts';
import { createBackgroundCommands } from './background-commands.ts';
import { type CompleteChat, type ConversationMessage, THINKING_LEVELS } from './complete-chat.ts';
import { promptMessage, repairConversation, type StoredMessage, withSummary } from './conversation.ts';
import type { McpTools } from './mcp-tools.ts';
import { runTurn } from './run-turn.ts';
import { describeSkills, type FolderInstructions, readRules } from './system-prompt.ts';
import type { Confine } from './tools/confinement.ts';
import { fetchUrlTool } from './tools/fetch-url.ts';
import { editFileTool, readFileTool, writeFileTool } from './tools/file-tools.ts';
import { readCommandTool, runCommandTool, startCommandTool, stopCommandTool } from './tools/run-command.ts';
import { findFilesTool, listFilesTool, searchFilesTool } from './tools/search-tools.ts';
import {
  type BackgroundCommand,
  type CommandLimits,
  type ConversationCommands,
  type Tool,
  updatePlanTool,
  type WebAccess,
} from './tools/tool.ts';

export interface BuiltinAgentOptions {
  /** Of this program. */
  readonly version: string;
  readonly complete: CompleteChat;
  /** For turns that name no model. */
  readonly model: string;
  /** Why that model cannot be used, and what to do; undefined when it can. */
  readonly modelProblem?: string | undefined;
  /** Whether a model takes images, as far as it is known; all do unless this says otherwise. */
  seesImages?(model: string): boolean;
  readonly store: BuiltinConversationStore;
  readonly clock: Clock;
  readonly makeId: MakeId;
  readonly permissions: 'allow' | 'deny';
  /** Opens working directories for the file tools. */
  readonly confine: Confine;
  /** Whether sessions of an owner may work in a folder: rules files are read as far up as that. */
  isOpenTo(folder: string, owner: string): Promise<boolean>;
  /** Of this program; the commands that the agent runs get the allowed part of it. */
  readonly environment: Environment;
  /** Starts the commands. */
  readonly fence: AgentFence;
  /** Where people have a home, without a sandbox. Undefined: everyone has that of this program. */
  readonly homes?: string;
  /** Where running commands are noted, to be swept after a crash. */
  readonly processJournal: string | undefined;
  readonly maxRequests: number;
  readonly contextCharacters: number;
  readonly commandTimeoutMs: number;
  /** How long a command in the background may run. */
  readonly backgroundTimeoutMs: number;
  /** The agents that its turns may ask, itself included. Absent: none. */
  agentsToAsk?(): AgentsToAsk;
  /** Undefined: pages of the web cannot be fetched. */
  readonly web?: WebAccess;
  /** Further tools, of other programs. */
  readonly mcp?: McpTools;
}

const MODES: readonly AgentMode[] = [
  { id: 'edit', name: 'Edit' },
  { id: 'ask', name: 'Ask before each change', permissions: 'ask' },
  { id: 'plan', name: 'Plan, and change nothing', permissions: 'deny' },
];

/** Within the time that clearing up has when the bridge stops. */
const FORGET_TRIES = 5;
const FORGET_PAUSE_MS = 1_000;
/** For what is said while the store is away. After this time the turn fails. */
const MAX_AWAY_MS = 60_000;
const AWAY_PAUSE_MS = 500;

/** Our own agent, in this process: a model, a few tools, and a conversation that is kept in the database. */
export function createBuiltinAgent(options: BuiltinAgentOptions): AgentProvider {
  const { store, clock, makeId, version } = options;
  const stopped = new AbortController();
  const running = createBackgroundCommands({ clock, timeoutMs: options.backgroundTimeoutMs, isKept: store.has });
  const commandsOf = async ({ owner, member, workingDirectory: folder }: AgentTurn): Promise<CommandLimits> => ({
    start: (program, startIn) =>
      options.fence.start(program, { owner, member, agent: 'builtin', folder, startIn, isCallers: true }),
    environment: await environmentFor(options.environment, options.fence, { owner, agent: 'builtin' }, options.homes),
    journalFolder: options.processJournal,
    timeoutMs: options.commandTimeoutMs,
    clock,
  });

  /** Work that no turn waits for any more. */
  const late = new Set<Promise<unknown>>();
  function keep(work: Promise<unknown>): void {
    const kept: Promise<unknown> = work.catch(() => undefined).finally(() => late.delete(kept));
    late.add(kept);
  }

  /** Waits while the store is away, because an outage ends no turn. */
  async function untilStored(append: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const since = clock.monotonic();
    for (let tries = 0; ; tries += 1) {
      try {
        return await append();
      } catch (error) {
        const code = errorCode(error);
        // An earlier try was stored, and its answer was lost.
        if (tries > 0 && code === 'STORAGE_DUPLICATE') return;
        const isOver = signal.aborted || clock.monotonic() - since >= MAX_AWAY_MS;
        if ((code !== 'STORAGE_UNAVAILABLE' && code !== 'OVERLOADED') || isOver) throw error;
      }
      await pause(clock, AWAY_PAUSE_MS, signal);
    }
  }

  /** `position`: where the prompt of this turn goes. */
  async function converse(
    reference: string,
    turn: SupervisedTurn,
    before: readonly ConversationMessage[],
    position: number,
    signal: AbortSignal,
  ): Promise<TurnEnd> {
    let next = position;
    const append = async (messages: readonly StoredMessage[]): Promise<void> => {
      const first = next;
      next += messages.length;
      const bodies = messages.map((message) => JSON.stringify(message));
      const of = { turnId: turn.turnId, now: clock.now() };
      await untilStored(() => store.append(reference, first, bodies, of), signal);
    };
    const model = turn.model === '' ? options.model : turn.model;
    const seesImages = options.seesImages?.(model) ?? true;
    // At the same time as the prompt is stored. A failure counts where something is read.
    const denied = turn.deniedPaths?.(['read'], turn.workingDirectory);
    denied?.catch(() => undefined);
    const content = await promptContent(turn.prompt, turn.files, { images: seesImages, texts: true });
    const prompt = promptMessage(content);
    try {
      await append([prompt]);
    } catch (error) {
      // It may have been stored anyway, in a conversation that would never be closed.
      if (position === 0) await store.remove(reference).catch(() => undefined);
      throw error;
    }
    // Only now: a reference that is kept must be one that can be continued.
    if (position === 0) turn.opened(reference);
    // A server that does not start must not hold up a turn that is to stop.
    const permissions = turn.isReadOnly === true ? 'deny' : options.permissions;
    // Their tools need permission: where all is denied, the programs of the session are not started.
    const own = permissions === 'deny' ? [] : turn.mcpServers;
    const finding = Promise.resolve(options.mcp?.find(turn, turn.workingDirectory, own));
    const further = await unlessAborted(finding, signal);
    // One that is found only after the turn was stopped is released then.
    if (further === undefined) void finding.then((found) => found?.release());
    try {
      for (const text of [...content.notes, ...(further?.problems ?? [])]) turn.report({ kind: 'status', text });
      turn.usedModel(model);
      const { isOpenTo } = options;
      const confine: Confine = (path) => ({ ...options.confine(path), ...(denied && { denials: () => denied }) });
      const isOpen = (folder: string) => isOpenTo(folder, turn.owner);
      const instructions: FolderInstructions = {
        rules: await readRules(turn.workingDirectory, { confine, isOpen }),
        skills: await describeSkills(confine(turn.workingDirectory), turn.skills),
      };
      const background = running.of(reference, turn);
      const end = await runTurn({
        ...options,
        permissions,
        turn,
        signal,
        commands: await commandsOf(turn),
        background,
        asking: options.agentsToAsk && { agents: options.agentsToAsk(), clock, keep },
        tools: [...ownTools(permissions, background, options.web), ...(further?.tools ?? [])],
        append,
        describe,
        model,
        seesImages,
        instructions,
        messages: [...before, prompt],
      });
      const left = background.all().filter((one) => one.isRunning());
      if (left.length > 0)
        turn.report({ kind: 'status', text: `In the background ${left.map(shownCommand).join(', ')}.` });
      return end;
    } finally {
      further?.release();
    }
  }

  /** The conversation is deleted with its session, and its commands end. A failed delete is tried again, because the store may be unavailable for a moment. */
  async function forget(reference: string): Promise<void> {
    await running.end(reference);
    for (let tries = 1; ; tries += 1) {
      try {
        await store.remove(reference);
        return;
      } catch (error) {
        if (tries === FORGET_TRIES) throw error;
      }
      await pause(clock, FORGET_PAUSE_MS, stopped.signal);
    }
  }

  return {
    id: 'builtin',
    modes: MODES,
    thinking: THINKING_LEVELS,
    abilities: { steer: 'yes', fork: 'yes', forkFrom: 'any_turn' },
    probe: createBuiltinProbe(version, options.model, options.modelProblem),
    async run(turn, asked) {
      const { signal, release } = joinSignals(asked, stopped.signal);
      try {
        const { reference } = turn;
        if (reference === undefined) return await converse(makeId('conversation-'), turn, [], 0, signal);
        const kept = await store.read(reference);
        if (kept === undefined) return { kind: 'lost', detail: 'the built-in agent no longer has the conversation' };
        const stored = kept.bodies.map((body) => JSON.parse(body) as StoredMessage);
        const messages = repairConversation(withSummary(stored));
        return await converse(reference, turn, messages, kept.nextPosition, signal);
      } finally {
        release();
      }
    },
    async fork(reference, { turnId }) {
      const copy = makeId('conversation-');
      if (await store.copy(reference, copy, turnId)) return { reference: copy };
      return { why: 'the built-in agent does not have the conversation, or not that turn of it' };
    },
    close: forget,
    endWhere(isMeant) {
      running.endWhere(isMeant);
      options.mcp?.endWhere(isMeant);
    },
    async stop() {
      stopped.abort();
      await Promise.all([running.stop(), options.mcp?.stop(), ...late]);
    },
  };
}

function describe(error: unknown): string {
  if (!isExpected(bridgeErrors, error)) throw error;
  return describeError(bridgeErrors, error).message;
}

/** What is of use: without hosts nothing can be fetched, and where nothing can be started, commands are offered only while some are there. */
function ownTools(permissions: 'allow' | 'deny', background: ConversationCommands, web: WebAccess | undefined) {
  const hasCommands = permissions === 'allow' || background.all().length > 0;
  const left: readonly Tool[] = [
    ...(hasCommands ? [] : [readCommandTool, stopCommandTool]),
    ...(web === undefined || web.hosts.length === 0 ? [fetchUrlTool] : []),
  ];
  return toolTable.filter((tool) => !left.includes(tool));
}

/** For people. */
function shownCommand({ id, title }: BackgroundCommand): string {
  return `command ${id} is still running: ${title.slice(0, 100)}`;
}

/** All that the built-in agent can do. */
export const toolTable: readonly Tool[] = [
  readFileTool,
  listFilesTool,
  findFilesTool,
  searchFilesTool,
  editFileTool,
  writeFileTool,
  runCommandTool,
  startCommandTool,
  readCommandTool,
  stopCommandTool,
  fetchUrlTool,
  updatePlanTool,
];
