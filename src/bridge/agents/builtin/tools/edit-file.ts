import { isUtf8 } from 'node:buffer';
import { Type } from 'typebox';
import { type OpenFile, replaceFile, withFile } from './confined-file.ts';
import { refuse } from './confined-folder.ts';
import { defineTool } from './tool.ts';

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
    return { text: `Replaced the passage at line ${line}.`, locations: [{ path: written.path, line }] };
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
