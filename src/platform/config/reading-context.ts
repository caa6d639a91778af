import type { Environment } from './environment-reference.ts';
import type { Problem } from './problem.ts';
import type { Folders } from './setting-annotation.ts';
import type { Position } from './value-tree.ts';

/** Where a value comes from, and what to call about it. */
export interface ReadingContext extends Folders {
  /** How this place is named in a problem. */
  where(at: Position): string;
  /** Given for files: `${env:NAME}` is replaced from it. */
  readonly environment: Environment | undefined;
  /** Variables and flags: numbers and truth values come as text. */
  readonly textual: boolean;
  /** What is read came through a `${env:NAME}`, so that no part of it is shown in a problem. */
  readonly concealed: boolean;
  report(problem: Problem): void;
  /** Called for every value that was written down. */
  note(path: string, where: string): void;
  /** Called for every secret that stands in the text itself. */
  noteClearSecret(path: string): void;
  /** Called for every value that is empty because its `${env:NAME}` is not set. */
  noteUnset(path: string, variable: string): void;
}

/** Stands for a value that could not be read; what was wrong has been reported. */
export const UNREADABLE = Symbol('unreadable');
