import { Type } from 'typebox';
import { replaceFile } from './confined-file.ts';
import { defineTool } from './tool.ts';

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
    const { path: written, isNew } = await replaceFile(root, path, content, makeTemporaryName());
    const size = Buffer.byteLength(content);
    return { text: `${isNew ? 'Made' : 'Replaced'} the file; it has ${size} bytes.`, locations: [{ path: written }] };
  },
});
