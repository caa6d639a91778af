import type { Static, TSchema } from 'typebox';
import type { Clock } from '../../../../platform/clock/clock.ts';
import type { ConfinedRoot } from './confinement.ts';

/** What a tool may use. Everything it does stays in `root`, except what a program does that it runs. */
export interface ToolContext {
  /** The working directory. */
  readonly root: ConfinedRoot;
  /** Aborts when the turn is cancelled. */
  readonly signal: AbortSignal;
  /** A name that no file has yet. */
  makeTemporaryName(): string;
  readonly commands: CommandLimits;
}

export interface CommandLimits {
  /** All of the environment of a program that is run. */
  readonly environment: Readonly<Record<string, string>>;
  readonly journalFolder: string | undefined;
  readonly timeoutMs: number;
  readonly clock: Pick<Clock, 'after'>;
}

export interface ToolOutput {
  /** The text for the model. */
  readonly text: string;
  /** The tool ran, and it did not go well. */
  readonly failed?: boolean;
  readonly locations?: readonly { readonly path: string; readonly line?: number }[];
}

export interface Tool<Parameters extends TSchema = TSchema> {
  readonly name: string;
  readonly description: string;
  readonly parameters: Parameters;
  /** What the model is shown instead, for a tool whose input is checked elsewhere. */
  readonly shownParameters?: TSchema;
  readonly toolKind: 'read' | 'search' | 'edit' | 'execute';
  /** True for what changes something: `bridge.permissions` decides about it. */
  readonly needsPermission: boolean;
  title(input: Static<Parameters>): string;
  /** Throws TOOL_CALL_REFUSED, or an error of the file system, for what the model can mend. */
  run(input: Static<Parameters>, context: ToolContext): Promise<ToolOutput>;
}

/** Lets a tool take the type of its input from its schema. */
export function defineTool<Parameters extends TSchema>(tool: Tool<Parameters>): Tool {
  return tool as unknown as Tool;
}
