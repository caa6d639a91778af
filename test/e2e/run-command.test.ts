import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createTrestleClient } from '../../src/client/trestle-client.ts';
import { callControlSocket } from '../../src/platform/control-socket/control-socket.ts';
import { dataFiles } from '../../src/system/data-directory.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal } from '../kit/terminal.ts';
import { until } from '../kit/until.ts';

const TOKEN = 'token-of-the-server-0123456789';
const server = await startProgram({ after }, { environment: { BRIDGE_AUTH_TOKEN: TOKEN } });
const folder = await temporaryFolder({ after });
const data = ['--data-dir', server.dataDirectory];

const trestle = createTrestleClient({ url: server.url, token: TOKEN });
after(() => trestle.close());

const run = (args: readonly string[], input = '') =>
  runProgram(['run', ...args, ...data], { workingDirectory: folder, input });

test('DU-14: run prints the answer as text, from a server whose token the shell does not have', async () => {
  const { code, stdout, stderr } = await run(['Hello,', 'Trestle']);
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: 'Hello, Trestle\n', stderr: '' });
});

test('run adds standard input for a final dash, and continues a session', async () => {
  const first = await run(['Review:', '-', '--session', 'piped'], 'one line\n');
  assert.equal(first.stdout, 'Review:\n\none line\n', first.stderr);
  const second = await run(['again', '--session', 'piped', '--json']);
  const { status, output, sessionId } = JSON.parse(second.stdout);
  assert.deepEqual({ status, output, sessionId }, { status: 'completed', output: 'again', sessionId: 'piped' });
});

test('a session that run continues keeps its folder, unless --folder names another', async (t) => {
  const elsewhere = await temporaryFolder(t);
  const runIn = (workingDirectory: string, ...args: string[]) =>
    runProgram(['run', '--json', ...args, ...data], { workingDirectory });
  const folderOf = async (sessionId: string) => (await trestle.sessions.get(sessionId)).session.folder;
  const ended = (jobId: string) =>
    until('the job to end', async () => {
      const job = await trestle.jobs.get(jobId);
      return job.status === 'completed' ? job.result : undefined;
    });
  await trestle.session('placed').start('one', { workingDirectory: folder }).result;
  const [continued, submitted, started] = await Promise.all([
    runIn(elsewhere, '--session', 'placed', 'two'),
    runIn(elsewhere, '--session', 'placed', '--background', 'three'),
    runIn(elsewhere, '--session', 'new-job', '--background', 'x'),
  ]);
  assert.equal(JSON.parse(continued.stdout).resolvedWorkingDirectory, folder, continued.stderr);
  assert.equal((await ended(JSON.parse(submitted.stdout).jobId))?.resolvedWorkingDirectory, folder);
  assert.equal((await ended(JSON.parse(started.stdout).jobId))?.resolvedWorkingDirectory, elsewhere);
  await runIn(elsewhere, '--session', 'placed', '--folder', '.', 'four');
  assert.equal(await folderOf('placed'), elsewhere);
  await runIn(elsewhere, '--session', 'new-name', 'five');
  assert.equal(await folderOf('new-name'), elsewhere, 'a session that is started works in the folder of the command');
});

test('sessions steer reaches the running turn, and fork copies a session', async () => {
  const session = trestle.session('steered', { routing: { explicitModel: 'demo/echo?delay=1000' } });
  const turn = session.start('word '.repeat(600));
  await until('the turn to run', async () => {
    const found = await trestle.sessions.get('steered').catch(() => undefined);
    return found?.session.state === 'running';
  });
  const steered = await command('sessions', 'steer', 'steered', 'and eleven');
  assert.match(steered.stdout, /^Sent to the turn \S+\.\n$/, steered.stderr);
  await session.cancel();
  await turn.result;
  const { updates } = await trestle.sessions.updates('steered', { kinds: 'steer' });
  assert.deepEqual(
    updates.map((update) => 'text' in update && update.text),
    ['and eleven'],
  );
  await trestle.session('forked').start('My name is Ada').result;
  const [{ turnId = '' } = {}] = (await trestle.sessions.turns('forked')).turns;
  const [late, whole, upTo, unknown] = await Promise.all([
    command('sessions', 'steer', 'forked', 'too late'),
    command('sessions', 'fork', 'forked'),
    command('sessions', 'fork', 'forked', '--turn', turnId, '--json'),
    command('sessions', 'fork', 'forked', '--turn', 'nothing'),
  ]);
  assert.deepEqual([late.code, unknown.code], [1, 1]);
  assert.match(late.stderr, /^trestle: .*\(NOT_STEERABLE\)\n$/);
  assert.match(whole.stdout, /^\S+\n$/, whole.stderr);
  for (const copy of [whole.stdout.trim(), JSON.parse(upTo.stdout).sessionId]) {
    assert.equal((await trestle.session(copy).message('go on').result).status, 'completed');
  }
});

test('run says on standard error what its turn waits for, also with --json', async () => {
  const first = run(['--session', 'queue', '--model', 'demo/echo?delay=1500', 'one two three']);
  await until('the first turn to run', async () =>
    trestle.sessions.get('queue').then(
      ({ session }) => session.state === 'running',
      () => false,
    ),
  );
  const second = await run(['--session', 'queue', '--json', 'next']);
  assert.equal(second.stderr, 'waiting for the turn that runs in this session\n');
  assert.equal(JSON.parse(second.stdout).status, 'completed');
  assert.equal((await first).code, 0);
});

test('run hands a task to the server with --background', async () => {
  const { code, stdout } = await run(['--background', 'later']);
  assert.equal(code, 0);
  assert.match(stdout, /^job-\w+\n$/);
});

test('DB-3: run sends files along with --attach', async () => {
  await writeFile(join(folder, 'notes.txt'), 'the blue one');
  const { code, stdout, stderr } = await run(['--attach', 'notes.txt', 'Which', 'one?']);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /Which one\?.*notes\.txt.*the blue one/s);
  const missing = await run(['--attach', 'nowhere.txt', 'x']);
  assert.equal(missing.code, 2);
  assert.match(missing.stderr, /nowhere\.txt cannot be attached/);
});

test('run starts a session with the MCP servers of a file', async () => {
  const servers = { files: { command: 'files-mcp', env: { KEY: 'file-secret' } }, web: { url: 'https://mcp.test/x' } };
  await writeFile(join(folder, 'mcp.json'), JSON.stringify({ mcpServers: servers }));
  const { code, stderr } = await run(['--mcp', 'mcp.json', '--session', 'with-servers', 'hello']);
  assert.equal(code, 0, stderr);
  assert.deepEqual((await trestle.sessions.get('with-servers')).mcpServers, [
    { name: 'files', type: 'stdio', target: 'files-mcp' },
    { name: 'web', type: 'http', target: 'https://mcp.test' },
  ]);
  await run(['--mcp', 'mcp.json', '--session', 'later', '--background', 'hello']);
  const shown = await until('the job to start its session', async () =>
    trestle.sessions.get('later').then(
      ({ mcpServers }) => mcpServers.map(({ name }) => name),
      () => undefined,
    ),
  );
  assert.deepEqual(shown, ['files', 'web']);
  await writeFile(join(folder, 'broken.json'), '{ "mcpServers": { "a": "file-secret');
  await writeFile(join(folder, 'other.json'), '{ "servers": {} }');
  for (const [args, expected] of [
    [['--mcp', 'broken.json', 'x'], /broken\.json cannot be used: it is not JSON/],
    [['--mcp', 'other.json', 'x'], /other\.json cannot be used: write/],
    [['--mcp', 'nowhere.json', 'x'], /nowhere\.json cannot be read/],
  ] as const) {
    const wrong = await run(args);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, expected);
    assert.equal(wrong.stderr.includes('file-secret'), false);
  }
});

test('run says what is wrong and ends with 1; without a task with 2', async () => {
  const agent = await run(['--agent', 'nobody', 'x']);
  assert.deepEqual([agent.code, agent.stdout], [1, '']);
  assert.match(
    agent.stderr,
    /There is no agent "nobody" here\. Known agents: builtin.*"trestle agents" lists those that can be installed/,
  );
  const place = await run(['--folder', '/proc/nowhere', 'x']);
  assert.equal(place.code, 1);
  assert.match(place.stderr, /^trestle: the folder \(--folder\) cannot be used/);
  const nothing = await run([]);
  assert.equal(nothing.code, 2);
  assert.match(nothing.stderr, /the task is missing: .*, or trestle run - to read it from standard input\n$/);
  for (const words of [['-'], [' '], ['', '-']]) {
    const blank = await run(words);
    assert.deepEqual([blank.code, blank.stdout], [2, ''], blank.stderr);
    assert.match(blank.stderr, words.includes('-') ? /the task is missing: .*input was empty/ : /the task is missing/);
  }
});

test('the token of commands is the operator, and ends with its server', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const options = { dataDirectory, environment: { BRIDGE_AUTH_TOKEN: TOKEN } };
  const ping = (url: string, token: string) =>
    fetch(`${url}/api/ping`, { headers: { authorization: `Bearer ${token}` } }).then(({ status }) => status);
  const socket = dataFiles(dataDirectory).controlSocket('bridge');
  const one = await startProgram(t, options);
  const answer = await callControlSocket(socket, 'token', {}, 5000);
  assert.ok(answer !== undefined);
  const { token } = answer.result as { token: string };
  assert.notEqual(token, TOKEN);
  assert.equal(await ping(one.url, token), 200);
  assert.equal(await ping(one.url, ''), 401);
  await one.stop();
  const two = await startProgram(t, options);
  assert.equal(await ping(two.url, token), 401);
});

test('without a server, run starts one for the task and leaves nothing running', async (t) => {
  const home = await temporaryFolder(t);
  await mkdir(join(home, 'work'));
  const args = ['--data-dir', join(home, 'data')];
  const { code, stdout, stderr } = await runProgram(['run', 'alone', ...args], {
    workingDirectory: join(home, 'work'),
  });
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: 'alone\n', stderr: '' });
  const background = await runProgram(['run', '--background', 'x', ...args], { workingDirectory: join(home, 'work') });
  assert.equal(background.code, 1);
  assert.match(background.stderr, /needs a running server/);
  // The data directory is free again.
  await startProgram(t, { dataDirectory: join(home, 'data') });
});

test('Ctrl-C on a terminal cancels the task', async (t) => {
  const options = { workingDirectory: folder };
  const args = [
    'run',
    '--session',
    'slow',
    '--model',
    'demo/echo?delay=300',
    'one two three four five six seven',
    ...data,
  ];
  const terminal = startInTerminal(t, args, options);
  await terminal.shows('two');
  terminal.type('\x03');
  assert.equal(await terminal.ended, 130, terminal.screen());
  assert.match(terminal.screen(), /cancelled/);
  await until('the turn to end at the server', async () => {
    const { stdout } = await run(['--session', 'slow', '--json', 'next']);
    return JSON.parse(stdout).status === 'completed';
  });
});

test('chat talks over several turns, and ends with Ctrl-D', async (t) => {
  const terminal = startInTerminal(t, ['chat', '--session', 'talk', ...data], { workingDirectory: folder });
  await terminal.shows('> ');
  terminal.type('first line\r');
  terminal.type('second line\r');
  await until('the first answer', () => terminal.screen().split('first line').length > 2);
  await until('the second answer', () => terminal.screen().split('second line').length > 2);
  terminal.type('\x04');
  assert.equal(await terminal.ended, 0, terminal.screen());
  assert.match(terminal.screen(), /trestle chat --session talk/);
  const busy = startInTerminal(t, ['chat', '--model', 'demo/echo?delay=300', ...data], { workingDirectory: folder });
  await busy.shows('> ');
  busy.type('one two three\r');
  await until('the answer to begin', () => busy.screen().split('one').length > 2);
  busy.type('\x04');
  assert.equal(await busy.ended, 0, busy.screen());
  assert.equal(busy.screen().split('three').length, 3, 'Ctrl-D during a turn lets it end');
  const piped = await runProgram(['chat', ...data], { workingDirectory: folder });
  assert.equal(piped.code, 2);
});

const command = (...args: string[]) => runProgram([...args, ...data], { workingDirectory: folder });

test('sessions lists, shows, exports, archives and closes what ran', async () => {
  await run(['--session', 'kept', 'Remember this \u001b[31mline']);
  await run(['--session', 'kept', 'and this one']);
  const [list, shown, exported, asJson] = await Promise.all([
    command('sessions', '--search', 'kept'),
    command('sessions', 'show', 'kept'),
    command('sessions', 'export', 'kept'),
    command('sessions', 'export', 'kept', '--json'),
  ]);
  assert.match(list.stdout, /^idle {2}\d+ s ago +kept {2}builtin {2}2 turns .*Remember this \[31mline\n$/);
  assert.match(shown.stdout, /^session {2}kept\n/);
  assert.match(shown.stdout, /> Remember this .*line\n.*\n\nturn-\w+\n> and this one\nand this one\n$/s);
  assert.match(exported.stdout, /and this one/);
  assert.equal(JSON.parse(asJson.stdout).session.sessionId, 'kept');
  await run(['--session', 'odd\u009b31m', 'x']);
  const odd = await command('sessions', '--search', 'odd');
  assert.match(odd.stdout, / odd31m /);
  assert.ok(!odd.stdout.includes('\u009b'), 'an id that a caller chose cannot control the terminal');
  assert.equal((await command('sessions', 'archive', 'kept')).stdout, 'Archived kept.\n');
  const archived = await command('sessions', '--state', 'archived', '--json');
  assert.deepEqual(
    JSON.parse(archived.stdout).sessions.map((session: { sessionId: string }) => session.sessionId),
    ['kept'],
  );
  const json = ['--json', 'kept'];
  for (const [verb, told] of [
    ['archive', { sessionId: 'kept', archived: true }],
    ['unarchive', { sessionId: 'kept', archived: false }],
    ['cancel', { sessionId: 'kept', cancelled: true }],
  ] as const) {
    assert.deepEqual(JSON.parse((await command('sessions', verb, ...json)).stdout), told);
  }
  for (const [args, words] of [
    [['undo', 'kept', 'turn-x'], /no turn "turn-x"; trestle sessions show kept lists its turns/],
    [['merge', 'kept'], /start one with trestle run --worktree/],
    [['steer', 'kept', 'x'], /Send it with trestle run --session, so that/],
  ] as const) {
    const refused = await command('sessions', ...args);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, words);
  }
  const step = await command('sessions', 'merge', 'kept', '--step', 'one');
  assert.deepEqual([step.code, step.stderr], [2, 'trestle: --step takes a number\n']);
  assert.equal((await command('sessions', 'close', 'kept')).stdout, 'Closed kept.\n');
  const gone = ['show', 'close', 'cancel', 'export', 'archive', 'follow'].map(async (verb) => {
    const { code, stderr } = await command('sessions', verb, 'kept');
    assert.equal(code, 1, verb);
    assert.match(stderr, /^trestle: .*\(SESSION_NOT_FOUND\)\n$/);
  });
  await Promise.all(gone);
});

test('sessions follow shows the turns of others as they happen', async (t) => {
  await run(['--session', 'watched', 'first']);
  const terminal = startInTerminal(t, ['sessions', 'follow', 'watched', ...data], { workingDirectory: folder });
  await until('the follower to show a turn of another', async () => {
    await run(['--session', 'watched', 'seen by the follower']);
    return terminal.screen().includes('seen by the follower');
  });
  assert.doesNotMatch(terminal.screen(), /first/);
  terminal.type('\x03');
  assert.equal(await terminal.ended, 130, terminal.screen());
});

test('jobs lists, shows and cancels background work', async () => {
  const model = 'demo/echo?delay=5000';
  const { stdout } = await run(['--background', '--session', 'long', '--model', model, 'one two three four five']);
  const jobId = stdout.trim();
  assert.match((await command('jobs')).stdout, new RegExp(`(pending|running) .*${jobId}`));
  assert.equal((await command('jobs', 'cancel', jobId)).stdout, `Cancelled ${jobId}.\n`);
  await until('the job to end', async () => {
    const job = JSON.parse((await command('jobs', 'show', jobId)).stdout);
    return job.status === 'failed' && job.errorCode === 'JOB_CANCELLED';
  });
  const again = await command('jobs', 'cancel', jobId);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /has already ended: failed/);
  const unknown = await command('jobs', 'show', 'job-unknown');
  assert.match(unknown.stderr, /there is no job "job-unknown"/);
  const wrong = await command('jobs', '--status', 'lost');
  assert.deepEqual(
    [wrong.code, wrong.stderr],
    [2, 'trestle: --status takes one of pending, running, completed, failed\n'],
  );
});

test('usage shows what calls and sessions have cost, in tables and as JSON', async (t) => {
  await run(['--session', 'counted', 'one two three']);
  await run(['--session', 'counted-slow', '--model', 'demo/echo?delay=1', 'one']);
  const { completions, sessions } = JSON.parse((await command('usage', '--json')).stdout);
  const requests = completions.data.map((row: { group: string; requests: number }) => row.requests);
  const echo = completions.data.find(({ group }: { group: string }) => group === 'demo/echo');
  assert.equal(completions.group_by, 'model');
  const names = [...completions.data, ...sessions.data].map(({ group }: { group: string }) => group);
  assert.deepEqual([...new Set(names)], ['demo/echo'], 'the options of a demo model are no model of their own');
  assert.ok(echo.requests >= 1 && echo.prompt_tokens >= 3, JSON.stringify(echo));
  assert.equal(
    completions.total.requests,
    requests.reduce((sum: number, one: number) => sum + one, 0),
  );
  const worked = sessions.data.find(({ group }: { group: string }) => group === 'demo/echo');
  assert.ok(worked.turns >= worked.sessions && worked.tokens > 0, JSON.stringify(sessions));
  const text = (await command('usage', '--by', 'day')).stdout;
  const today = completions.to;
  assert.match(
    text,
    new RegExp(`^Completions, ${completions.from} to ${today}\nday +calls +errors +input +output +USD\n${today} `),
  );
  assert.match(text, new RegExp(`\nSessions of agents\nday +sessions +turns +tokens +USD\n${today} `));
  const past = await command('usage', '--from', '2020-01-01', '--to', '2020-01-31', '--by', 'key');
  const nothing = 'Completions, 2020-01-01 to 2020-01-31\nNo calls.\n\nSessions of agents\nNo sessions.\n';
  assert.deepEqual([past.code, past.stdout], [0, nothing]);
  const group = await command('usage', '--by', 'weather');
  assert.deepEqual([group.code, group.stdout], [2, '']);
  assert.match(group.stderr, /--by takes one of model, day, key/);
  const day = await command('usage', '--from', 'yesterday');
  assert.deepEqual([day.code, day.stdout], [2, '']);
  assert.match(day.stderr, /^trestle: --from is not a day such as/);
  const turned = await command('usage', '--from', '2020-02-01', '--to', '2020-01-01');
  assert.deepEqual([turned.code, turned.stdout], [2, '']);
  assert.match(turned.stderr, /to \(2020-01-01\) is before from \(2020-02-01\)/);
  const terminal = startInTerminal(t, ['usage', ...data], { workingDirectory: folder });
  assert.equal(await terminal.ended, 0);
  assert.ok(terminal.screen().startsWith(`\u001b[1mCompletions, ${completions.from}`), terminal.screen());
});
