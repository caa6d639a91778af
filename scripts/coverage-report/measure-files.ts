import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { codeLines } from './code-lines.ts';
import { readLcov } from './read-lcov.ts';

/** How much of a file, or of several, the tests reached. */
export interface Reach {
  readonly lines: number;
  readonly linesReached: number;
  readonly branches: number;
  readonly branchesReached: number;
}

export interface FileReach extends Reach {
  readonly path: string;
  readonly missedLines: readonly number[];
  /** A file that no test loads counts with all its lines; how many branches it has nobody knows. */
  readonly loaded: boolean;
}

/** Every source file that holds code, whether a test loads it or not. */
export function measureFiles(root: string, lcov: string): readonly FileReach[] {
  const covered = new Map(readLcov(lcov).map((file) => [file.path, file]));
  const paths = globSync('src/**/*.{ts,js}', { cwd: root }).filter((path) => !path.endsWith('.d.ts'));
  return paths.sort().flatMap((path) => {
    const code = codeLines(readFileSync(join(root, path), 'utf8'));
    if (code.length === 0) return [];
    const found = covered.get(path);
    const missedLines = code.filter((line) => (found?.lines.get(line) ?? 0) === 0);
    return {
      path,
      missedLines,
      loaded: found !== undefined,
      lines: code.length,
      linesReached: code.length - missedLines.length,
      branches: found?.branches ?? 0,
      branchesReached: found?.branchesReached ?? 0,
    };
  });
}
