import assert from 'node:assert/strict';
import { readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal, type Terminal } from '../kit/terminal.ts';
import { until } from '../kit/until.ts';

const PASSWORD = 'copper kettle 47 over the pass';
const server = await startProgram({ after });
const host = new URL(server.url).host;
const post = async (path: string, body: object, token = '') => {
  const response = await fetch(`${server.url}/api/auth/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token !== '' && { authorization: `Bearer ${token}` }) },
    body: JSON.stringify(body),
  });
  return (await response.json().catch(() => ({}))) as Record<string, string>;
};
const setup = { name: 'Ada', email: 'ada@example.org', password: PASSWORD };
await post('setup', { ...setup, token: String(server.summary.firstAdmin).split('#')[1] });

/** A machine of its own: where its logins are stored, and how its commands run. */
async function newMachine(scope: Scope) {
  const home = await temporaryFolder(scope);
  const options = { environment: { XDG_CONFIG_HOME: home, XDG_DATA_HOME: home }, workingDirectory: home };
  return {
    file: join(home, 'trestle', 'login.json'),
    run: (...args: string[]) => runProgram(args, options),
    /** As if `TRESTLE_URL` had this value. */
    runAt: (url: string, ...args: string[]) =>
      runProgram(args, { ...options, environment: { ...options.environment, TRESTLE_URL: url } }),
    inTerminal: (...args: string[]) => startInTerminal(scope, args, options),
  };
}

async function codeIn(terminal: Terminal): Promise<string> {
  return until('the code', () => /\b[B-Z]{4}-[B-Z]{4}\b/.exec(terminal.screen())?.[0]);
}

async function decide(terminal: Terminal, approve: boolean, identifier = 'Ada'): Promise<void> {
  const code = await codeIn(terminal);
  const { token } = await post('login', { identifier, password: PASSWORD });
  await post(`device/approval/${code}`, { approve }, token);
}

test('login, work on that server, create and revoke tokens, and log out, on a terminal', async (t) => {
  const machine = await newMachine(t);
  const login = machine.inTerminal('login', server.url);
  await login.shows(`Open ${server.url}/device in a browser`);
  await decide(login, true);
  assert.equal(await login.ended, 0, login.screen());
  assert.match(login.screen(), /Logged in at 127\.0\.0\.1:\d+ as Ada <ada@example\.org> \(root\)/);
  assert.equal((await stat(machine.file)).mode & 0o777, 0o600);
  const { token } = JSON.parse(await readFile(machine.file, 'utf8'));
  assert.ok(!login.screen().includes(token), 'it is never shown');

  const who = await machine.run('whoami');
  assert.deepEqual([who.code, who.stdout], [0, `Ada <ada@example.org> (root) at ${host}\n`]);
  const ran = await machine.run('run', '--model', 'demo/echo', 'Hello');
  assert.deepEqual([ran.code, ran.stdout, ran.stderr.split('\n')[0]], [0, 'Hello\n', `on ${host}`], ran.stderr);
  const sessions = JSON.parse((await machine.run('sessions', '--json')).stdout);
  assert.equal(sessions.sessions.length, 1);
  const agents = await machine.run('agents');
  assert.equal(agents.stderr, `on ${host}\n`);
  assert.match(agents.stdout, /^ {2}ok +builtin /);
  assert.doesNotMatch(agents.stdout, /qwen/, 'what can be installed here is not for that server');

  const creation = machine.inTerminal('token', 'create', 'ci', '--scopes', 'completions', '--days', '7');
  await creation.shows('A new token needs your approval in a browser');
  await decide(creation, true);
  assert.equal(await creation.ended, 0, creation.screen());
  const created = /^tpt_[\w-]{43}/m.exec(creation.screen())?.[0] ?? '';
  const chat = () =>
    fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${created}` },
      body: JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] }),
    }).then(({ status }) => status);
  assert.equal(await chat(), 200);
  const usage = JSON.parse((await machine.run('usage', '--by', 'key', '--json')).stdout);
  const counted = usage.completions.data.map(({ group, requests }: { group: string; requests: number }) => [
    group,
    requests,
  ]);
  assert.ok(
    counted.length > 0 && counted.every(([group]: [string]) => /^(internal|tok_\w+)$/.test(group)),
    `${counted}`,
  );
  assert.deepEqual([usage.sessions.by, usage.sessions.total.sessions], ['agent', 1]);
  const others = await machine.run('usage', '--from', 'yesterday');
  assert.match(others.stderr, /from is not a day such as/);
  const list = await machine.run('token', 'list');
  const [line = '', own = ''] = list.stdout.split('\n');
  assert.match(line, /tok_\w+ {2}tpt_.* completions {2}ci$/);
  assert.match(own, /bridge, completions, account {2}trestle on .* \(this machine\)$/);
  const id = /tok_\w+/.exec(line)?.[0] ?? '';
  assert.equal((await machine.run('token', 'revoke', id)).stdout, `Revoked ${id}.\n`);
  assert.equal(await chat(), 401);
  assert.equal((await machine.run('token', 'print')).stdout, `${token}\n`);

  const logout = await machine.run('logout');
  assert.deepEqual([logout.code, logout.stderr], [0, `Logged out from ${host}.\n`]);
  const session = await fetch(`${server.url}/api/auth/session`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal(session.status, 401, 'the token is revoked');
  const nobody = await machine.run('whoami');
  assert.deepEqual([nobody.code, nobody.stdout], [1, '']);
  assert.match(nobody.stderr, /you are not logged in; log in with: trestle login/);
});

test('--team works for a team of the person who is logged in', async (t) => {
  const machine = await newMachine(t);
  const early = await machine.run('run', '--team', 'team_x', 'Hello');
  assert.equal(early.code, 2, early.stderr);
  assert.match(early.stderr, /working for a team needs a login; log in with: trestle login/);
  const login = machine.inTerminal('login', server.url);
  await decide(login, true);
  assert.equal(await login.ended, 0, login.screen());
  const { token, user } = (await post('login', { identifier: 'Ada', password: PASSWORD })) as unknown as {
    token: string;
    user: { id: string };
  };
  const { team } = (await post('teams', { name: 'Night shift' }, token)) as unknown as { team: { id: string } };
  await post(`teams/${team.id}/members`, { userId: user.id }, token);
  const ran = await machine.run('run', '--team', team.id, '--session', 'shift', '--model', 'demo/echo', 'Hello');
  assert.deepEqual([ran.code, ran.stdout], [0, 'Hello\n'], ran.stderr);
  const owners = async (...args: string[]) =>
    (JSON.parse((await machine.run('sessions', '--json', ...args)).stdout).sessions as { owner: string }[]).map(
      ({ owner }) => owner,
    );
  assert.deepEqual(await owners('--team', team.id), [`team:${team.id}`]);
  assert.ok((await owners()).includes(`team:${team.id}`));
  const added = await machine.run('schedules', '--team', team.id, 'add', 'tidy up', '--every', '1d', '--json');
  assert.equal(JSON.parse(added.stdout).owner, `team:${team.id}`, added.stdout + added.stderr);
  const jobs = await machine.run('jobs', '--team', 'team_none');
  assert.deepEqual([jobs.code, jobs.stdout], [1, '']);
  assert.match(jobs.stderr, /You are not a member of the team "team_none".*NOT_IN_TEAM/);
});

test('someone whose plan includes no agents reads the own usage, and learns why nothing can be run', async (t) => {
  const { token } = await post('login', { identifier: 'Ada', password: PASSWORD });
  const { token: invitation = '' } = await post('admin/invitations', {}, token);
  const eve = { name: 'Eve', email: 'eve@example.org', password: PASSWORD };
  const accepted = await post('invitations/accept', { ...eve, token: invitation });
  assert.equal(accepted.error, undefined, accepted.message);
  const machine = await newMachine(t);
  const login = machine.inTerminal('login', server.url);
  await decide(login, true, 'Eve');
  assert.equal(await login.ended, 0, login.screen());
  const usage = await machine.run('usage');
  assert.equal(usage.code, 0, usage.stderr);
  assert.match(usage.stdout, /No calls\.\n[\s\S]*No sessions\./);
  const ran = await machine.run('run', 'Hello');
  assert.equal(ran.code, 1);
  assert.match(ran.stderr, /ask an administrator for a plan with agents/);
});

test('Ctrl-C while waiting, and a denial, store nothing', async (t) => {
  const machine = await newMachine(t);
  const stopped = machine.inTerminal('login', server.url);
  await stopped.shows('Waiting for your approval');
  stopped.type('\x03');
  assert.equal(await stopped.ended, 130, stopped.screen());
  assert.match(stopped.screen(), /Stopped\. Nothing was stored\./);
  const denied = machine.inTerminal('login', server.url);
  await decide(denied, false);
  assert.equal(await denied.ended, 1, denied.screen());
  assert.match(denied.screen(), /the request was denied in the browser/);
  await assert.rejects(stat(machine.file), { code: 'ENOENT' });
});

test('a login that was revoked is said to be so; --server and TRESTLE_URL name another server', async (t) => {
  const machine = await newMachine(t);
  const login = machine.inTerminal('login', server.url);
  await decide(login, true);
  assert.equal(await login.ended, 0, login.screen());
  const elsewhere = await machine.run('whoami', '--server', 'https://other.example');
  assert.equal(elsewhere.code, 1);
  assert.match(
    elsewhere.stderr,
    /not logged in at other\.example; log in with: trestle login https:\/\/other\.example/,
  );
  for (const command of [
    ['whoami'],
    ['sessions'],
    ['jobs', 'list'],
    ['run', 'x'],
    ['token', 'list'],
    ['usage'],
    ['agents'],
  ]) {
    const there = await machine.runAt('https://other.example', ...command);
    assert.deepEqual([there.code, there.stdout], [1, ''], command[0]);
    assert.match(there.stderr, /not logged in at other\.example; log in with: trestle login/, command[0]);
  }
  for (const url of [server.url, `${server.url}/`]) {
    const here = await machine.runAt(url, 'whoami');
    assert.deepEqual([here.code, here.stdout], [0, `Ada <ada@example.org> (root) at ${host}\n`], here.stderr);
  }
  const flagWins = await machine.runAt('https://other.example', 'whoami', '--server', server.url);
  assert.equal(flagWins.code, 0, flagWins.stderr);
  const malformed = await machine.runAt('ftp://x', 'whoami');
  assert.deepEqual([malformed.code, malformed.stdout], [2, '']);
  assert.match(malformed.stderr, /"ftp:\/\/x" is not the address of a server/);
  const onThisMachine = await machine.runAt('local', 'run', '--background', 'x');
  assert.match(onThisMachine.stderr, /needs a running server/, 'TRESTLE_URL=local is this machine');
  const local = await machine.run('run', '--server', 'local', '--background', 'x');
  assert.match(local.stderr, /needs a running server/, 'there is no server on that machine');
  const wrong = await machine.run('doctor', '--server', server.url);
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /doctor works on this machine/);
  const install = await machine.run('agents', 'install', 'qwen', '--server', server.url);
  assert.equal(install.code, 2);
  assert.match(install.stderr, /agents install works on this machine/);

  const { token, tokenId } = JSON.parse(await readFile(machine.file, 'utf8'));
  const headers = { authorization: `Bearer ${token}` };
  await fetch(`${server.url}/api/auth/tokens/${tokenId}`, { method: 'DELETE', headers });
  for (const command of [['whoami'], ['sessions'], ['run', 'x'], ['token', 'list'], ['usage']]) {
    const { code, stdout, stderr } = await machine.run(...command);
    assert.deepEqual([code, stdout], [1, ''], command[0]);
    assert.match(stderr, /the login at .* has ended or was revoked; log in again with: trestle login http/, command[0]);
  }
});

test('a server that goes away while a login waits, or that is no server of ours, ends the command with a reason', async (t) => {
  const machine = await newMachine(t);
  const answer = { device_code: 'x', user_code: 'BBBB-CCCC', verification_uri: 'http://127.0.0.1/device', interval: 1 };
  const leaving = createServer((_request, response) => {
    response.setHeader('connection', 'close').end(JSON.stringify(answer), () => leaving.close());
  });
  const other = createServer((_request, response) => void response.end('<html>hello</html>'));
  for (const one of [leaving, other]) {
    await new Promise<void>((resolve) => one.listen(0, '127.0.0.1', resolve));
    t.after(() => one.close());
  }
  const urlOf = (one: typeof other) => `http://127.0.0.1:${(one.address() as { readonly port: number }).port}`;
  const login = machine.inTerminal('login', urlOf(leaving));
  await login.shows('does not answer; trying again');
  assert.equal(await login.ended, 1, login.screen());
  assert.match(login.screen(), /trestle: the server at 127\.0\.0\.1:\d+ does not answer\r?\n$/);
  const foreign = await machine.run('login', urlOf(other));
  assert.equal(foreign.code, 1);
  assert.match(foreign.stderr, /is not a Trestle server with accounts; check the address/);
  const nowhere = await machine.run('login');
  assert.deepEqual([nowhere.code, nowhere.stdout], [2, '']);
  assert.match(nowhere.stderr, /name the server: trestle login/);
});
