import { childEnvironment } from '../../../platform/child-process/child-environment.ts';
import { type Clock, pause, withinTime } from '../../../platform/clock/clock.ts';
import { describeError, isExpected } from '../../../platform/errors/error-table.ts';
import type { MakeId } from '../../../platform/ids/sortable-id.ts';
import type { Environment } from '../../../platform/runtime/runtime.ts';
import { bridgeErrors } from '../../errors.ts';
import { OPERATOR } from '../../principal.ts';
import type { BuiltinConversationStore } from '../../storage/builtin-conversation-store.ts';
import { createBuiltinProbe } from '../agent-probe.ts';
import type { AgentProvider, AgentTurn, TurnEnd } from '../agent-provider.ts';
import type { CompleteChat, ConversationMessage } from './complete-chat.ts';
import { repairConversation } from './conversation.ts';
import type { McpTools } from './mcp-tools.ts';
import { runTurn } from './run-turn.ts';
import { describeSkills } from './skills.ts';
import type { Confine } from './tools/confinement.ts';
import { editFileTool, readFileTool, writeFileTool } from './tools/file-tools.ts';
import { runCommandTool } from './tools/run-command.ts';
import { listFilesTool, searchFilesTool } from './tools/search-tools.ts';
import type { Tool } from './tools/tool.ts';

export interface BuiltinAgentOptions {
  /** Of this program. */
  readonly version: string;
  readonly complete: CompleteChat;
  /** For turns that name no model. */
  readonly model: string;
  /** Why that model cannot be used, and what to do; undefined when it can. */
  readonly modelProblem?: string | undefined;
  readonly store: BuiltinConversationStore;
  readonly clock: Pick<Clock, 'after' | 'now'>;
  readonly makeId: MakeId;
  readonly permissions: 'allow' | 'deny';
  /** Opens working directories for the file tools. */
  readonly confine: Confine;
  /** Of this program; the commands that the agent runs get the allowed part of it. */
  readonly environment: Environment;
  /** Where running commands are noted, to be swept after a crash. */
  readonly processJournal: string | undefined;
  readonly maxRequests: number;
  readonly contextCharacters: number;
  readonly commandTimeoutMs: number;
  /** Further tools, of other programs. */
  readonly mcp?: McpTools;
}

interface RunningTurn {
  readonly reference: string;
  readonly aborter: AbortController;
  readonly ended: Promise<unknown>;
}

const QUIET_WITHIN_MS = 5_000;
/** Within the time that clearing up has when the bridge stops. */
const FORGET_TRIES = 5;
const FORGET_PAUSE_MS = 1_000;

/** Our own agent, in this process: a model, a few tools, and a conversation that is kept in the database. */
export function createBuiltinAgent(options: BuiltinAgentOptions): AgentProvider {
  const { store, clock, makeId, version } = options;
  const running = new Map<string, RunningTurn>();
  const stopped = new AbortController();
  const commandsOf = (owner: string) => ({
    environment: childEnvironment(options.environment, {}, { isOperators: owner === OPERATOR }),
    journalFolder: options.processJournal,
    timeoutMs: options.commandTimeoutMs,
    clock,
  });

  async function run(reference: string, turn: AgentTurn, work: (signal: AbortSignal) => Promise<TurnEnd>) {
    const aborter = new AbortController();
    if (stopped.signal.aborted) aborter.abort();
    const outcome = work(aborter.signal);
    running.set(turn.turnId, { reference, aborter, ended: outcome.catch(() => undefined) });
    try {
      return await outcome;
    } finally {
      running.delete(turn.turnId);
    }
  }

  /** `position`: where the prompt of this turn goes. */
  async function converse(
    reference: string,
    turn: AgentTurn,
    before: readonly ConversationMessage[],
    position: number,
    signal: AbortSignal,
  ): Promise<TurnEnd> {
    let next = position;
    const append = async (messages: readonly ConversationMessage[]): Promise<void> => {
      const first = next;
      next += messages.length;
      await store.append(
        reference,
        first,
        messages.map((message) => JSON.stringify(message)),
        clock.now(),
      );
    };
    const prompt: ConversationMessage = { role: 'user', content: turn.prompt };
    try {
      await append([prompt]);
    } catch (error) {
      // It may have been stored anyway, in a conversation that would never be closed.
      if (position === 0) await store.remove(reference).catch(() => undefined);
      throw error;
    }
    // Only now: a reference that is kept must be one that can be continued.
    if (position === 0) turn.opened(reference);
    const further = await orAborted(options.mcp?.find(), signal);
    for (const text of further?.problems ?? []) turn.report({ kind: 'status', text });
    const model = turn.model === '' ? options.model : turn.model;
    turn.usedModel(model);
    const skills = await describeSkills(options.confine(turn.workingDirectory), turn.skills);
    return runTurn({
      ...options,
      turn,
      signal,
      commands: commandsOf(turn.owner),
      tools: [...toolTable, ...(further?.tools ?? [])],
      append,
      describe,
      model,
      skills,
      messages: [...before, prompt],
    });
  }

  /** What was said goes with the session: the store gets another chance when it is away for a moment. */
  async function forget(reference: string): Promise<void> {
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

  async function cancelAll(turns: readonly RunningTurn[]): Promise<void> {
    for (const { aborter } of turns) aborter.abort();
    await withinTime(clock, QUIET_WITHIN_MS, Promise.all(turns.map(({ ended }) => ended)), () => undefined);
  }

  return {
    id: 'builtin',
    probe: createBuiltinProbe(version, options.model, options.modelProblem),
    startTurn(turn) {
      const reference = makeId('conversation-');
      return run(reference, turn, (signal) => converse(reference, turn, [], 0, signal));
    },
    continueTurn: (reference, turn) =>
      run(reference, turn, async (signal) => {
        const kept = await store.read(reference);
        if (kept === undefined) return { kind: 'lost', detail: 'the built-in agent no longer has the conversation' };
        const messages = repairConversation(kept.bodies.map((body) => JSON.parse(body) as ConversationMessage));
        return converse(reference, turn, messages, kept.nextPosition, signal);
      }),
    cancel(turnId) {
      const turn = running.get(turnId);
      return turn === undefined ? Promise.resolve() : cancelAll([turn]);
    },
    async close(reference) {
      await cancelAll([...running.values()].filter((turn) => turn.reference === reference));
      await forget(reference);
    },
    async stop() {
      stopped.abort();
      await cancelAll([...running.values()]);
      await options.mcp?.stop();
    },
  };
}

/** A server that does not start must not hold up a turn that was cancelled. */
function orAborted<Found>(found: Promise<Found> | undefined, signal: AbortSignal): Promise<Found | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>();
  signal.addEventListener('abort', () => resolve(undefined), { once: true });
  return signal.aborted ? Promise.resolve(undefined) : Promise.race([found, aborted]);
}

function describe(error: unknown): string {
  if (!isExpected(bridgeErrors, error)) throw error;
  return describeError(bridgeErrors, error).message;
}

/** All that the built-in agent can do. */
export const toolTable: readonly Tool[] = [
  readFileTool,
  listFilesTool,
  searchFilesTool,
  editFileTool,
  writeFileTool,
  runCommandTool,
];
