import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { GOOD_PASSWORD } from '../kit/accounts/accounts-client.ts';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const AGENT = fileURLToPath(new URL('../kit/scripted-acp-agent.ts', import.meta.url));
const SCRIPTED = { explicitProviderId: 'scripted' };
const PATIENCE_MS = 60_000;

const postgres = await startPostgres();
after(() => postgres.stop());
const folder = await temporaryFolder({ after });
const config = join(folder, 'trestle.yaml');
const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
await writeFile(
  config,
  JSON.stringify({
    agents: { catalog: ['scripted'], default: 'scripted', custom },
    bridge: { trust_users: true, user_root: join(folder, 'people', '{user}') },
    plans: { crew: { models: ['demo/*'], bridge: true } },
  }),
);
const environment = {
  BRIDGE_AUTH_TOKEN: 'bridge-token-of-this-test',
  COMPLETIONS_MASTER_KEY: 'master-key-of-this-test',
};
const start = () => startProgram({ after }, { args: ['--config', config, '--database', postgres.url], environment });
const one = await start();
const other = await start();

type Row = Readonly<Record<string, unknown>>;

async function send({ url }: RunningProgram, method: string, path: string, token: string, body?: object) {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: {
      ...(token !== '' && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: (text === '' ? {} : JSON.parse(text)) as Row };
}

async function expectOk(...call: Parameters<typeof send>): Promise<Row> {
  const { status, body } = await send(...call);
  assert.ok(status < 300, `${call[1]} ${call[2]}: ${status} ${JSON.stringify(body)}`);
  return body;
}

async function logIn(program: RunningProgram, email: string): Promise<string> {
  const given = { identifier: email, password: GOOD_PASSWORD };
  return String((await expectOk(program, 'POST', '/api/auth/login', '', given)).token);
}

const setup = { token: String(one.summary.firstAdmin).split('#')[1], name: 'Root', password: GOOD_PASSWORD };
await expectOk(one, 'POST', '/api/auth/setup', '', { ...setup, email: 'root@example.org' });
const root = await logIn(one, 'root@example.org');

interface Person {
  readonly id: string;
  readonly email: string;
  /** Of a login session, begun on the first instance. */
  readonly login: string;
}

let people = 0;
async function invited(role = 'user'): Promise<Person> {
  people += 1;
  const name = `Person ${people}`;
  const email = `person${people}@example.org`;
  const invitation = { email, role, mail: false, ...(role === 'user' && { plan: 'crew' }) };
  const { token } = await expectOk(one, 'POST', '/api/auth/admin/invitations', root, invitation);
  const accepted = await expectOk(one, 'POST', '/api/auth/invitations/accept', '', {
    ...{ token, name, password: GOOD_PASSWORD },
  });
  return { id: String((accepted.user as Row).id), email, login: await logIn(one, email) };
}

async function accessToken({ login }: Person, scopes: readonly string[]): Promise<{ id: string; token: string }> {
  const made = await expectOk(one, 'POST', '/api/auth/tokens', login, { name: 'laptop', scopes });
  return { id: String((made.accessToken as Row | undefined)?.id ?? made.id), token: String(made.token) };
}

const statusOf = async (token: string, path: string) => (await send(other, 'GET', path, token)).status;

/** Until a change on the first instance counts on the other one. Each kind is tried a few times; the times are printed. */
async function measured(t: TestContext, what: string, round: () => Promise<() => Promise<boolean>>): Promise<void> {
  const times: number[] = [];
  for (let count = 0; count < 5; count += 1) {
    const isInForce = await round();
    const from = performance.now();
    await until(what, isInForce, PATIENCE_MS);
    times.push(performance.now() - from);
  }
  t.diagnostic(`${what}: after ${times.map(Math.round).join(', ')} ms`);
  // Everything would be read again after a second anyway, where messages between the instances do not arrive.
  assert.ok(Math.min(...times) < 500, `the best of all is ${Math.min(...times)} ms`);
}

test('a pause, another role, a revoked token and an ended login count on the other instances', async (t) => {
  await measured(t, 'the token of someone who was paused is refused', async () => {
    const person = await invited();
    const { token } = await accessToken(person, ['bridge', 'completions']);
    for (const path of ['/v1/models', '/api/bridge/sessions']) assert.equal(await statusOf(token, path), 200, path);
    await expectOk(one, 'POST', `/api/auth/admin/users/${person.id}/pause`, root, {});
    return async () =>
      (await statusOf(token, '/v1/models')) === 401 && (await statusOf(token, '/api/bridge/sessions')) === 401;
  });
  await measured(t, 'the token of someone who has lost the role of an operator sees own work only', async () => {
    const person = await invited('operator');
    const { token } = await accessToken(person, ['bridge', 'admin']);
    const path = '/api/bridge/nodes';
    assert.equal(await statusOf(token, path), 200);
    await expectOk(one, 'POST', `/api/auth/admin/users/${person.id}/role`, root, { role: 'user' });
    return async () => (await statusOf(token, path)) === 403;
  });
  await measured(t, 'a token that was revoked is refused', async () => {
    const person = await invited();
    const { id, token } = await accessToken(person, ['bridge']);
    assert.equal(await statusOf(token, '/api/bridge/sessions'), 200);
    await expectOk(one, 'DELETE', `/api/auth/tokens/${id}`, person.login);
    return async () => (await statusOf(token, '/api/bridge/sessions')) === 401;
  });
  await measured(t, 'a login that was ended is refused', async () => {
    const { login } = await invited();
    assert.equal(await statusOf(login, '/api/bridge/sessions'), 200);
    await expectOk(one, 'DELETE', '/api/auth/session', login);
    return async () => (await statusOf(login, '/api/bridge/sessions')) === 401;
  });
});

test('a socket on the other instance is closed when its person is paused or logs out', async (t) => {
  const endings: Readonly<Record<string, (person: Person) => Promise<unknown>>> = {
    pause: ({ id }) => expectOk(one, 'POST', `/api/auth/admin/users/${id}/pause`, root, {}),
    logout: ({ login }) => expectOk(one, 'DELETE', '/api/auth/session', login),
  };
  for (const [what, end] of Object.entries(endings)) {
    await measured(t, `the socket is closed by a ${what}`, async () => {
      const person = await invited();
      const headers = { authorization: `Bearer ${person.login}` };
      const socket = new WebSocket(`${other.url.replace('http', 'ws')}/acp`, { headers });
      t.after(() => socket.terminate());
      let code: number | undefined;
      socket.on('close', (given) => {
        code = given;
      });
      await new Promise<void>((resolve, reject) => socket.on('open', resolve).on('error', reject));
      await end(person);
      return async () => {
        if (code !== undefined) assert.equal(code, 1008);
        return code !== undefined;
      };
    });
  }
});

test('a call of a person is served where the agent is: with a login, an access token and a token for five minutes', async () => {
  const person = await invited();
  const { token: ofAccess } = await accessToken(person, ['bridge']);
  const { access_token: signed } = await expectOk(other, 'POST', '/api/auth/token/jwt', person.login, {});
  const begun = callBridge(one.url, 'session.start', ask('say first'), person.login);
  assert.equal((await begun.answer).result?.output, 'first');
  for (const token of [person.login, ofAccess, String(signed)]) {
    const turn = callBridge(other.url, 'session.message', ask('say next'), token);
    const { result, error } = await turn.answer;
    assert.equal(result?.output, 'next', JSON.stringify(error));
    assert.ok(turn.updates.some(({ type }) => type === 'delta'));
  }
  const recalled = await callBridge(other.url, 'session.message', ask('recall'), person.login).answer;
  assert.equal(recalled.result?.output, 'say first|say next|say next|say next|recall');
  // The name of a session is that of its owner: someone else has another one of that name, on any instance.
  const stranger = await invited();
  const { error } = await callBridge(other.url, 'session.message', ask('recall'), stranger.login).answer;
  assert.equal(error?.data.code, 'SESSION_CONTINUATION_UNAVAILABLE');
});

test('a turn that runs on another instance ends when its person is paused', async () => {
  const person = await invited();
  await callBridge(one.url, 'session.start', ask('say first'), person.login).answer;
  const turn = callBridge(other.url, 'session.message', ask('wait'), person.login);
  const path = '/api/bridge/sessions/shared-name/turns';
  await until('the turn to run', async () => {
    const { turns } = await expectOk(one, 'GET', path, person.login);
    return (turns as readonly Row[]).some(({ status }) => status === 'running');
  });
  await expectOk(one, 'POST', `/api/auth/admin/users/${person.id}/pause`, root, {});
  const ended = await turn.answer.catch((error: Error) => error);
  assert.ok(!('result' in ended) || (ended.result as Row).status !== 'completed', JSON.stringify(ended));
  const owner = encodeURIComponent(`user:${person.id}`);
  await until('the turn to end', async () => {
    const { turns } = await expectOk(other, 'GET', `${path}?owner=${owner}`, root);
    return (turns as readonly Row[]).every(({ status }) => status !== 'running');
  });
});

function ask(taskPrompt: string): object {
  return { sessionId: 'shared-name', taskPrompt, routing: SCRIPTED };
}
