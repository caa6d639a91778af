import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, realpath, symlink, writeFile } from 'node:fs/promises';
import { createServer as createNetServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { findLimitEnforcement } from '../../src/platform/child-process/sandbox-limits.ts';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { freePort } from '../kit/free-port.ts';
import { type RunningProgram, runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startScriptedModel } from '../kit/scripted-model.ts';
import { until } from '../kit/until.ts';

const { program: BUBBLEWRAP, missing } = await findBubblewrap();
const options = { skip: missing };
const ROOT = join(import.meta.dirname, '..', '..');
const AGENT = join(ROOT, 'test', 'kit', 'scripted-acp-agent.ts');
const TOKEN = 'main-token-0123456789abcdef';
const SSH_KEY = 'the private key of the operator';

/** The program with a scripted agent in the sandbox, a home with secrets, and two folders to work in. */
async function startFenced(scope: Scope, bridge: object = {}, more: object = {}) {
  const folder = await realpath(await temporaryFolder(scope));
  const home = join(folder, 'home');
  const work = join(home, 'work');
  const other = join(home, 'other');
  for (const one of [work, other, join(home, '.ssh')]) await mkdir(one, { recursive: true });
  await writeFile(join(home, '.ssh', 'id_ed25519'), SSH_KEY);
  await writeFile(join(other, 'notes'), 'notes of another session');
  const config = join(folder, 'trestle.yaml');
  const settings = {
    bridge: {
      sandbox: 'require',
      sandbox_program: BUBBLEWRAP,
      sandbox_read_paths: [ROOT],
      workspace_roots: [home],
      limits: { sandbox_processes: 100, sandbox_temporary_bytes: 4 * 2 ** 20 },
      ...bridge,
    },
    agents: { catalog: ['builtin'], custom: [{ id: 'scripted', command: process.execPath, args: [AGENT] }] },
    ...more,
  };
  await writeFile(config, JSON.stringify(settings));
  const environment = { BRIDGE_AUTH_TOKEN: TOKEN, HOME: home, SSH_AUTH_SOCK: '/tmp/agent.sock' };
  const program = await startProgram(scope, { args: ['--config', config], environment });
  return { program, home, work, other, config };
}

let sessions = 0;

/** What a line of a shell prints when the agent runs it. */
async function sh({ url }: RunningProgram, workingDirectory: string, line: string): Promise<string> {
  sessions += 1;
  const routing = { explicitProviderId: 'scripted' };
  const params = { sessionId: `s${sessions}`, taskPrompt: `sh ${line}`, workingDirectory, routing };
  const { result, error } = await callBridge(url, 'session.start', params, TOKEN).answer;
  assert.equal(error, undefined, JSON.stringify(error));
  return String(result?.output ?? JSON.stringify(result));
}

const shared = missing === false ? startFenced({ after }) : undefined;

async function fenced() {
  assert.ok(shared !== undefined);
  return shared;
}

test('an agent in the sandbox works in its folder, and what it writes is there', options, async () => {
  const { program, work } = await fenced();
  assert.equal(await sh(program, work, 'echo made >file && pwd'), `${work}\n[0]`);
  assert.equal(await readFile(join(work, 'file'), 'utf8'), 'made\n');
});

test('the key of the data, ssh keys and the folder of another session cannot be read', options, async () => {
  const { program, home, work, other } = await fenced();
  const secrets = [
    join(program.dataDirectory, 'secret.key'),
    join(program.dataDirectory, 'bridge.db'),
    join(home, '.ssh', 'id_ed25519'),
    join(other, 'notes'),
    '/etc/shadow',
  ];
  for (const file of secrets) {
    const said = await sh(program, work, `cat '${file}'`);
    assert.match(said, /No such file or directory\n\[1\]$/, said);
  }
  const links = await sh(program, work, `ln -s '${join(other, 'notes')}' link; cat link`);
  assert.match(links, /No such file/);
  // The same program without the sandbox reads it: the attack itself works.
  assert.equal(await readFile(join(work, 'link'), 'utf8'), 'notes of another session');
});

test('the bridge and its environment cannot be seen among the processes', options, async () => {
  const { program, work } = await fenced();
  assert.match(await sh(program, work, `cat /proc/${program.pid}/environ`), /No such file or directory/);
  const all = await sh(program, work, 'cat /proc/[0-9]*/environ | tr "\\0" "\\n"');
  assert.ok(!all.includes(TOKEN));
  assert.ok(!all.includes('SSH_AUTH_SOCK'), 'the ssh agent is for work outside of the sandbox');
  assert.match(await sh(program, work, `kill -9 ${program.pid}`), /No such process/);
});

test('a server of this machine cannot be reached, neither directly nor through the proxy', options, async (t) => {
  const { program, work } = await fenced();
  const database = createNetServer((socket) => socket.end('postgres'));
  const port = await new Promise<number>((resolve) => {
    database.listen(0, '127.0.0.1', () => resolve((database.address() as { port: number }).port));
  });
  t.after(() => database.close());
  for (const target of [port, program.port]) {
    const direct = await sh(program, work, `curl -sS -m 5 --noproxy '*' http://127.0.0.1:${target}/`);
    assert.match(direct, /Failed to connect|Couldn't connect|\[7\]$/, direct);
    for (const host of ['127.0.0.1', 'localhost', '[::1]', '169.254.169.254', '10.0.0.1', '0x7f.1']) {
      const said = await sh(program, work, `curl -sS -m 5 --noproxy '' -x "$HTTP_PROXY" 'http://${host}:${target}/'`);
      assert.match(said, /may not reach this host/, `${host}: ${said}`);
    }
    const tunnel = await sh(
      program,
      work,
      `curl -sS -m 5 --noproxy '' -p -x "$HTTP_PROXY" 'http://127.0.0.1:${target}/'`,
    );
    assert.match(tunnel, /403/, tunnel);
  }
});

test('our models can be called with the key of the owner, and nothing else of this program', options, async () => {
  const { program, work } = await fenced();
  const chat = JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: 'hello there' }] });
  const url = 'http://127.0.0.1:47113';
  const call = `curl -sS -m 10 -H 'content-type: application/json' -H 'authorization: Bearer any' -d '${chat}' ${url}/v1/chat/completions`;
  assert.match(await sh(program, work, call), /"content":"hello there"/);
  const contents = JSON.stringify({ contents: [{ role: 'user', parts: [{ text: 'hello Gemini' }] }] });
  const gemini = `curl -sS -m 10 -H 'content-type: application/json' -H 'x-goog-api-key: any' -d '${contents}' ${url}/v1beta/models/demo/echo:generateContent`;
  assert.match(await sh(program, work, gemini), /"text":"hello Gemini"/);
  const closed = ['/v1beta/files', '/v1beta/models/../../keys', '/v1beta/modelsx', '/v1betax/models'];
  for (const path of [
    ...closed,
    '/acp/rpc',
    '/keys',
    '/usage',
    '/v1/../keys',
    '/v1/%2e%2e/keys',
    '/api/bridge/sessions',
    '/',
  ]) {
    const said = await sh(program, work, `curl -sS -m 10 --path-as-is -w ' %{http_code}' ${url}${path}`);
    assert.match(said, /404\[0\]$/, `${path}: ${said}`);
  }
});

test('the files of a prompt can be read in the sandbox, not changed, and end with the session', options, async () => {
  const { program, work } = await fenced();
  const data = Buffer.from([1, 0, 2, 0]).toString('base64');
  // The prompt names the file below: that is what the line gets as its input.
  const line = `file=$(sed -n 's/^- \\(.*\\) (.*/\\1/p') <<'END'; od -An -tx1 "$file"; rm -f "$file"; echo x >>"$file"; echo "at $file"`;
  const params = {
    sessionId: 'with-file',
    taskPrompt: `sh ${line}`,
    workingDirectory: work,
    routing: { explicitProviderId: 'scripted' },
    attachments: [{ name: 'given.bin', contentType: 'application/x-any', data }],
  };
  const { result, error } = await callBridge(program.url, 'session.start', params, TOKEN).answer;
  const said = String(result?.output);
  assert.match(said, /01 00 02 00/, JSON.stringify([result, error]));
  assert.match(said, /Read-only file system/);
  const file = /at (.*given\.bin)/.exec(said)?.[1] ?? '';
  assert.equal((await readFile(file)).toString('base64'), data);
  await callBridge(program.url, 'session.close', { sessionId: 'with-file' }, TOKEN).answer;
  await until('the file to be gone', () => !existsSync(file));
});

test('git works in the sandbox, and what a hostile repository runs through it stays inside', options, async () => {
  const { program, home } = await fenced();
  const repository = join(home, 'repository');
  await mkdir(repository);
  const spy = `cat '${join(home, '.ssh', 'id_ed25519')}' >&2; touch '${join(home, 'out-of-git')}'; touch ran`;
  const hook = `printf '#!/bin/sh\\n%s\\n' "${spy}" >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit`;
  const commit = 'git add . && git -c user.name=a -c user.email=a@b.c commit -qm first';
  const said = await sh(
    program,
    repository,
    `git init -q . && echo a >a && ${hook} && ${commit}; git log --oneline; ls`,
  );
  assert.match(said, / first\n/, said);
  assert.match(said, /\nran\n/, 'the hook ran, in the sandbox');
  assert.ok(!said.includes(SSH_KEY), said);
  assert.ok(!existsSync(join(home, 'out-of-git')));
});

test('nothing outside the folder can be changed, and what is written to the home is private', options, async () => {
  const { program, home, work, other } = await fenced();
  await sh(
    program,
    work,
    `echo x >'${home}/out'; echo x >'${other}/out'; echo x >/usr/out; echo x >/etc/out; echo x >/tmp/out-of-here`,
  );
  for (const file of [join(home, 'out'), join(other, 'out'), '/usr/out', '/etc/out', '/tmp/out-of-here']) {
    assert.ok(!existsSync(file), file);
  }
  assert.match(await sh(program, work, `rm -rf '${ROOT}/package.json'`), /Read-only file system/);
});

test('the folder for temporary files is bounded', options, async () => {
  const { program, work } = await fenced();
  const said = await sh(program, work, 'head -c 20000000 /dev/zero >/tmp/fill; stat -c %s /tmp/fill');
  assert.match(said, /No space left/);
  assert.ok(Number(/^(\d+)$/m.exec(said)?.[1]) <= 4 * 2 ** 20, said);
});

test('a process that was left behind ends with the session', options, async () => {
  const { program, other } = await fenced();
  const mark = `left${process.pid}`;
  await sh(program, other, `setsid nohup sh -c 'sleep 1000; : ${mark}' >/dev/null 2>&1 &`);
  const left = async () => (await runningWith(mark)).length;
  await until('the process to run', async () => (await left()) > 0);
  await callBridge(program.url, 'session.close', { sessionId: `s${sessions}` }, TOKEN).answer;
  await until('the process to be gone', async () => (await left()) === 0);
});

test('a fork bomb stops at the limit of processes', options, async (t) => {
  if (findLimitEnforcement().processes === 'none') {
    t.skip('THE LIMIT OF PROCESSES IS NOT TESTED: root, and no control group can be made here');
    return;
  }
  const { program, home } = await fenced();
  // A folder, and so a process, that no other session uses: it ends with the session.
  const place = join(home, 'bomb');
  await mkdir(place);
  const mark = `bomb${process.pid}`;
  const bomb = `i=0; while [ $i -lt 300 ]; do sh -c 'sleep 100; : ${mark}' >/dev/null 2>&1 & i=$((i+1)); done; echo tried`;
  const said = await sh(program, place, bomb);
  assert.match(said, /[Cc]annot fork/, said);
  const running = await runningWith(mark);
  assert.ok(running.length > 0 && running.length < 100, String(running.length));
  await callBridge(program.url, 'session.close', { sessionId: `s${sessions}` }, TOKEN).answer;
  for (const pid of running) await until('the bomb to be gone', () => !existsSync(`/proc/${pid}`));
});

/** Processes of this machine with a word in their command line. */
async function runningWith(word: string): Promise<readonly string[]> {
  const found: string[] = [];
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    const line = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
    if (line.includes(`: ${word}`) && !line.includes('acp-agent')) found.push(pid);
  }
  return found;
}

test('under permissions: deny the folder is read-only for every agent', options, async (t) => {
  const { program, work } = await startFenced(t, { permissions: 'deny' });
  assert.match(await sh(program, work, 'echo x >file'), /Read-only file system/);
});

test(
  'a turn that is denied everything only reads, and the next one of its session may write again',
  options,
  async (t) => {
    const state = await realpath(await temporaryFolder(t));
    const agent = { command: process.execPath, args: [AGENT, '--state', state] };
    const custom = [
      { id: 'scripted', command: process.execPath, args: [AGENT] },
      { id: 'lasting', ...agent },
    ];
    const { program, work } = await startFenced(
      t,
      { sandbox_write_paths: [state] },
      { agents: { catalog: ['builtin'], custom } },
    );
    let started = false;
    const say = async (sessionId: string, agentId: string, line: string, permissions: 'allow' | 'deny') => {
      const routing = { explicitProviderId: agentId, permissions };
      const params = { sessionId, taskPrompt: `sh ${line}`, workingDirectory: work, routing };
      const method = started ? 'session.message' : 'session.start';
      started = true;
      const { result, error } = await callBridge(program.url, method, params, TOKEN).answer;
      return String(result?.output ?? JSON.stringify(error));
    };
    assert.match(await say('turns', 'lasting', 'echo x >first; cat first', 'deny'), /Read-only file system/);
    assert.equal(existsSync(join(work, 'first')), false);
    assert.equal(await say('turns', 'lasting', 'echo y >second; cat second', 'allow'), 'y\n[0]');
    assert.match(await say('turns', 'lasting', 'echo z >second; cat second', 'deny'), /^y\n.*Read-only file system/);
    // An agent that cannot take a conversation up in another process stays as it began.
    started = false;
    assert.match(await say('stays', 'scripted', 'echo x >third; true', 'deny'), /Read-only file system/);
    assert.match(await say('stays', 'scripted', 'echo x >third; true', 'allow'), /Read-only file system/);
  },
);

/** An MCP server whose only tool shows a file. */
const PEEK = `
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  const answer = (result) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
  const capabilities = { tools: {} };
  const serverInfo = { name: 'peek', version: '1' };
  if (method === 'initialize') answer({ protocolVersion: params.protocolVersion, capabilities, serverInfo });
  if (method === 'tools/list') answer({ tools: [{ name: 'peek', inputSchema: { type: 'object' } }] });
  if (method !== 'tools/call') return;
  let text;
  try {
    text = require('node:fs').readFileSync(params.arguments.file, 'utf8');
  } catch (error) {
    text = 'not read: ' + error.code;
  }
  answer({ content: [{ type: 'text', text }] });
});`;

test('commands and MCP servers of the built-in agent run in the sandbox too', options, async (t) => {
  const tools = await realpath(await temporaryFolder(t));
  const script = join(tools, 'peek.cjs');
  await writeFile(script, PEEK);
  const args = ['-c', 'cat secret; pwd; echo in >made'];
  const calls = [
    { name: 'run_command', arguments: { command: 'sh', args } },
    { name: 'peek__peek', arguments: { file: 'made' } },
    { name: 'peek__peek', arguments: { file: 'secret' } },
  ];
  const model = await startScriptedModel(() => {
    const toolCall = calls[model.requests.length - 1];
    return toolCall === undefined ? { text: ['done'] } : { toolCall };
  });
  t.after(() => model.stop());
  const mcp = [{ name: 'peek', command: process.execPath, args: [script] }];
  const builtin = { model: 'scripted', base_url: `${model.url}/v1`, api_key: 'model-key-0123456789', mcp };
  const { program, work } = await startFenced(t, { sandbox_read_paths: [tools] }, { agents: { builtin } });
  await symlink(join(program.dataDirectory, 'secret.key'), join(work, 'secret'));
  const params = { sessionId: 'b', taskPrompt: 'go', workingDirectory: work };
  const { result } = await callBridge(program.url, 'session.start', params, TOKEN).answer;
  assert.equal(result?.output, 'done', JSON.stringify(result));
  const said = JSON.stringify(model.requests.at(-1));
  for (const text of [work, 'No such file', '"in\\n"', 'not read: ENOENT'])
    assert.ok(said.includes(text), `${text}: ${said}`);
  assert.equal(await readFile(join(work, 'made'), 'utf8'), 'in\n');
});

test('with require and no bubblewrap the program does not start, and says why', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ bridge: { sandbox: 'require', sandbox_program: '/nowhere/bwrap' } }));
  const args = ['--config', config, '--data-dir', folder, '--listen', `127.0.0.1:${await freePort()}`];
  const { code, stderr } = await runProgram(['serve', ...args]);
  assert.equal(code, 1);
  assert.match(
    stderr,
    /bridge\.sandbox is `require`, but no sandbox is available: there is no program \/nowhere\/bwrap/,
  );
  const doctor = await runProgram(['doctor', ...args]);
  assert.match(doctor.stdout, /sandbox.*required, and there is no program \/nowhere\/bwrap/);
});

test('people who are not trusted need the sandbox: without it a plan with the bridge is refused at the start', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const settings = { bridge: { sandbox_program: '/nowhere/bwrap' }, plans: { pro: { bridge: true } } };
  await writeFile(config, JSON.stringify(settings));
  const args = ['--config', config, '--data-dir', folder, '--listen', `127.0.0.1:${await freePort()}`];
  const { code, stderr } = await runProgram(['serve', ...args]);
  assert.equal(code, 1);
  assert.match(
    stderr,
    /plans\.pro\.bridge is true, but no sandbox is available .*there is no program \/nowhere\/bwrap/,
  );
});

test('doctor says what is in force', options, async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ bridge: { sandbox_program: BUBBLEWRAP, sandbox_hosts: ['example.org'] } }));
  const { stdout } = await runProgram(['doctor', '--config', config, '--data-dir', folder]);
  assert.match(stdout, /sandbox.*bwrap, network: example\.org, .*processes.*memory by/);
});

test('nothing of the sandbox is left when the bridge is killed', options, async (t) => {
  const { program, work } = await startFenced(t);
  const routing = { explicitProviderId: 'scripted' };
  const call = callBridge(
    program.url,
    'session.start',
    { sessionId: 'k', taskPrompt: 'child', workingDirectory: work, routing },
    TOKEN,
  );
  call.answer.catch(() => undefined);
  await call.until(({ type }) => type === 'delta');
  const children = async () =>
    (await readFile(`/proc/${program.pid}/task/${program.pid}/children`, 'utf8')).trim().split(' ');
  const pids = await children();
  assert.ok(pids.length >= 2, String(pids));
  await program.stop('SIGKILL');
  await until('all to be gone', () => pids.every((pid) => !existsSync(`/proc/${pid}`)));
});
