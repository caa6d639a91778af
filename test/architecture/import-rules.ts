import { dirname } from 'node:path/posix';
import { type Rule, type SourceFile, type Violation, violation } from './source-file.ts';

const SERVICES = ['bridge', 'completions', 'accounts'];

/** What each part of src/ may import besides itself. `contract` stands for the contract/ folder of any service. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  main: ['commands', 'system', 'platform'],
  commands: ['system', 'client', 'platform'],
  system: [...SERVICES, 'platform'],
  bridge: ['platform'],
  completions: ['platform'],
  accounts: ['platform'],
  client: ['contract'],
  console: ['client', 'contract'],
  platform: [],
};

/** Imports run one way, main -> commands -> system -> services -> platform, and services never import each other. */
export const importsRunOneWay: Rule = (file) => {
  const part = partOf(file.path);
  if (part === undefined) return [];
  const allowed = MAY_IMPORT[part];
  if (allowed === undefined) return [violation(file, 0, `src/${part} is not a part of the design`)];
  return file.imports.flatMap(({ target, offset, specifier }) => {
    if (target === undefined) return [];
    const targetPart = partOf(target);
    if (targetPart === part) return [];
    const isContract = /^src\/\w+\/contract\//.test(target);
    if (targetPart !== undefined && (allowed.includes(targetPart) || (isContract && allowed.includes('contract')))) {
      return [];
    }
    return [violation(file, offset, `${part} must not import ${specifier}`)];
  });
};

const CLIENT_PACKAGES = ['eventsource-parser'];

/** Apps get the client alone, browsers too: nothing of Node, and of the contracts (and what they are made of) only types. */
export const clientStandsAlone: Rule = (file) => {
  if (partOf(file.path) !== 'client') return [];
  return file.imports.flatMap(({ specifier, target, isTypeOnly, offset }) => {
    const isOwn = target !== undefined && partOf(target) === 'client';
    if (isOwn || isTypeOnly || CLIENT_PACKAGES.includes(specifier)) return [];
    return [violation(file, offset, `the client needs ${specifier} at run time: import types only`)];
  });
};

const MARKUP = /\b(?:dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write)\b/g;

/** The console uses the public client and the types of the contracts, and never makes markup from data. */
export const consoleIsAClient: Rule = (file) => {
  if (partOf(file.path) !== 'console') return [];
  const imports = file.imports.flatMap(({ target, isTypeOnly, offset, specifier }) => {
    const isContract = target !== undefined && /^src\/\w+\/contract\//.test(target);
    return isContract && !isTypeOnly ? [violation(file, offset, `the console needs ${specifier} at run time`)] : [];
  });
  const markup = [...file.text.matchAll(MARKUP)].map(({ index, 0: name }) =>
    violation(file, index, `${name}: texts of agents must not become markup`),
  );
  return [...imports, ...markup];
};

/** `src/bridge/x.ts` is part of `bridge`, `src/main.ts` of `main`; what is outside src/ has no part. */
function partOf(path: string): string | undefined {
  const match = /^src\/([\w-]+)(?:\/|\.ts$)/.exec(path);
  return match?.[1];
}

/** What the program imports must be there in production: a listed dependency, or a part of Node named `node:`. */
export function onlyListedPackages(dependencies: readonly string[]): Rule {
  return (file) =>
    // What the console imports is in its built files.
    (partOf(file.path) === 'console' ? [] : file.imports).flatMap(({ specifier, target, offset }) => {
      if (target !== undefined || specifier.startsWith('node:')) return [];
      const name = specifier
        .split('/')
        .slice(0, specifier.startsWith('@') ? 2 : 1)
        .join('/');
      return dependencies.includes(name) ? [] : [violation(file, offset, `${name} is not a listed dependency`)];
    });
}

/** Groups of files that import each other in a circle, types included: neither can be read before the other. */
export function findCycles(files: readonly SourceFile[]): Violation[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const cycles: Violation[] = [];
  const done = new Set<string>();
  const visit = (file: SourceFile, trail: readonly string[]) => {
    const start = trail.indexOf(file.path);
    if (start >= 0) {
      const circle = [...trail.slice(start), file.path].join(' -> ');
      cycles.push(violation(file, 0, `import cycle: ${circle}`));
      return;
    }
    if (done.has(file.path)) return;
    for (const { target } of file.imports) {
      const next = target === undefined ? undefined : byPath.get(target);
      if (next !== undefined) visit(next, [...trail, file.path]);
    }
    done.add(file.path);
  };
  for (const file of files) visit(file, []);
  return cycles;
}

/** Folders of one service that import each other in a circle. Files directly in the service's folder may import all. */
export function findFolderCycles(files: readonly SourceFile[], service: string): Violation[] {
  const folderOf = (path: string) => (path.startsWith(service) ? path.slice(service.length).split('/', 2) : []);
  const folders = new Map<string, SourceFile>();
  for (const file of files) {
    const [folder, name] = folderOf(file.path);
    if (folder === undefined || name === undefined) continue;
    const imports = file.imports.flatMap((each) => {
      const [target, inside] = folderOf(each.target ?? '');
      return target === undefined || inside === undefined || target === folder ? [] : [{ ...each, target }];
    });
    const known = folders.get(folder);
    folders.set(folder, { ...file, path: folder, imports: [...(known?.imports ?? []), ...imports] });
  }
  return findCycles([...folders.values()]);
}

/** How many files the program may have, without the pages of the console. */
const MAX_FILES = 520;

/** More files than a reader can find their way in: join files of one topic before another is added. */
export function tooManyFiles(files: readonly SourceFile[], limit = MAX_FILES): Violation[] {
  const counted = files.filter(({ path }) => path.endsWith('.ts') && !path.startsWith('src/console/'));
  if (counted.length <= limit) return [];
  const message = `${counted.length} files; the limit is ${limit}: merge files of one topic`;
  return [{ path: 'src', line: 1, message }];
}

const MIN_LINES = 60;

/** Small files that exactly one file imports, and that file lies in the same folder: the two are one topic. */
export function findFragments(files: readonly SourceFile[]): Violation[] {
  const importers = new Map<string, Set<string>>(files.map(({ path }) => [path, new Set()]));
  for (const { path, imports } of files) {
    for (const { target } of imports) if (target !== undefined) importers.get(target)?.add(path);
  }
  return files.flatMap((file) => {
    const [importer, ...others] = importers.get(file.path) ?? [];
    const lines = file.text.trimEnd().split('\n').length;
    // Scripts of a page (.js) are sent to browsers one by one.
    if (importer === undefined || others.length > 0 || lines > MIN_LINES || !file.path.endsWith('.ts')) return [];
    if (dirname(importer) !== dirname(file.path)) return [];
    return [violation(file, 0, `${lines} lines that only ${importer} imports: merge the two`)];
  });
}
