import { type Static, type TSchema, Type } from 'typebox';
import type { ProcessOptions, RunningProcess } from '../../../../platform/child-process/start-process.ts';
import type { Clock } from '../../../../platform/clock/clock.ts';
import type { FileChange, PlanEntry } from '../../../contract/session-update.ts';
import type { ConfinedRoot } from './confinement.ts';

/** What a tool may use. Everything it does stays in `root`, except what a program does that it runs. */
export interface ToolContext {
  /** The working directory. */
  readonly root: ConfinedRoot;
  /** The files that came with the prompts of the session: they can be read, and not changed. */
  readonly files?: ConfinedRoot;
  /** Aborts when the turn is cancelled. */
  readonly signal: AbortSignal;
  /** A name that no file has yet. */
  makeTemporaryName(): string;
  readonly commands: CommandLimits;
  /** The commands in the background, of this conversation. */
  readonly background: ConversationCommands;
  /** Undefined: there is no network. */
  readonly web?: WebAccess | undefined;
}

export interface WebAccess {
  /** Connects to addresses only that the rules allow. */
  readonly fetch: typeof fetch;
  /** Hosts that may be reached: names, `*.example.com`, or `*` for all. */
  readonly hosts: readonly string[];
  /** Of this program. */
  readonly version: string;
}

export interface CommandLimits {
  /** Starts a program in a folder inside the working directory, in the sandbox where there is one. */
  start(options: ProcessOptions, folder: string): Promise<RunningProcess>;
  /** All of the environment of a program that is run. */
  readonly environment: Readonly<Record<string, string>>;
  readonly journalFolder: string | undefined;
  readonly timeoutMs: number;
  readonly clock: Pick<Clock, 'after'>;
}

/** The commands that run in the background for one conversation, and those whose end was not yet read. */
export interface ConversationCommands {
  /** Runs what `launch` starts until it ends, or is ended. Throws TOOL_CALL_REFUSED when too many run. */
  start(title: string, launch: () => Promise<RunningProcess>): Promise<BackgroundCommand>;
  find(id: number): BackgroundCommand | undefined;
  all(): readonly BackgroundCommand[];
}

export interface BackgroundCommand {
  /** By which the model knows it; from 1. */
  readonly id: number;
  readonly title: string;
  isRunning(): boolean;
  /** What it printed since it was read last, or with `all` as far as it is kept. */
  read(all: boolean): CommandReading;
  /** Resolves when there is something to read, when the command has ended, after `ms`, or when the signal aborts. */
  news(ms: number, signal: AbortSignal): Promise<void>;
  /** Ends it with all that it has started. */
  stop(): Promise<void>;
}

export interface CommandReading {
  /** For the model: that it runs, or how it ended. */
  readonly state: string;
  readonly output: string;
  /** Bytes of the output that are no longer kept. */
  readonly lost: number;
  /** The end of its standard error. */
  readonly errors: string;
  readonly exitCode?: number;
}

export interface ToolOutput {
  /** The text for the model. */
  readonly text: string;
  /** The tool ran, and it did not go well. */
  readonly failed?: boolean;
  readonly locations?: readonly { readonly path: string; readonly line?: number }[];
  /** What it has done to files. */
  readonly changes?: readonly FileChange[];
  /** The whole plan from now on, to be shown. */
  readonly plan?: readonly PlanEntry[];
  /** Of a program that has ended by itself. */
  readonly exitCode?: number;
}

export interface Tool<Parameters extends TSchema = TSchema> {
  readonly name: string;
  readonly description: string;
  readonly parameters: Parameters;
  /** What the model is shown instead, for a tool whose input is checked elsewhere. */
  readonly shownParameters?: TSchema;
  readonly toolKind: 'read' | 'search' | 'edit' | 'execute' | 'fetch' | 'think' | 'other';
  /** True for what changes something: `bridge.permissions` decides about it. */
  readonly needsPermission: boolean;
  /** Whether it runs at the same time as its neighbours; unless given, tools that need no permission do. */
  readonly isParallel?: boolean;
  title(input: Static<Parameters>): string;
  /** Throws TOOL_CALL_REFUSED, or an error of the file system, for what the model can fix. */
  run(input: Static<Parameters>, context: ToolContext): Promise<ToolOutput>;
}

/** Lets a tool take the type of its input from its schema. */
export function defineTool<Parameters extends TSchema>(tool: Tool<Parameters>): Tool {
  return tool as unknown as Tool;
}

const MAX_ENTRIES = 50;

/** Shows people what the model is going to do, and how far it is. It changes nothing else. */
export const updatePlanTool = defineTool({
  name: 'update_plan',
  description: `Shows the user your plan as a list. Use it for work of three steps or more, and send the whole list again whenever a step begins or is done. At most ${MAX_ENTRIES} steps.`,
  parameters: Type.Object({
    steps: Type.Array(
      Type.Object({
        content: Type.String({ minLength: 1, maxLength: 500, description: 'What is done in this step.' }),
        status: Type.Enum(['pending', 'in_progress', 'completed']),
        priority: Type.Optional(Type.Enum(['high', 'medium', 'low'])),
      }),
      { maxItems: MAX_ENTRIES },
    ),
  }),
  toolKind: 'think',
  needsPermission: false,
  title: ({ steps }) => `Plan, ${steps.filter(({ status }) => status === 'completed').length} of ${steps.length} done`,
  run: async ({ steps }) => ({
    text: 'The user sees the plan.',
    plan: steps.map(({ content, status, priority = 'medium' }) => ({ content, status, priority })),
  }),
});
