import { readdirSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Comment, parseSync, Visitor, type VisitorObject } from 'oxc-parser';

export const projectRoot = fileURLToPath(new URL('../../', import.meta.url));

/** One `import`, `export ... from` or `import()` with a fixed name. */
interface ImportEdge {
  readonly specifier: string;
  /** Path from the project root for a relative specifier, undefined for a package. */
  readonly target: string | undefined;
  /** The names taken, `*` for all of them. */
  readonly names: readonly string[];
  /** Nothing is left of it at run time. */
  readonly isTypeOnly: boolean;
  readonly offset: number;
}

export interface SourceFile {
  /** From the project root, with forward slashes. */
  readonly path: string;
  readonly text: string;
  /** Types included. */
  readonly imports: readonly ImportEdge[];
  readonly exportedNames: readonly string[];
  readonly reExports: boolean;
  readonly comments: readonly Comment[];
  visit(visitor: VisitorObject): void;
}

export interface Violation {
  readonly path: string;
  readonly line: number;
  readonly message: string;
}

/** Looks at one file and says what breaks the rule. */
export type Rule = (file: SourceFile) => Violation[];

export function violation(file: SourceFile, offset: number, message: string): Violation {
  return { path: file.path, line: file.text.slice(0, offset).split('\n').length, message };
}

export function describe(violations: readonly Violation[]): string {
  return violations.map(({ path, line, message }) => `${path}:${line}: ${message}`).join('\n');
}

export function parseSource(path: string, text: string): SourceFile {
  const { program, module, comments, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]?.message}`);
  const imports: ImportEdge[] = [];
  const add = (specifier: string, names: string[], offset: number) =>
    imports.push({
      specifier,
      target: resolveRelative(path, specifier),
      names,
      isTypeOnly: /^(?:import|export)\s+type\b/.test(text.slice(offset, offset + 20)),
      offset,
    });

  for (const { moduleRequest, entries, start } of module.staticImports) {
    const names = entries.map(({ importName }) => (importName.kind === 'Name' ? (importName.name ?? '*') : '*'));
    add(moduleRequest.value, names, start);
  }
  const exported = module.staticExports.flatMap((statement) => statement.entries);
  for (const { moduleRequest, importName, start } of exported) {
    if (moduleRequest !== null) add(moduleRequest.value, [importName.name ?? '*'], start);
  }
  for (const { moduleRequest, start } of module.dynamicImports) {
    const source = text.slice(moduleRequest.start, moduleRequest.end);
    if (/^(['"`])[^'"`$]*\1$/.test(source)) add(source.slice(1, -1), ['*'], start);
  }
  return {
    path,
    text,
    imports,
    comments,
    exportedNames: exported.map(({ exportName }) => exportName.name ?? exportName.kind.toLowerCase()),
    reExports: exported.some((entry) => entry.moduleRequest !== null),
    visit: (visitor) => new Visitor(visitor).visit(program),
  };
}

function resolveRelative(path: string, specifier: string): string | undefined {
  return specifier.startsWith('.') ? posix.join(posix.dirname(path), specifier) : undefined;
}

/** Every file below the given folders of the project; a folder that does not exist has none. */
export function listFiles(folders: readonly string[]): string[] {
  return folders.flatMap((folder) => listFolder(folder)).sort();
}

function listFolder(folder: string): string[] {
  try {
    return readdirSync(`${projectRoot}${folder}`, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && !entry.parentPath.slice(projectRoot.length).includes('node_modules'))
      .map((entry) => `${entry.parentPath.replace(/\/$/, '')}/${entry.name}`.slice(projectRoot.length));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
    throw error;
  }
}

export function readSources(folders: readonly string[]): SourceFile[] {
  return listFiles(folders)
    .filter((path) => /\.(?:tsx?|js)$/.test(path))
    .map((path) => parseSource(path, readFileSync(`${projectRoot}${path}`, 'utf8')));
}
