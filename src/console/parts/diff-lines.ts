import { createTwoFilesPatch, parsePatch, structuredPatch } from 'diff';
import type { ToolCall } from '../live/fold-updates.ts';

export type FileChange = NonNullable<ToolCall['changes']>[number];

export interface Line {
  readonly sign: '+' | '-' | ' ';
  readonly text: string;
  readonly oldLine: number | undefined;
  readonly newLine: number | undefined;
}

/** Two lines side by side. Undefined: the other side has a line more. */
export interface LinePair {
  readonly before: Line | undefined;
  readonly after: Line | undefined;
}

const CONTEXT = 3;

/** The lines of a change, from the two texts or from the diff of the agent. */
export function linesOf(change: Pick<FileChange, 'path' | 'oldText' | 'newText' | 'unified'>): readonly Line[] {
  const { path, oldText = '', newText = '', unified } = change;
  const hunks =
    unified === undefined
      ? structuredPatch(path, path, oldText, newText, undefined, undefined, { context: CONTEXT }).hunks
      : (readPatch(unified) ?? []);
  return hunks.flatMap(({ oldStart, newStart, lines }) => {
    let [oldLine, newLine] = [oldStart, newStart];
    return lines.flatMap((line): Line[] => {
      const text = line.slice(1);
      if (line.startsWith('+')) return [{ sign: '+', text, oldLine: undefined, newLine: newLine++ }];
      if (line.startsWith('-')) return [{ sign: '-', text, oldLine: oldLine++, newLine: undefined }];
      if (line.startsWith('\\')) return [];
      return [{ sign: ' ', text, oldLine: oldLine++, newLine: newLine++ }];
    });
  });
}

/** Puts removed lines beside the added ones that follow them. */
export function pairsOf(lines: readonly Line[]): readonly LinePair[] {
  const pairs: { before: Line | undefined; after: Line | undefined }[] = [];
  /** The first pair whose right side is free. */
  let free = 0;
  for (const line of lines) {
    if (line.sign === '-') pairs.push({ before: line, after: undefined });
    else if (line.sign === '+') {
      const open = pairs[free];
      if (open === undefined) pairs.push({ before: undefined, after: line });
      else open.after = line;
      free += 1;
    } else {
      pairs.push({ before: line, after: line });
      free = pairs.length;
    }
  }
  return pairs;
}

/** The old and the new text of each part of a diff. Both have the lines that are the same. */
export function sidesOf(lines: readonly Line[]): readonly (readonly Line[])[] {
  const sides: Line[][] = [];
  /** The numbers that the next line of this part has, as far as they are known. */
  let next: { oldLine?: number | undefined; newLine?: number | undefined } = {};
  const fits = (number: number | undefined, expected: number | undefined) =>
    number === undefined || expected === undefined || number === expected;
  for (const line of lines) {
    const isApart = !fits(line.oldLine, next.oldLine) || !fits(line.newLine, next.newLine);
    if (isApart || sides.length === 0) {
      sides.push([], []);
      next = {};
    }
    if (line.sign !== '+') sides.at(-2)?.push(line);
    if (line.sign !== '-') sides.at(-1)?.push(line);
    if (line.oldLine !== undefined) next.oldLine = line.oldLine + 1;
    if (line.newLine !== undefined) next.newLine = line.newLine + 1;
  }
  return sides;
}

/** A change as `git apply` and `patch -p1` take it. */
export function patchOf({ path, oldText = '', newText = '', unified }: FileChange): string {
  return unified ?? createTwoFilesPatch(`a/${path}`, `b/${path}`, oldText, newText);
}

function readPatch(unified: string) {
  try {
    return parsePatch(unified).flatMap(({ hunks }) => hunks);
  } catch {
    return undefined;
  }
}
