/** One thing that is wrong with the configuration, and how to fix it. Never holds the value of a secret. */
export interface Problem {
  /** `trestle.yaml:12:3`, `environment variable NAME` or `flag --name`. */
  readonly where: string;
  /** The setting's path, such as `log.level`; empty when it is about the file as a whole. */
  readonly path: string;
  readonly wrong: string;
  readonly right: string;
}

/** Where something stands in a text, counted from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** A problem before its place is put into words: a position in the file, or the words themselves. */
export interface Finding<At = Position | string> extends Omit<Problem, 'where'> {
  readonly at: At;
}

/** A problem that shows only when several settings are looked at together. */
export interface Complaint extends Omit<Problem, 'where'> {
  /** Other settings that the check reads: the complaint is omitted while one of them cannot be read. */
  readonly involves?: readonly string[];
}

/** One line. */
export function formatProblem({ where, path, wrong, right }: Problem): string {
  const what = right === '' ? wrong : `${wrong}; ${right}`;
  return path === '' ? `${where}: ${what}` : `${where}: ${path}: ${what}`;
}

/** Thrown when the configuration cannot be used. Carries every problem. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];

  constructor(problems: readonly Problem[], warnings: readonly string[] = []) {
    super(problems.map(formatProblem).join('\n'));
    this.problems = problems;
    this.warnings = warnings;
  }
}

const MAX_NAME_CHARACTERS = 80;

/** The candidate that a mistyped name most likely meant; undefined when none is near. */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  if (name.length > MAX_NAME_CHARACTERS) return undefined;
  const wanted = comparable(name);
  const most = Math.min(3, Math.max(1, Math.floor(wanted.length / 3)));
  const near = [...candidates].filter((other) => Math.abs(comparable(other).length - wanted.length) <= most);
  const ranked = near.map((other) => ({ other, distance: editDistance(wanted, comparable(other)) }));
  const [best] = ranked.sort((one, two) => one.distance - two.distance);
  return best !== undefined && best.distance <= most ? best.other : undefined;
}

/** `dataDir`, `data-dir` and `DATA_DIR` are spelling habits, not mistakes to be counted letter by letter. */
function comparable(name: string): string {
  const words = name.replaceAll(/([a-z\d])([A-Z])/g, '$1_$2');
  return words.replaceAll('-', '_').toLowerCase();
}

/** Insertions, deletions, replacements and swaps of neighbours that make one text of the other. */
function editDistance(from: string, to: string): number {
  const rows = [Array.from({ length: to.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number): number => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let row = 1; row <= from.length; row += 1) {
    rows[row] = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const replaced = at(row - 1, column - 1) + (from[row - 1] === to[column - 1] ? 0 : 1);
      const swapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      const swap = swapped ? at(row - 2, column - 2) + 1 : replaced;
      rows[row]?.push(Math.min(at(row - 1, column) + 1, at(row, column - 1) + 1, replaced, swap));
    }
  }
  return at(from.length, to.length);
}
