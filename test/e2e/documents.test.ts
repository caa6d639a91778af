import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { freePort } from '../kit/free-port.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

/**
 * Runs every block of README and docs as printed, in order, each document in a fresh folder that looks like a checkout.
 * Only ports are replaced. The server of a document runs in a real terminal of its own, the other blocks in one shell.
 */

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);
const START_LIMIT_MS = 90_000;
const SHELL_LIMIT_MS = 100_000;
const INTERRUPT_LIMIT_MS = 20_000;

/** Blocks that cannot run here, by a part of their text, and why. A block that matches none of these runs. */
const EXCEPTIONS: readonly (readonly [part: string, reason: string])[] = [
  ['npm install && npm test', 'this test is a part of it'],
  ['npx node examples/nothing-lost.ts', 'both have tests of their own: nothing-lost.test.ts, whole-story.test.ts'],
  ['trestle run --ask --model demo/agent', 'needs a person at a terminal: readme-day.test.ts types the answers'],
  ['AGENT_TASKS_MODEL=groq/', 'needs a key of a model API: test/bench/agent-tasks plays the tasks'],
  ['npx --package ./trestle-', 'has a test of its own: tarball.test.ts'],
  ['\nclaude\n', 'needs a terminal program that is not part of Trestle'],
  ['qwen --auth-type openai', 'needs a terminal program that is not part of Trestle'],
  ['trestle adapter opencode --listen 10.0.0.7', 'needs a second machine'],
  ['export OPENAI_API_KEY=sk-...', 'needs a key of a model API'],
  ["from '@ai-sdk/openai-compatible'", 'runs in test/clients, which installs the package'],
  ["from '@langchain/openai'", 'runs in test/clients, which installs the package'],
  ["from '@anthropic-ai/sdk'", 'runs in test/clients, which installs the package'],
  ["from '@google/genai'", 'runs in test/clients, which installs the package'],
  ['trestle models test groq/', 'needs a key of a model API'],
];

interface Block {
  readonly language: string;
  readonly text: string;
  /** The file that the sentence before a YAML block names. */
  readonly file: string | undefined;
}

function blocksOf(page: string): readonly Block[] {
  return [...page.matchAll(/(?:`([\w-]+\.yaml)`:\n+)?^```(\w*)[^\n]*\n(.*?)^```/gms)].map(
    ([, file, language = '', text = '']) => ({ language, text, file }),
  );
}

/** A block that ends with a command that serves until it is interrupted. */
function isServer({ language, text }: Block): boolean {
  const last = text.trim().split('\n').at(-1) ?? '';
  return /^(sh|console)$/.test(language) && /(npm start|serve --listen\b.*)(?: -- .*)?$|^ {2}First admin/.test(last);
}

const documents = ['README.md', ...(await readdir(join(ROOT, 'docs'))).filter((name) => name.endsWith('.md'))].map(
  (name) => (name === 'README.md' ? name : `docs/${name}`),
);

for (const name of documents) {
  const page = await readFile(join(ROOT, name), 'utf8');
  const blocks = blocksOf(page).filter(({ text }) => !EXCEPTIONS.some(([part]) => text.includes(part)));
  if (blocks.every(({ language }) => language === 'text' || language === '')) continue;
  test(`DU-2: every block of ${name} runs as printed`, { timeout: 400_000 }, (t) => runDocument(t, page, blocks));
}

test('DU-2: every exception is still needed', async () => {
  const pages = await Promise.all(documents.map((name) => readFile(join(ROOT, name), 'utf8')));
  for (const [part] of EXCEPTIONS)
    assert.ok(
      pages.some((page) => page.includes(part)),
      part,
    );
});

async function runDocument(t: TestContext, page: string, blocks: readonly Block[]): Promise<void> {
  const ports = new Map<string, string>();
  for (const port of ['8787', '8800', '8801']) ports.set(port, String(await freePort()));
  const atFreePorts = (text: string) => text.replaceAll(/\b(?:8787|8800|8801)\b/g, (port) => ports.get(port) ?? port);
  const folder = await checkout(t);
  const environment = {
    PATH: `${folder}/bin:${ROOT}node_modules/.bin:${process.env.PATH ?? ''}`,
    HOME: await temporaryFolder(t),
    TERM: 'xterm',
  };
  const script: string[] = [];
  let terminal: Terminal | undefined;
  const server = async (command: string): Promise<void> => {
    await terminal?.interrupt();
    terminal = openTerminal(t, command, folder, { ...environment, TRESTLE_LISTEN: atFreePorts('127.0.0.1:8787') });
    await terminal.ready(atFreePorts('http://127.0.0.1:8787/readyz'));
  };
  const flush = async (): Promise<void> => {
    const text = script.splice(0).join('\necho\n');
    if (text === '') return;
    const setup = /setup#([\w-]+)/.exec(terminal?.output() ?? '')?.[1];
    const env = { ...environment, ...(setup !== undefined && { SETUP: setup }) };
    // Servers that the page put into the background end with it.
    const whole = `trap 'status=$?; for job in $(jobs -p); do kill "$job"; done; wait; exit $status' EXIT\n${text}`;
    const { stdout } = await run('/bin/bash', ['-ec', whole], { cwd: folder, env, timeout: SHELL_LIMIT_MS });
    assert.doesNotMatch(stdout, /"error":\s*[{"]/, stdout);
  };
  // A page without a server of its own speaks of the one that the README has started.
  const needsServer = /127\.0\.0\.1:8787/.test(page) && !blocks.some(isServer);
  if (needsServer) await server('npm start');
  for (const [index, block] of blocks.entries()) {
    const text = atFreePorts(block.text);
    if (isServer(block)) {
      await flush();
      await server(serverCommand(text));
    } else if (block.language === 'sh') {
      // Whatever responds with an error ends the script.
      script.push(text.replaceAll('curl ', 'curl --fail-with-body '));
    } else if (block.language === 'js' || block.language === 'ts') {
      await flush();
      const file = join(folder, `block-${index}.${block.language === 'js' ? 'mjs' : 'ts'}`);
      await writeFile(file, text.replaceAll("'trestle/client'", `'${ROOT}src/client/trestle-client.ts'`));
      await run('node', [file], { cwd: folder, env: environment, timeout: SHELL_LIMIT_MS });
    } else if (block.language === 'yaml') {
      await checkConfiguration(t, folder, environment, { ...block, text });
    } else if (block.language === 'json') {
      JSON.parse(text);
    }
  }
  await flush();
  await terminal?.interrupt();
}

/** The lines after `$ ` of a console block, or all lines of a shell block; npm has installed this checkout already. */
function serverCommand(text: string): string {
  const typed = /^\$ /m.test(text) ? [...text.matchAll(/^\$ (.*)$/gm)].map(([, line]) => line) : [text.trim()];
  return typed.join('\n').replaceAll('npm install && ', '');
}

async function checkConfiguration(t: TestContext, folder: string, env: NodeJS.ProcessEnv, block: Block): Promise<void> {
  const named = block.file === undefined ? undefined : join(folder, block.file);
  const file = named ?? join(await temporaryFolder(t), 'trestle.yaml');
  await writeFile(file, block.text, { mode: 0o600 });
  assert.equal(typeof parse(block.text), 'object');
  // Variables that the page leaves to the reader.
  const variables = Object.fromEntries(
    [...block.text.matchAll(/\$\{env:(\w+)\}/g)].map(([, name]) => [name, 'x'.repeat(40)]),
  );
  await run('trestle', ['config', 'check', '--config', file], { cwd: folder, env: { ...env, ...variables } });
}

/** A folder in which npm and the sources are found as in a checkout, and nothing else. */
async function checkout(t: TestContext): Promise<string> {
  const folder = await temporaryFolder(t);
  for (const name of ['package.json', '.npmrc', 'node_modules', 'scripts', 'src', 'examples']) {
    await symlink(join(ROOT, name), join(folder, name));
  }
  await mkdir(join(folder, 'bin'));
  const command = join(folder, 'bin/trestle');
  await writeFile(command, `#!/bin/sh\nexec node '${ROOT}scripts/run.cjs' '${ROOT}src/main.ts' "$@"\n`);
  await chmod(command, 0o755);
  return folder;
}

interface Terminal {
  output(): string;
  ready(url: string): Promise<void>;
  /** Presses Ctrl-C and waits until the program has ended. */
  interrupt(): Promise<void>;
}

/** Runs a command in a pseudo-terminal, as a person does. */
function openTerminal(t: TestContext, command: string, cwd: string, env: NodeJS.ProcessEnv): Terminal {
  const child: ChildProcess = spawn('script', ['--quiet', '--flush', '--command', command, '/dev/null'], {
    cwd,
    env: { ...env, SHELL: '/bin/bash' },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let text = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  const ended = once(child, 'exit');
  t.after(async () => {
    if (child.exitCode === null) child.stdin?.write('\x03');
    await Promise.race([ended, sleep(INTERRUPT_LIMIT_MS)]);
    child.kill('SIGKILL');
  });
  return {
    output: () => text,
    async ready(url) {
      const answers = () =>
        fetch(url).then(
          ({ status }) => status === 200,
          () => false,
        );
      await until(`${command} is ready`, async () => (await answers()) || child.exitCode !== null, START_LIMIT_MS);
      assert.equal(child.exitCode, null, text);
    },
    async interrupt() {
      child.stdin?.write('\x03');
      await ended;
    },
  };
}
