import { Type } from 'typebox';
import { type OpenFile, withFile } from './confined-file.ts';
import { isBinary, readLines } from './read-lines.ts';
import { defineTool, type ToolOutput } from './tool.ts';

const MAX_LINES = 2000;
const MAX_OUTPUT_CHARACTERS = 32 * 1024;
const MAX_LINE_CHARACTERS = 4000;
const MAX_SCANNED_BYTES = 64 * 1024 * 1024;

/** Reads a part of a text file; how to go on is told at the end. */
export const readFileTool = defineTool({
  name: 'read_file',
  description: `Reads a text file. At most ${MAX_LINES} lines or 32 KiB at a time; go on with start_line.`,
  parameters: Type.Object({
    path: Type.String({ minLength: 1, description: 'Path inside the working directory.' }),
    start_line: Type.Optional(Type.Integer({ minimum: 1, description: 'First line to read, from 1. Default 1.' })),
    line_count: Type.Optional(Type.Integer({ minimum: 1, description: `Lines to read. Default ${MAX_LINES}.` })),
  }),
  toolKind: 'read',
  needsPermission: false,
  title: ({ path }) => `Read ${path}`,
  run: ({ path, start_line: start = 1, line_count: count = MAX_LINES }, { root }) =>
    withFile(root, path, (file) => readPart(file, start, Math.min(count, MAX_LINES))),
});

async function readPart(file: OpenFile, start: number, count: number): Promise<ToolOutput> {
  const locations = [{ path: file.path, line: start }];
  if (await isBinary(file.handle)) return { text: `[binary file of ${file.size} bytes, not shown]`, locations };
  const shown: string[] = [];
  let characters = 0;
  let number = 0;
  let hasMore = false;
  const options = { maxLineCharacters: MAX_LINE_CHARACTERS, maxBytes: MAX_SCANNED_BYTES };
  for await (const { text, isCut } of readLines(file.handle, options)) {
    number += 1;
    if (number < start) continue;
    if (shown.length === count || characters + text.length > MAX_OUTPUT_CHARACTERS) {
      hasMore = true;
      break;
    }
    shown.push(isCut ? `${text} [line cut]` : text);
    characters += text.length + 1;
  }
  return { text: describePart({ file, shown, start, number, hasMore }), locations };
}

interface Part {
  readonly file: OpenFile;
  readonly shown: readonly string[];
  readonly start: number;
  /** The last line that was looked at. */
  readonly number: number;
  readonly hasMore: boolean;
}

function describePart({ file, shown, start, number, hasMore }: Part): string {
  const beyond = !hasMore && file.size > MAX_SCANNED_BYTES;
  if (shown.length === 0 && file.size === 0) return '[the file is empty]';
  if (shown.length === 0)
    return `[the file has ${beyond ? 'more than ' : ''}${number} lines; line ${start} is not shown]`;
  const text = shown.join('\n');
  if (hasMore) return `${text}\n[there is more: go on with start_line ${start + shown.length}]`;
  return beyond ? `${text}\n[what comes after ${MAX_SCANNED_BYTES} bytes cannot be read with this tool]` : text;
}
