import { Type } from 'typebox';
import { locate, openFolder } from './confined-folder.ts';
import { defineTool } from './tool.ts';
import { walkFolder } from './walk-folder.ts';

const MAX_ENTRIES = 1000;
const DEEPEST = 32;

/** Names what is in a folder. */
export const listFilesTool = defineTool({
  name: 'list_files',
  description: `Lists a folder, folders with "/" at the end; at most ${MAX_ENTRIES} entries. node_modules and .git are named but not entered.`,
  parameters: Type.Object({
    path: Type.Optional(Type.String({ description: 'Folder inside the working directory. Default: all of it.' })),
    recursive: Type.Optional(Type.Boolean({ description: 'Also list what is in its folders. Default false.' })),
  }),
  toolKind: 'read',
  needsPermission: false,
  title: ({ path = '.' }) => `List ${path}`,
  async run({ path = '.', recursive = false }, { root, signal }) {
    const folder = await openFolder(root, await locate(root, path));
    try {
      const names: string[] = [];
      const walk = walkFolder(folder, { maxDepth: recursive ? DEEPEST : 1, maxEntries: MAX_ENTRIES, signal });
      let step = await walk.next();
      for (; step.done !== true; step = await walk.next()) {
        const { relativePath, kind } = step.value;
        names.push(kind === 'folder' ? `${relativePath}/` : relativePath);
      }
      if (!step.value) names.push(`[cut after ${MAX_ENTRIES} entries: list a folder further down]`);
      return {
        text: names.length === 0 ? '[the folder is empty]' : names.join('\n'),
        locations: [{ path: folder.path }],
      };
    } finally {
      await folder.close();
    }
  },
});
