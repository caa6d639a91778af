import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseSource } from '../test/architecture/source-file.ts';

/**
 * `node scripts/run.cjs scripts/source-figures.ts [folder...]`: prints a table about the sources of each checkout, this one
 * unless others are given. The pages of the console are left out.
 */

const MAX_SMALL = 50;

interface SourceFigures {
  readonly files: number;
  readonly lines: number;
  readonly median: number;
  readonly p90: number;
  readonly longest: number;
  /** Of all files, those with at most 50 lines. */
  readonly smallShare: number;
  /** Of all lines, those of import statements. */
  readonly importShare: number;
  /** Files that exactly one other file imports. */
  readonly oneImporter: number;
  /** Packages that production installs directly, and all of them. */
  readonly dependencies: number;
  readonly packages: number;
}

export function sourceFigures(folder: string): SourceFigures {
  const paths = globSync('src/**/*.ts', { cwd: folder }).map((path) => path.replaceAll('\\', '/'));
  const files = paths
    .filter((path) => !path.startsWith('src/console/'))
    .map((path) => parseSource(path, readFileSync(join(folder, path), 'utf8')));
  const lengths = files.map(({ text }) => linesOf(text)).sort((one, other) => one - other);
  const lines = lengths.reduce((sum, length) => sum + length, 0);
  const importers = new Map<string, Set<string>>();
  for (const { path, imports } of files) {
    for (const { target } of imports) {
      if (target !== undefined) importers.set(target, (importers.get(target) ?? new Set()).add(path));
    }
  }
  const statements = files.flatMap(({ text }) => [...text.matchAll(/^import\s[^;]{1,10000};$/gm)]);
  const importLines = statements.reduce((sum, [statement]) => sum + linesOf(statement), 0);
  const at = (share: number) => lengths[Math.min(lengths.length - 1, Math.floor(lengths.length * share))] ?? 0;
  return {
    files: files.length,
    lines,
    median: at(0.5),
    p90: at(0.9),
    longest: lengths.at(-1) ?? 0,
    smallShare: lengths.filter((length) => length <= MAX_SMALL).length / files.length,
    importShare: importLines / lines,
    oneImporter: files.filter(({ path }) => importers.get(path)?.size === 1).length,
    ...packagesOf(folder),
  };
}

function linesOf(text: string): number {
  return text.trimEnd().split('\n').length;
}

function packagesOf(folder: string): Pick<SourceFigures, 'dependencies' | 'packages'> {
  const { packages } = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8')) as {
    readonly packages: Readonly<Record<string, { readonly dev?: true; readonly dependencies?: object }>>;
  };
  const production = Object.entries(packages).filter(([name, { dev }]) => name !== '' && dev !== true);
  return { dependencies: Object.keys(packages['']?.dependencies ?? {}).length, packages: production.length };
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

const ROWS: Readonly<Record<string, (figures: SourceFigures) => string>> = {
  files: ({ files }) => `${files}`,
  lines: ({ lines }) => lines.toLocaleString('en-US'),
  'lines per file: median, p90, longest': ({ median, p90, longest }) => `${median}, ${p90}, ${longest}`,
  'files of at most 50 lines': ({ smallShare }) => percent(smallShare),
  'lines of imports': ({ importShare }) => percent(importShare),
  'files with one importer': ({ oneImporter }) => `${oneImporter}`,
  'packages of production: direct, all': ({ dependencies, packages }) => `${dependencies}, ${packages}`,
};

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const folders = process.argv.length > 2 ? process.argv.slice(2) : ['.'];
  const figures = folders.map(sourceFigures);
  const row = (cells: readonly string[]) => process.stdout.write(`| ${cells.join(' | ')} |\n`);
  row(['', ...folders]);
  row(['---', ...folders.map(() => '---')]);
  for (const [name, show] of Object.entries(ROWS)) row([name, ...figures.map(show)]);
}
