import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path/posix';
import { test } from 'node:test';
import { listFiles, projectRoot } from '../architecture/source-file.ts';

const pages = globSync(['*.md', 'docs/**/*.md', 'examples/**/*.md', 'bench/**/*.md'], { cwd: projectRoot });

function withoutBlocks(page: string): string {
  return page.replaceAll(/^```.*?^```/gms, '');
}

/** Relative targets of `[text](target)`, outside code. */
function linksOf(page: string): string[] {
  const withoutCode = withoutBlocks(page).replaceAll(/`[^`\n]*`/g, '');
  const targets = [...withoutCode.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] ?? '');
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

/** The anchors that headings make, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map((match) =>
    (match[1] ?? '')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(/\s/g, '-'),
  );
}

/** Paths in backquotes that name something of the project: `src/bridge/routes.ts`, `docs/`. */
function pathsOf(page: string): string[] {
  const named = withoutBlocks(page).matchAll(/`((?:src|test|bench|docs|scripts|deploy|examples)\/[\w./-]*)`/g);
  return [...named].map((match) => match[1] ?? '');
}

/** Sources that are named without their folder: `turn-runner.ts`. */
function namesOf(page: string): string[] {
  const named = withoutBlocks(page).matchAll(/`((?:[\w-]+\/){0,4}[\w.-]+\.(?:ts|tsx|cjs))`/g);
  return [...named].map((match) => match[1] ?? '');
}

const sources = listFiles(['src', 'test', 'bench', 'scripts', 'examples']);

function read(path: string): string {
  return readFileSync(`${projectRoot}${path}`, 'utf8');
}

test('every relative link in a document leads to a file, and its anchor to a heading', () => {
  const broken = pages.flatMap((page) =>
    linksOf(read(page)).flatMap((link) => {
      const [path = '', anchor] = link.split('#');
      const target = path === '' ? page : join(dirname(page), decodeURIComponent(path));
      if (!existsSync(`${projectRoot}${target}`)) return [`${page}: ${link} does not exist`];
      if (anchor === undefined || !target.endsWith('.md')) return [];
      return anchorsOf(read(target)).includes(anchor) ? [] : [`${page}: ${link} has no such heading`];
    }),
  );
  assert.deepEqual(broken, []);
});

test('every path that a document names is there', () => {
  const missing = pages.flatMap((page) =>
    pathsOf(read(page))
      .filter((path) => !existsSync(`${projectRoot}${path}`))
      .map((path) => `${page}: ${path}`),
  );
  assert.deepEqual(missing, []);
});

test('every source that a document names without its folder is there', () => {
  const missing = pages
    // What an old version had is named there.
    .filter((page) => page !== 'CHANGELOG.md')
    .flatMap((page) =>
      namesOf(read(page))
        .filter((name) => !sources.some((path) => path.endsWith(`/${name}`) || path === name))
        .map((name) => `${page}: ${name}`),
    );
  assert.deepEqual(missing, []);
});

test('a broken link, a missing anchor and a path that is gone would be seen', () => {
  const page = 'See [a](docs/x.md#part), `src/gone.ts` and [site](https://example.org).\n```\n[no](code.md)\n```\n';
  assert.deepEqual(linksOf(page), ['docs/x.md#part']);
  assert.deepEqual(pathsOf(page), ['src/gone.ts']);
  assert.deepEqual(namesOf('`gone.ts`, `lanes/gone.ts`, `a.b.ts` and `word`'), ['gone.ts', 'lanes/gone.ts', 'a.b.ts']);
  assert.deepEqual(anchorsOf('# The `first` part: a/b\n'), ['the-first-part-ab']);
});

test('the first page of docs/ lists every document', () => {
  const listed = linksOf(read('docs/README.md')).map((link) => join('docs', link));
  const documents = globSync('docs/*.md', { cwd: projectRoot }).filter((path) => path !== 'docs/README.md');
  assert.deepEqual(
    documents.filter((path) => !listed.includes(path)),
    [],
  );
});
