import { isUtf8 } from 'node:buffer';
import type { FileHandle } from 'node:fs/promises';
import { StringDecoder } from 'node:string_decoder';
import { Type } from 'typebox';
import { changeOfTexts, withinChangeBounds } from '../../file-changes.ts';
import { type OpenFile, refuse, replaceFile, withFile } from './confinement.ts';
import { defineTool, type ToolOutput } from './tool.ts';

interface Line {
  readonly text: string;
  /** The line is longer than what is given of it. */
  readonly isCut: boolean;
}

interface ReadLinesOptions {
  /** What is longer is cut off; it never stands in memory as a whole. */
  readonly maxLineCharacters: number;
  /** Where reading ends, whatever is left. */
  readonly maxBytes: number;
}

const CHUNK_BYTES = 64 * 1024;
const SAMPLE_BYTES = 8 * 1024;

/** The lines of a file, one by one, however large it is. Bytes that are no UTF-8 come as replacement characters. */
export async function* readLines(
  handle: FileHandle,
  { maxLineCharacters, maxBytes }: ReadLinesOptions,
): AsyncGenerator<Line> {
  const decoder = new StringDecoder('utf8');
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let begun = '';
  let isCut = false;
  const add = (piece: string): void => {
    const room = maxLineCharacters - begun.length;
    if (piece.length > room) isCut = true;
    if (room > 0) begun += piece.slice(0, room);
  };
  const take = (): Line => {
    const line = { text: begun.endsWith('\r') ? begun.slice(0, -1) : begun, isCut };
    begun = '';
    isCut = false;
    return line;
  };
  let position = 0;
  while (position < maxBytes) {
    const { bytesRead } = await handle.read(buffer, 0, Math.min(CHUNK_BYTES, maxBytes - position), position);
    if (bytesRead === 0) break;
    position += bytesRead;
    const pieces = decoder.write(buffer.subarray(0, bytesRead)).split('\n');
    const last = pieces.pop() ?? '';
    for (const piece of pieces) {
      add(piece);
      yield take();
    }
    add(last);
  }
  add(decoder.end());
  if (begun !== '') yield take();
}

/** Text does not hold NUL bytes; nearly everything else does, soon. */
export async function isBinary(handle: FileHandle): Promise<boolean> {
  const buffer = Buffer.allocUnsafe(SAMPLE_BYTES);
  const { bytesRead } = await handle.read(buffer, 0, SAMPLE_BYTES, 0);
  return buffer.subarray(0, bytesRead).includes(0);
}

const MAX_LINES = 2000;
const MAX_OUTPUT_CHARACTERS = 32 * 1024;
const MAX_LINE_CHARACTERS = 4000;
const MAX_SCANNED_BYTES = 64 * 1024 * 1024;

/** Reads a part of a text file; the last line says how to read on. */
export const readFileTool = defineTool({
  name: 'read_file',
  description: `Reads a text file. At most ${MAX_LINES} lines or 32 KiB at a time; go on with start_line.`,
  parameters: Type.Object({
    path: Type.String({ minLength: 1, description: 'Path inside the working directory, or of an attached file.' }),
    start_line: Type.Optional(Type.Integer({ minimum: 1, description: 'First line to read, from 1. Default 1.' })),
    line_count: Type.Optional(Type.Integer({ minimum: 1, description: `Lines to read. Default ${MAX_LINES}.` })),
  }),
  toolKind: 'read',
  needsPermission: false,
  title: ({ path }) => `Read ${path}`,
  run: ({ path, start_line: start = 1, line_count: count = MAX_LINES }, { root, files }) =>
    withFile(files !== undefined && path.startsWith(`${files.path}/`) ? files : root, path, (file) =>
      readPart(file, start, Math.min(count, MAX_LINES)),
    ),
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

/** Makes a file, or replaces all of it. */
export const writeFileTool = defineTool({
  name: 'write_file',
  description: 'Writes a whole file: makes it, and the folders to it, or replaces what it held.',
  parameters: Type.Object({
    path: Type.String({ minLength: 1, description: 'Path inside the working directory.' }),
    content: Type.String({ description: 'All that the file is to hold.' }),
  }),
  toolKind: 'edit',
  needsPermission: true,
  title: ({ path }) => `Write ${path}`,
  async run({ path, content }, { root, makeTemporaryName }) {
    // What cannot be shown as text, or is not there, has no text from before.
    const before = await withFile(root, path, readText).catch(() => undefined);
    const { path: written, isNew } = await replaceFile(root, path, content, makeTemporaryName());
    const size = Buffer.byteLength(content);
    const text = `${isNew ? 'Made' : 'Replaced'} the file; it has ${size} bytes.`;
    const changes = isNew || before !== undefined ? [changeOfTexts(written, before, content)] : [];
    return { text, locations: [{ path: written }], changes: withinChangeBounds(changes) };
  },
});

const MAX_FILE_BYTES = 4 * 1024 * 1024;

/** Replaces one passage. It must stand in the file exactly once, so that the model cannot hit the wrong one. */
export const editFileTool = defineTool({
  name: 'edit_file',
  description:
    'Replaces a passage of a text file. old_text must match exactly, white space included, and stand there only once.',
  parameters: Type.Object({
    path: Type.String({ minLength: 1, description: 'Path inside the working directory.' }),
    old_text: Type.String({ minLength: 1, description: 'The passage as it stands now.' }),
    new_text: Type.String({ description: 'What stands there afterwards; empty to delete it.' }),
  }),
  toolKind: 'edit',
  needsPermission: true,
  title: ({ path }) => `Edit ${path}`,
  async run({ path, old_text: before, new_text: after }, { root, makeTemporaryName }) {
    const content = await withFile(root, path, readText);
    const at = content.indexOf(before);
    if (at === -1) refuse('old_text does not stand in the file; read the file and copy the passage exactly.');
    if (content.includes(before, at + 1))
      refuse('old_text stands in the file more than once; take more lines around it.');
    const changed = content.slice(0, at) + after + content.slice(at + before.length);
    const written = await replaceFile(root, path, changed, makeTemporaryName());
    const line = lineAt(content, at);
    const text = `Replaced the passage at line ${line}.`;
    const changes = withinChangeBounds([changeOfTexts(written.path, content, changed)]);
    return { text, locations: [{ path: written.path, line }], changes };
  },
});

/** The whole file. What is not UTF-8 would come out changed elsewhere too, so it is refused. */
async function readText({ handle, size }: OpenFile): Promise<string> {
  const tooLarge = `The file is larger than ${MAX_FILE_BYTES} bytes; change it with a command.`;
  if (size > MAX_FILE_BYTES) refuse(tooLarge);
  const bytes = Buffer.alloc(MAX_FILE_BYTES + 1);
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(bytes, length, bytes.length - length, length);
    length += bytesRead;
    if (length > MAX_FILE_BYTES) refuse(tooLarge);
    if (bytesRead === 0) break;
  }
  const content = bytes.subarray(0, length);
  if (content.includes(0) || !isUtf8(content)) refuse('The file is not text in UTF-8; change it with a command.');
  return content.toString('utf8');
}

function lineAt(content: string, at: number): number {
  let line = 1;
  for (let found = content.indexOf('\n'); found !== -1 && found < at; found = content.indexOf('\n', found + 1))
    line += 1;
  return line;
}
