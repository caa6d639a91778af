import type { Complaint } from './problem.ts';
import type { Setting } from './setting-annotation.ts';

/** All that a program says about its settings. */
export interface SettingsDeclaration<T> {
  readonly schema: Setting<T>;
  /** What a derived variable starts with: `NAME_` makes `log.level` NAME_LOG_LEVEL. */
  readonly environmentPrefix: string;
  /** The variable that names the file. */
  readonly fileVariable: string;
  /** Looked for in the working directory when nobody names a file. */
  readonly fileName: string;
  /** Variables with the prefix that are no settings. */
  readonly otherVariables: readonly string[];
  /** What must hold between settings. */
  check(settings: T): readonly Complaint[];
}
