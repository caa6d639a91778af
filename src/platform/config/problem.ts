/** One thing that is wrong with the configuration, and how to mend it. Never holds the value of a secret. */
export interface Problem {
  /** `trestle.yaml:12:3`, `environment variable NAME` or `flag --name`. */
  readonly where: string;
  /** The setting's path, such as `log.level`; empty when it is about the file as a whole. */
  readonly path: string;
  readonly wrong: string;
  readonly right: string;
}

/** A problem that shows only when several settings are looked at together. */
export interface Complaint {
  readonly path: string;
  readonly wrong: string;
  readonly right: string;
  /** Further settings that the judgement rests on: while one of them cannot be read, nothing is said. */
  readonly involves?: readonly string[];
}

/** One line. */
export function formatProblem({ where, path, wrong, right }: Problem): string {
  const what = right === '' ? wrong : `${wrong}; ${right}`;
  return path === '' ? `${where}: ${what}` : `${where}: ${path}: ${what}`;
}

/** Thrown when the configuration cannot be used. Carries every problem at once. */
export class ConfigurationError extends Error {
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];

  constructor(problems: readonly Problem[], warnings: readonly string[] = []) {
    super(problems.map(formatProblem).join('\n'));
    this.name = 'ConfigurationError';
    this.problems = problems;
    this.warnings = warnings;
  }
}
