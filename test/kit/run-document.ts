import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import type { TSchema } from 'typebox';
import { Check, Clean } from 'typebox/value';
import { parse } from 'yaml';
import { StartParams } from '../../src/bridge/contract/session.ts';
import { QuestionForm } from '../../src/bridge/contract/session-update.ts';
import { freePort } from './free-port.ts';
import { type Block, isListed, type PrintedDocument, wayOf } from './printed-blocks.ts';
import { startPostgres } from './real-postgres.ts';
import { type Scope, temporaryFolder } from './running-program.ts';
import { until } from './until.ts';

/**
 * Runs the blocks of a document as printed, in their order, in a fresh folder. The server of a document runs in a real
 * terminal of its own, the other blocks in one shell. Replaced are ports, hosts and databases of examples, and the
 * ids of samples. What a page takes for granted, such as an agent that asks, is made by `GIVEN`.
 */

/** Where the program is: the folder that documents are read in, and what finds the commands there. */
export interface Place {
  readonly folder: string;
  readonly path: string;
  /** What stands for `trestle/client`. */
  readonly client: string;
}

const START_LIMIT_MS = 90_000;
const SHELL_LIMIT_MS = 200_000;
const CHECK_LIMIT_MS = 60_000;
const INTERRUPT_LIMIT_MS = 20_000;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;
const PORTS = ['8787', '8800', '8801'];
const SAMPLE_ID = '01m7j5adcfb770yc2xwtdfhqkt';

interface Given {
  readonly document: string;
  /** The block that needs it, by a part of its text. */
  readonly part: string;
  /** Shell lines that make it, before the block. */
  readonly script: string;
}

const CALL = "curl -s --fail-with-body -H 'content-type: application/json'";
const HERE = 'http://127.0.0.1:8787';
/** A turn that waits for permission to write a file; `$PERMISSION` is the id of its question. */
const ASKING = (session: string) => `
${CALL} ${HERE}/acp/rpc -d '{"jsonrpc":"2.0","id":"given","method":"session.start","params":{"sessionId":"${session}","taskPrompt":"Write ${session}.txt about bridges","workingDirectory":"'"$PWD"'","routing":{"explicitProviderId":"builtin","explicitModel":"demo/agent","permissions":"ask"}}}' > given-${session}.json &
ASKED=$!
until PERMISSION=$(${CALL} ${HERE}/api/bridge/permissions | grep -o 'perm_[0-9a-z]*'); do sleep 0.2; done
`;
/** The first administrator, who is in a team, with a personal access token. */
const TEAM = `
value() { sed -n "s/.*\\"$1\\":\\"\\([^\\"]*\\)\\".*/\\1/p"; }
${CALL} ${HERE}/api/auth/setup -d "{\\"token\\":\\"$SETUP\\",\\"name\\":\\"Ann\\",\\"email\\":\\"ann@example.org\\",\\"password\\":\\"copper kettle 47\\"}"
LOGIN=$(${CALL} ${HERE}/api/auth/login -d '{"identifier":"Ann","password":"copper kettle 47"}' | value access_token)
TEAM=$(${CALL} ${HERE}/api/auth/teams -H "authorization: Bearer $LOGIN" -d '{"name":"release","plan":"pro"}' | value id)
${CALL} "${HERE}/api/auth/teams/$TEAM/members" -H "authorization: Bearer $LOGIN" -d '{"email":"ann@example.org"}'
PERSONAL=$(${CALL} ${HERE}/api/auth/tokens -H "authorization: Bearer $LOGIN" -d '{"name":"given","scopes":["completions","bridge","account"]}' | value token)
`;

const GIVEN: readonly Given[] = [
  { document: 'docs/bridge.md', part: '"team":', script: TEAM },
  { document: 'docs/keys-and-usage.md', part: 'x-team: $TEAM', script: TEAM },
  { document: 'docs/workbench.md', part: '"decision":"allow"', script: ASKING('asks') },
  {
    document: 'docs/workbench.md',
    part: '{"mode":"plan"}',
    script: 'wait $ASKED\ntrestle run --session my-session "Say hello"',
  },
  { document: 'docs/workbench.md', part: 'Use tabs, please', script: ASKING('my-session') },
  {
    document: 'docs/workbench.md',
    part: '/undo',
    script: `${CALL} ${HERE}/api/bridge/permissions/$PERMISSION/answer -d '{"decision":"allow"}'
wait $ASKED
TURN=$(grep -o 'turn-[0-9a-z]*' given-my-session.json | tail -n 1)
test -e my-session.txt`,
  },
];

/** Settings that a page takes for granted. */
const SETTINGS: Readonly<Record<string, object>> = {
  'docs/bridge.md': { plans: { pro: { models: ['*'], bridge: true } }, bridge: { trust_users: true } },
  'docs/keys-and-usage.md': { plans: { pro: { models: ['*'] } } },
};

/** What stands in the JSON of examples, by the member that tells it apart. */
const SCHEMAS: readonly (readonly [member: string, schema: TSchema])[] = [
  ['attachments', StartParams],
  ['mcpServers', StartParams],
  ['taskPrompt', StartParams],
  ['form', QuestionForm],
];

export async function runDocument(scope: Scope, { name, page, blocks: all }: PrintedDocument, place: Place) {
  const blocks = all.filter((block) => !isListed(block));
  const ports = new Map<string, string>();
  for (const port of PORTS) ports.set(port, String(await freePort()));
  const database = blocks.some(({ text }) => text.includes('--database postgres://'))
    ? await startPostgres()
    : undefined;
  scope.after(() => database?.stop());
  const here = (text: string) =>
    text
      .replaceAll(/(?<=--database )postgres:\/\/\S+/g, () => database?.url ?? '')
      .replaceAll(/https:\/\/(?:trestle|models)\.example\.com(?=\/(?:api|v1)\/)/g, HERE)
      .replaceAll(/\b(?:8787|8800|8801)\b/g, (port) => ports.get(port) ?? port);
  const { folder } = place;
  const environment = {
    PATH: place.path,
    HOME: await temporaryFolder(scope),
    TERM: 'xterm',
    ...(database !== undefined && { TRESTLE_SECRET_KEY: Buffer.alloc(32, 1).toString('base64') }),
  };
  const settings = SETTINGS[name];
  if (settings !== undefined) await writeFile(join(folder, 'trestle.yaml'), JSON.stringify(settings), { mode: 0o600 });
  const script: string[] = [];
  let terminal: Terminal | undefined;
  const server = async (command: string): Promise<void> => {
    await terminal?.interrupt();
    terminal = openTerminal(scope, command, folder, { ...environment, TRESTLE_LISTEN: here('127.0.0.1:8787') });
    await terminal.ready(here(`${HERE}/readyz`));
  };
  const flush = async (): Promise<void> => {
    const text = script.splice(0).join('\necho\n');
    if (text === '') return;
    const readSetup = () => /setup#([\w-]+)\s/.exec(terminal?.output() ?? '')?.[1];
    const setup = text.includes('$SETUP') ? await until('the link of the first administrator', readSetup) : undefined;
    const env = { ...environment, ...(setup !== undefined && { SETUP: setup }) };
    // Servers that the page put into the background end with it.
    const whole = `trap 'status=$?; for job in $(jobs -p); do kill "$job"; done; wait; exit $status' EXIT\n${text}`;
    const stdout = await execute(['/bin/bash', '-ec', whole], folder, env, SHELL_LIMIT_MS);
    assert.doesNotMatch(stdout, /"error":\s*[{"]/, stdout);
  };
  // A page without a server of its own speaks of the one that the README has started.
  const isOfServer = /127\.0\.0\.1:8787/.test(page) && !blocks.some((block) => wayOf(block) === 'server');
  if (isOfServer) await server('npm start');
  for (const block of blocks) {
    const text = here(block.text);
    const given = GIVEN.filter(({ document, part }) => document === name && block.text.includes(part));
    script.push(...given.map((one) => here(one.script)));
    switch (wayOf(block)) {
      case 'server':
        await flush();
        await server(typedLines(text).replaceAll(/^npm install(?: && |\n)/gm, ''));
        break;
      case 'banner':
        await untilShown(() => terminal?.output() ?? '', text);
        break;
      case 'shell':
        // Whatever responds with an error ends the script.
        script.push(typedLines(text).replaceAll('curl ', 'curl --fail-with-body '));
        break;
      case 'request':
        script.push(asCall(text, here(HERE)));
        break;
      case 'program': {
        await flush();
        const file = join(folder, `block-${block.line}.${block.language === 'js' ? 'mjs' : 'ts'}`);
        await writeFile(file, text.replaceAll("'trestle/client'", `'${place.client}'`));
        await execute(['node', file], folder, environment, SHELL_LIMIT_MS);
        break;
      }
      case 'settings':
        await checkSettings(scope, folder, environment, { ...block, text });
        break;
      case 'params':
        checkMembers(JSON.parse(`{${text.replaceAll(/\s\/\/ .*$/gm, '')}}`), block);
        break;
      case 'data':
        checkMembers(JSON.parse(text), block);
        break;
      case undefined:
        assert.fail(`${name}:${block.line}: nothing runs this block, and it is not in LISTED of printed-blocks.ts`);
    }
  }
  await flush();
  await terminal?.interrupt();
}

/** The lines after `$ ` where a block has some, otherwise all. */
function typedLines(text: string): string {
  return /^\$ /m.test(text) ? [...text.matchAll(/^\$ (.*)$/gm)].map(([, line]) => line).join('\n') : text.trim();
}

/** A printed HTTP request as a call of curl; the ids of samples are those that `GIVEN` has made. */
function asCall(text: string, base: string): string {
  const [head = '', body = ''] = text.trim().split('\n\n');
  const [first = '', ...headers] = head.split('\n');
  const [method = '', path = ''] = first.split(' ');
  const names = headers.map((header) => `-H '${header}'`).join(' ');
  return `curl -s --fail-with-body -X ${method} "${base}${path}" ${names} -d '${body}'`
    .replaceAll(`perm_${SAMPLE_ID}`, '$PERMISSION')
    .replaceAll(`turn-${SAMPLE_ID}`, `'"$TURN"'`);
}

/** Waits until every line of a printed banner is shown, but for the data directory and the token of the link. */
async function untilShown(output: () => string, printed: string): Promise<void> {
  for (const line of printed.split('\n').filter((one) => one.trim() !== '')) {
    const pattern = line
      .replaceAll(/[\\^$*+?.()|[\]{}]/g, '\\$&')
      .replace(/data ~\S+/, 'data \\S+')
      .replace('#\\.\\.\\.', '#\\S+');
    // The server is ready before the terminal has shown that it is.
    await until(`the terminal to show ${line}`, () => new RegExp(pattern).test(stripVTControlCharacters(output())));
  }
}

/** Members that the schema does not know are faults as well: most schemas let them pass. */
function checkMembers(value: Record<string, unknown>, { document, line }: Block): void {
  for (const [member, schema] of SCHEMAS) {
    if (!(member in value)) continue;
    const whole =
      schema === StartParams ? { sessionId: 'printed', ...withoutCommand(value) } : (value[member] as object);
    assert.ok(Check(schema, whole), `${document}:${line}: ${member}`);
    assert.deepEqual(Clean(schema, structuredClone(whole)), whole, `${document}:${line}: ${member}`);
  }
}

/** Editors have `mcpServers` by name, in a form of their own. */
function withoutCommand({ mcpServers, ...value }: Record<string, unknown>): object {
  return Array.isArray(mcpServers) ? { ...value, mcpServers } : value;
}

async function checkSettings(scope: Scope, folder: string, env: NodeJS.ProcessEnv, block: Block): Promise<void> {
  const named = block.file === undefined ? undefined : join(folder, block.file);
  const file = named ?? join(await temporaryFolder(scope), 'trestle.yaml');
  await writeFile(file, block.text, { mode: 0o600 });
  assert.equal(typeof parse(block.text), 'object');
  // Variables that the page leaves to the reader; as long as a secret key in base64.
  const variables = Object.fromEntries(
    [...block.text.matchAll(/\$\{env:(\w+)\}/g)].map(([, name]) => [name, `${'x'.repeat(42)}A=`]),
  );
  const command = ['trestle', 'config', 'check', '--config', file];
  await execute(command, folder, { ...env, ...variables }, CHECK_LIMIT_MS);
}

/** Runs a command to its end and returns what it printed; the error of one that fails has both streams. */
function execute(
  [file = '', ...args]: readonly string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
  timeout: number,
): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(file, args, { cwd, env, timeout, maxBuffer: MAX_OUTPUT_BYTES }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${error.message}\n${stdout}\n${stderr}`, { cause: error }));
    });
  });
}

interface Terminal {
  output(): string;
  ready(url: string): Promise<void>;
  /** Presses Ctrl-C and waits until the program has ended. */
  interrupt(): Promise<void>;
}

/** Runs a command in a pseudo-terminal, as a person does. */
function openTerminal(scope: Scope, command: string, cwd: string, env: NodeJS.ProcessEnv): Terminal {
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
  scope.after(async () => {
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
