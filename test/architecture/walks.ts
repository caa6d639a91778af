import type { SourceFile, Violation } from './source-file.ts';

/** How many files each walk of ARCHITECTURE.md may have. */
export const WALKS: Readonly<Record<string, number>> = {
  'A JSON request': 9,
  'An update, from the agent to the wire': 6,
  'A setting, to understand it': 6,
  'A setting, to use it': 4,
  'An error': 5,
};

interface Step {
  readonly path: string;
  /** The number of the file that imports it; undefined for one that is called back. */
  readonly from: number | undefined;
}

/** Follows the lists of files: each exists and is imported as the list says, and no list is longer than agreed. */
export function checkWalks(document: string, files: readonly SourceFile[], walks = WALKS): Violation[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  return Object.entries(walks).flatMap(([title, limit]) => {
    const found: Violation[] = [];
    const report = (message: string) =>
      found.push({ path: 'ARCHITECTURE.md', line: 1, message: `${title}: ${message}` });
    const steps = stepsOf(document, title);
    if (steps.length === 0) report('there is no such list');
    if (steps.length > limit) report(`${steps.length} files; the limit is ${limit}`);
    for (const [index, { path, from }] of steps.entries()) {
      if (!byPath.has(path)) report(`${path} does not exist`);
      const importer = from === undefined || index === 0 ? undefined : steps[from - 1]?.path;
      if (importer === undefined) continue;
      const imports = byPath.get(importer)?.imports.some(({ target }) => target === path);
      if (imports !== true) report(`${importer} does not import ${path}`);
    }
    return found;
  });
}

function stepsOf(document: string, title: string): readonly Step[] {
  const [, section = ''] = document.split(`\n### ${title}\n`);
  const [list = ''] = section.split(/\n##/, 1);
  return [...list.matchAll(/^(\d{1,2})\. `([^`]+)`(?: \((?:from (\d{1,2})|(called back))\))?: /gm)].map(
    ([, number, path = '', from, calledBack]) => ({
      path,
      from: calledBack === undefined ? Number(from ?? Number(number) - 1) : undefined,
    }),
  );
}

/** Folders that every service has, which the text above the table explains. */
const COMMON = new Set(['contract', 'storage']);

/** The table of the folders of services: every folder has a row, and no row is left of one that is gone. */
export function checkFolders(document: string, files: readonly SourceFile[]): Violation[] {
  const [, section = ''] = document.split('\n### The folders of the services\n');
  const [table = ''] = section.split(/\n##/, 1);
  const named = new Set(
    [...table.matchAll(/^\| (.+?) \|/gm)].flatMap(([, cell = '']) =>
      [...cell.matchAll(/`([^`]+)\/`/g)].map(([, folder = '']) => folder),
    ),
  );
  const found = new Set(
    files.flatMap(({ path }) => {
      const [, folder = '', name = ''] = /^(src\/(?:bridge|completions|accounts)\/([\w-]+))\//.exec(path) ?? [];
      return folder === '' || COMMON.has(name) ? [] : [folder];
    }),
  );
  const report = (message: string) => ({ path: 'ARCHITECTURE.md', line: 1, message });
  return [
    ...[...found].filter((folder) => !named.has(folder)).map((folder) => report(`${folder}/ has no row`)),
    ...[...named].filter((folder) => !found.has(folder)).map((folder) => report(`${folder}/ does not exist`)),
  ];
}
