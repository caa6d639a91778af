import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { buildAgentCatalog } from '../../../src/bridge/agents/agent-catalog.ts';
import { createAgentInstaller, installedAgents, removeAgent } from '../../../src/bridge/agents/agent-packages.ts';
import { createAgentRegistry } from '../../../src/bridge/agents/agent-registry.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { resolveTrestle } from '../../kit/resolve-trestle.ts';

/** An entry in the form of the public registry, with the members that we do not read. */
function entry(id: string, npx: object | undefined, more: object = {}) {
  return {
    id,
    name: `Agent ${id}`,
    version: '1.2.3',
    description: 'An agent.',
    repository: 'https://example.com/agent',
    authors: ['Somebody'],
    license: 'MIT',
    icon: null,
    distribution: npx === undefined ? { uvx: { package: `${id}==1.2.3` } } : { npx },
    ...more,
  };
}

const NPX = { package: '@example/alpha@2.0.0', args: ['--acp'], env: { ALPHA_MODE: 'strict' } };
const file = (...agents: readonly unknown[]) => JSON.stringify({ version: '1.0.0', agents, extensions: [] });

async function newFolder(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-registry-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function idsIn(t: TestContext, text: string): Promise<readonly string[] | string> {
  const folder = await newFolder(t);
  const source = join(folder, 'registry.json');
  await writeFile(source, text);
  const { packages, problem } = await createAgentRegistry({ source, dataDirectory: join(folder, 'data') }).read();
  return problem ?? packages.map(({ id, name, version }) => `${id} ${name}@${version}`);
}

test('agents of a registry that are packages of npm in an exact version are offered, and no others', async (t) => {
  const text = file(
    entry('alpha', NPX),
    entry('beta', undefined),
    entry('gamma', { package: 'gamma' }),
    entry('newest', { package: 'delta@latest' }),
    entry('range', { package: 'delta@^1.0.0' }),
    entry('address', { package: 'git+ssh://example.com/delta.git' }),
    entry('path', { package: '../../delta' }),
    entry('option', { package: '--global' }),
    entry('climbing', { package: 'delta', cmd: '../sh' }),
    entry('Upper', { package: 'delta' }),
    entry('../out', { package: 'delta' }),
    entry('variables', { package: 'delta', env: { 'A=B': 'x' } }),
    entry('opencode', { package: 'not-opencode' }),
    entry('claude', { package: 'not-claude' }),
    entry('alpha', { package: 'second-alpha' }),
    'not an object',
  );
  assert.deepEqual(await idsIn(t, text), ['alpha @example/alpha@2.0.0', 'gamma gamma@1.2.3']);
});

test('what is not a registry is refused with a reason', async (t) => {
  assert.match(String(await idsIn(t, 'no json')), /not a registry of agents/);
  assert.match(String(await idsIn(t, '{"agents":{}}')), /not a registry of agents/);
  assert.match(String(await idsIn(t, file(...Array.from({ length: 1001 }, () => 1)))), /at most 1000/);
  assert.match(String(await idsIn(t, `${file()}${' '.repeat(4 * 1024 * 1024)}`)), /larger than/);
  const dataDirectory = await newFolder(t);
  const missing = await createAgentRegistry({ source: join(dataDirectory, 'none.json'), dataDirectory }).read();
  assert.deepEqual(missing, { packages: [], problem: 'there is no such file' });
  assert.deepEqual(await createAgentRegistry({ source: '', dataDirectory }).read(), { packages: [] });
});

test('the last good registry of an address is kept, and that of another address does not count', async (t) => {
  const dataDirectory = await newFolder(t);
  let answer = { status: 200, text: file(entry('alpha', NPX)) };
  const server = createServer((_asked, response) => void response.writeHead(answer.status).end(answer.text));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const source = `http://127.0.0.1:${(server.address() as AddressInfo).port}/registry.json`;
  const read = async (from = source) => {
    const { packages, problem = '' } = await createAgentRegistry({ source: from, dataDirectory }).read();
    return [packages.map(({ id }) => id).join(), problem];
  };
  assert.deepEqual(await read(), ['alpha', '']);
  answer = { status: 503, text: 'busy' };
  assert.deepEqual(await read(), ['alpha', 'it answered with status 503']);
  answer = { status: 200, text: '{}' };
  assert.match((await read()).join(' '), /^alpha it is not a registry/);
  answer = { status: 302, text: '' };
  assert.deepEqual(await read(`${source}?other`), ['', 'fetch failed (unexpected redirect)']);
  answer = { status: 200, text: file(entry('gamma', NPX)) };
  assert.deepEqual(await read(), ['gamma', '']);
});

/** A program named npm that places a package with one program, and notes its arguments. */
async function fakeNpm(folder: string): Promise<string> {
  const bin = join(folder, 'bin');
  await mkdir(bin);
  const own = 'node_modules/@example/alpha';
  const lines = [
    '#!/bin/sh',
    `echo "$@" > ${folder}/npm-args`,
    `mkdir -p ${own} node_modules/.bin`,
    `echo '{"name":"@example/alpha","bin":{"alpha-program":"run.js"}}' > ${own}/package.json`,
    "printf '#!/bin/sh\\n' > node_modules/.bin/alpha-program",
    'chmod 755 node_modules/.bin/alpha-program',
  ];
  await writeFile(join(bin, 'npm'), `${lines.join('\n')}\n`);
  await chmod(join(bin, 'npm'), 0o755);
  return `${bin}:/usr/bin:/bin`;
}

test('an agent of a registry is installed, offered without the registry from then on, and removed', async (t) => {
  const folder = await newFolder(t);
  const dataDirectory = join(folder, 'data');
  const source = join(folder, 'registry.json');
  await writeFile(source, file(entry('alpha', NPX), entry('alpha-2', { ...NPX, package: '@example/alpha@3.0.0' })));
  const installer = createAgentInstaller({
    dataDirectory,
    environment: { PATH: await fakeNpm(folder) },
    journalFolder: join(folder, 'processes'),
    clock: systemClock,
    registry: createAgentRegistry({ source, dataDirectory }),
  });
  const call = { timeoutMs: 60_000 };
  assert.equal(await installer.install('alpha', call), '2.0.0');
  assert.equal(await installer.install('alpha-2', call), '3.0.0');
  assert.match(await readFile(join(folder, 'npm-args'), 'utf8'), /--ignore-scripts.* @example\/alpha@3\.0\.0\n$/);
  await assert.rejects(installer.install('unheard-of', call), { code: 'AGENT_UNKNOWN' });
  await rm(source);
  await rm(join(dataDirectory, 'agent-programs', 'registry.json'));
  await assert.rejects(installer.install('unheard-of', call), {
    code: 'AGENT_REGISTRY_FAILED',
    details: { reason: 'there is no such file' },
  });

  const installed = await installedAgents(dataDirectory);
  assert.deepEqual([...installed.keys()].sort(), ['alpha', 'alpha-2']);
  assert.equal(
    await readlink(join(dataDirectory, 'agent-programs', 'bin', 'registry-alpha')),
    '../registry-alpha@2.0.0/node_modules/.bin/alpha-program',
  );
  const { agents } = resolveTrestle('{}').settings;
  const agent = buildAgentCatalog(agents, installed).find(({ id }) => id === 'alpha');
  assert.deepEqual(agent, {
    id: 'alpha',
    label: 'Agent alpha',
    category: 'protocol-adapter',
    place: {
      kind: 'program',
      protocol: 'acp',
      command: 'registry-alpha',
      args: ['--acp'],
      environment: { ALPHA_MODE: 'strict' },
    },
  });

  assert.equal(await removeAgent('alpha', dataDirectory), true);
  assert.deepEqual([...(await installedAgents(dataDirectory)).keys()], ['alpha-2'], 'a longer id is another agent');
  const left = await readdir(join(dataDirectory, 'agent-programs'));
  assert.deepEqual(
    left.filter((name) => name.startsWith('registry-')),
    ['registry-alpha-2@3.0.0'],
  );
  await assert.rejects(removeAgent('alpha', dataDirectory), { code: 'AGENT_UNKNOWN' });
});
