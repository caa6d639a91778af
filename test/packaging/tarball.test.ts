import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { projectRoot } from '../architecture/source-file.ts';
import { freePort } from '../kit/free-port.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { startRollingLoad } from '../kit/rolling-load.ts';
import { cleanEnvironment, installPackage, type Packed, pinnedNodeFolder, runCommand, succeed } from './run-command.ts';

const folder = mkdtempSync(join(tmpdir(), 'trestle-package-'));
const { version } = JSON.parse(readFileSync(`${projectRoot}package.json`, 'utf8'));
let packed: Packed;

before(async () => {
  packed = await installPackage(folder);
});

after(() => rmSync(folder, { recursive: true, force: true }));

test('O-16: the package holds the built program and its papers, and nothing else', () => {
  const papers = ['package.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'SECURITY.md', 'dist/bundled-licenses.txt'];
  const isBuilt = (path: string) =>
    (/^dist\/[A-Za-z0-9/.-]+\.(?:js|cjs|css|d\.ts)$/.test(path) && !path.includes('.test.')) ||
    /^dist\/console\/(?:manifest\.json|[\w-]+\.(?:js|css)\.(?:gz|br))$/.test(path);
  const paths = packed.files.map(({ path }) => path);
  const others = paths.filter((path) => !isBuilt(path));
  assert.deepEqual(others.sort(), papers.sort());
  for (const path of [
    'dist/program/main.js',
    'dist/client/trestle-client.js',
    'dist/trestle.cjs',
    'dist/preflight.cjs',
    'dist/console/manifest.json',
  ])
    assert.ok(paths.includes(path), path);
});

test('the built console is in the package, and small', () => {
  const { script, files } = JSON.parse(
    readFileSync(join(folder, 'node_modules/trestle/dist/console/manifest.json'), 'utf8'),
  ) as { script: string; files: { name: string }[] };
  assert.ok(files.some(({ name }) => name === script));
  const sizes = packed.files.filter(({ path }) => path.startsWith('dist/console/'));
  const bytes = sizes.reduce((sum, { size }) => sum + size, 0);
  assert.ok(bytes < 1_000_000, `${bytes} bytes`);
});

test('O-16: no file of the package holds a private key', () => {
  for (const { path } of packed.files) {
    const text = readFileSync(join(folder, 'node_modules/trestle', path), 'utf8');
    assert.doesNotMatch(text, /-----BEGIN [A-Z ]*PRIVATE KEY/, path);
  }
});

test('O-16: a bill of materials can be made of what production installs', async () => {
  // Of the installed package: in a checkout, npm leaves out what a development dependency needs too.
  const { stdout } = await succeed(['npm', 'sbom', '--sbom-format', 'cyclonedx'], folder);
  const { bomFormat, components } = JSON.parse(stdout);
  assert.equal(bomFormat, 'CycloneDX');
  const names = components.map((component: { name: string }) => component.name);
  for (const name of ['trestle', 'find-my-way', 'undici']) assert.ok(names.includes(name), name);
  assert.ok(!names.includes('typescript'));
});

test('npx runs the installed command', async () => {
  const { stdout } = await succeed(['npx', '--no-install', 'trestle', '--version'], folder);
  assert.ok(stdout.includes(version), stdout);
});

test('DU-5: npx runs the command from the tarball, as docs/upgrading.md prints it', async () => {
  const tarball = `./${packed.filename}`;
  const { stdout } = await succeed(['npx', '--yes', '--package', tarball, 'trestle', '--version'], folder);
  assert.ok(stdout.includes(version), stdout);
  const documented = readFileSync(`${projectRoot}docs/upgrading.md`, 'utf8');
  assert.ok(documented.includes(`npx --package ./trestle-${version}.tgz trestle serve`));
});

test('apps import the client', async () => {
  const code =
    "const { createTrestleClient } = await import('trestle/client'); console.log(typeof createTrestleClient)";
  const { stdout } = await succeed(['node', '--input-type=module', '--eval', code], folder);
  assert.equal(stdout.trim(), 'function');
});

test('DU-3: the installed program serves its pages and an app on Node 20 with the small client, and ends with 0 on SIGTERM', {
  timeout: 120_000,
}, async () => {
  const port = await freePort();
  const base = `http://127.0.0.1:${port}`;
  const command = [join(folder, 'node_modules/.bin/trestle'), 'serve', '--listen', `127.0.0.1:${port}`];
  const child = spawn(process.execPath, [...command, '--data-dir', join(folder, 'data')], {
    cwd: folder,
    env: { ...cleanEnvironment([pinnedNodeFolder]), HOME: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  const collect = (part: Buffer) => {
    output += part;
  };
  child.stdout.on('data', collect);
  child.stderr.on('data', collect);
  const exited = once(child, 'exit');
  try {
    await untilHealthy(base, child, () => output);
    const status = await fetch(`${base}/`, { headers: { accept: '*/*' } });
    assert.equal(status.status, 200);
    assert.match(await status.text(), /is running/);
    const page = await fetch(`${base}/`, { headers: { accept: 'text/html' } });
    assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
    await assertAssetsLoad(await page.text(), page.url);
    const setup = await fetch(`${base}/setup`, { headers: { accept: 'text/html' } });
    await assertAssetsLoad(await setup.text(), setup.url);
    const board = await fetch(`${base}/console`, { headers: { accept: 'text/html' } });
    await assertAssetsLoad(await board.text(), board.url);
    await assertSmallClientWorks(base);
  } finally {
    child.kill('SIGTERM');
  }
  assert.deepEqual(await exited, [0, null], output);
});

test('instances of the package are replaced by those of this checkout behind HAProxy, and the other way on a later schema: nothing fails', {
  timeout: 400_000,
}, async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const installed = { starter: [process.execPath, join(folder, 'node_modules/trestle/dist/trestle.cjs')] };
  const load = await startRollingLoad(t, postgres.url, installed);
  for (const index of load.places.keys()) await load.restart(index);
  // What a build with one more migration leaves, which this one can go on to use.
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  for (const schema of ['bridge', 'completions', 'accounts']) {
    const later = `SELECT '9999-later', 0, 'x', max(id) FROM ${schema}.schema_migrations`;
    await client.query(`INSERT INTO ${schema}.schema_migrations (id, applied_at, checksum, readable_since) ${later}`);
  }
  await client.end();
  await load.restart(0, installed);
  t.diagnostic(await load.finish());
});

/** An app of its own, on the Node of the machine, which may be 20, with nothing but the client. */
async function assertSmallClientWorks(base: string): Promise<void> {
  const app = join(folder, 'app');
  mkdirSync(app);
  const pack = ['npm', 'pack', join(projectRoot, 'dist-client'), '--json', '--pack-destination', app];
  const [{ filename, size }] = JSON.parse((await succeed(pack, app)).stdout);
  assert.ok(size < 50_000, `${filename} has ${size} bytes`);
  writeFileSync(join(app, 'package.json'), '{"private":true,"type":"module"}');
  await succeed(['npm', 'install', '--no-audit', '--no-fund', `./${filename}`], app);
  assert.deepEqual(Object.keys(JSON.parse(readFileSync(join(app, 'package-lock.json'), 'utf8')).packages).sort(), [
    '',
    'node_modules/trestle-client',
    'node_modules/typebox',
  ]);
  const program = [
    "import { createTrestleClient, type TrestleClient } from 'trestle-client';",
    `const trestle: TrestleClient = createTrestleClient({ url: ${JSON.stringify(base)} });`,
    "const turn = trestle.session('small').start('Hello from a small client');",
    "let text = '';",
    'for await (const { delta } of turn) text += delta ?? "";',
    'const { status, output } = await turn.result;',
    "console.log(JSON.stringify({ status, streamed: text === output && text !== '' }));",
    'trestle.close();',
  ].join('\n');
  writeFileSync(join(app, 'app.ts'), program);
  const compiler = join(projectRoot, 'node_modules/typescript/bin/tsc');
  const options = ['--strict', '--module', 'nodenext', '--target', 'es2022', '--lib', 'es2023,dom', '--types', ''];
  await succeed([process.execPath, compiler, ...options, 'app.ts'], app);
  const outer = await runCommand(['node', 'app.js'], app);
  assert.equal(outer.stderr, '');
  assert.deepEqual(JSON.parse(outer.stdout), { status: 'completed', streamed: true });
}

/** What the page links to was copied into the package too. */
async function assertAssetsLoad(html: string, pageUrl: string): Promise<void> {
  const assets = [...html.matchAll(/<(?:script|link)\b[^>]*?(?:src|href)="([^"]+)"/g)].map((match) => match[1] ?? '');
  assert.ok(assets.length > 0, 'the page has assets');
  for (const asset of assets) {
    const response = await fetch(new URL(asset, pageUrl));
    assert.equal(response.status, 200, asset);
    await response.arrayBuffer();
  }
}

async function untilHealthy(base: string, child: { exitCode: number | null }, output: () => string): Promise<void> {
  for (let attempt = 0; attempt < 300 && child.exitCode === null; attempt += 1) {
    const response = await fetch(`${base}/healthz`).catch(() => undefined);
    await response?.arrayBuffer();
    if (response?.status === 200) return;
    await sleep(100);
  }
  assert.fail(`the server did not become healthy\n${output()}`);
}
