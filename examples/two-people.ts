// Two people on one program: an administrator sets it up and invites both. Each works with their own token within their own
// plan, sees nothing of the other, and loses all access within a second when paused.
//   npx node examples/two-people.ts [--within <seconds>]
// It starts its own Trestle with its own data, and removes both. The model is demo/echo: nothing leaves this machine.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { WebSocket } from 'ws';
import { createTrestleClient, type TrestleClient } from '../src/client/trestle-client.ts';
import { call, invite, logIn, type Person, setUp } from './whole-story/account.ts';
import { chapter, expect, perform, say, until } from './whole-story/narration.ts';
import { endEveryTrestle, startTrestle } from './whole-story/running-trestle.ts';

const LIMIT_MS = 60_000;
const password = 'copper kettle 47 over the pass';
const secrets = {
  BRIDGE_AUTH_TOKEN: randomBytes(24).toString('hex'),
  COMPLETIONS_MASTER_KEY: randomBytes(24).toString('hex'),
};
const settings = {
  agents: {
    builtin: { model: 'demo/echo' },
    // A program that does not stop when it is asked to.
    custom: [
      {
        id: 'deaf',
        command: process.execPath,
        args: [join(import.meta.dirname, 'whole-story/patient-agent.ts'), '--deaf'],
      },
    ],
  },
  accounts: { registration: 'invite' },
  // The operator of this machine trusts both: their agents run as the user of the program. In a sandbox, the agent below
  // could neither be read nor say which process of this machine it is.
  bridge: { trust_users: true, sandbox: 'off' },
  plans: {
    small: { models: ['demo/*'], requests_per_minute: 30, bridge: true, running_turns: 1, jobs: 1 },
    large: { models: ['demo/*'], requests_per_minute: 300, bridge: true, running_turns: 2, jobs: 10 },
  },
};
/** Responds with about ten words a second. */
const SLOW = { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=100' };
const LONG_TEXT = Array.from({ length: 1000 }, (_, index) => `word${index}`).join(' ');
const cleanUps: (() => unknown)[] = [];

interface Worker extends Person {
  readonly client: TrestleClient;
}

async function tell(withinMs: number): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-two-people-'));
  cleanUps.push(() => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  cleanUps.push(endEveryTrestle);

  chapter('A new program with both tokens, and its set-up link');
  const trestle = await startTrestle({ folder, listen: '127.0.0.1:0', settings, secrets });
  const { url } = trestle;
  const auth = `${url}/api/auth`;
  say(`Trestle runs at ${url}`);
  const admin = await setUp(url, trestle.setupLink, { email: 'root@example.org', password });
  say('the first administrator has set it up with the link, and logged in');

  chapter('Two people are invited, and each gets a token of their own');
  const stranger = await fetch(`${auth}/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'Eve', email: 'eve@example.org', password }),
  });
  expect(stranger.status === 403, 'nobody registers without an invitation', await stranger.text());
  const [ann, ben] = [await newWorker(url, admin, 'Ann', 'small'), await newWorker(url, admin, 'Ben', 'large')];

  chapter('Each works with an agent and with a model, within their own plan');
  for (const person of [ann, ben]) await work(url, person);
  const job = { taskPrompt: LONG_TEXT, routing: SLOW };
  const { jobId } = await ann.client.jobs.submit({ ...job, sessionId: 'the-one-job' });
  const second = await ann.client.jobs.submit({ ...job, sessionId: 'one-more' }).catch((error) => error.code);
  expect(second === 'TOO_MANY_JOBS', 'the plan "small" allows Ann one job at a time', second);
  await ann.client.session('the-one-job').cancel();
  await until('the job of Ann has ended', LIMIT_MS, async () => {
    const { status: state } = await ann.client.jobs.get(jobId);
    return state === 'failed' || state === 'completed' || undefined;
  });

  chapter('Neither sees anything of the other, and the administrator sees both');
  for (const [person, other] of [
    [ann, ben],
    [ben, ann],
  ] as const) {
    const seen = JSON.stringify(await everything(url, person.token));
    expect(seen.includes(person.id) && !seen.includes(other.id), `${person.name} sees own work only`, seen);
    const { output = '' } = await person.client.session('notes').message('Who was here?').result;
    expect(!output.includes(other.name), `the session "notes" of ${person.name} is not that of ${other.name}`, output);
  }
  const all = JSON.stringify(await everything(url, admin));
  expect(
    [ann, ben].every(({ id }) => all.includes(id)),
    'the administrator sees the work of both',
    all,
  );

  chapter('Ben is paused in the middle of everything');
  const ends = await busy(url, ben);
  const pausedAt = performance.now();
  await call(`${auth}/admin/users/${ben.id}/pause`, { credential: admin, body: {} });
  const jobsEnd = until('his jobs have ended', LIMIT_MS, async () => {
    const found = (await everything(url, admin)).jobs.filter(({ owner }) => owner === `user:${ben.id}`);
    const isOver = found.every(({ status }) => status !== 'pending' && status !== 'running');
    return isOver ? { found, how: 'failed', at: performance.now() } : undefined;
  });
  for (const [what, ended] of Object.entries({ ...ends, 'the last of his jobs': jobsEnd })) {
    const { how, at } = await ended;
    say(`${what} ended after ${Math.max(0, Math.round(at - pausedAt))} ms: ${how}`);
    expect(at - pausedAt < withinMs, `${what} ended within ${withinMs / 1000} s`, at - pausedAt);
  }
  const { found: jobs } = await jobsEnd;
  const failed = jobs.filter(({ errorCode }) => errorCode === 'JOB_CANCELLED').length;
  expect(failed === 3, `his ${failed} jobs failed, those that waited included`, jobs);
  for (const [person, wanted, what] of [
    [ben, 401, 'his token opens nothing any more'],
    [ann, 200, 'Ann works on'],
  ] as const) {
    const paths = ['/v1/models', '/api/bridge/sessions'];
    const codes = await Promise.all(paths.map((path) => status(url, person.token, path)));
    expect(
      codes.every((code) => code === wanted),
      what,
      codes,
    );
  }
  expect((await status(url, ben.login, '/api/auth/session')) === 401, 'his login has ended', ben.id);
  const again = await logIn(url, { email: 'ben@example.org', password }).catch(String);
  expect(again.includes('account_suspended'), 'he cannot log in again', again);
  const code = await trestle.end('SIGTERM');
  expect(code === 0, 'Trestle ends in good order', code);
}

async function newWorker(url: string, admin: string, name: string, plan: string): Promise<Worker> {
  const person = await invite(url, admin, { name, plan, password });
  const client = createTrestleClient({ url, token: person.token });
  cleanUps.push(() => client.close());
  return { ...person, client };
}

async function work(url: string, { name, plan, token, client }: Worker): Promise<void> {
  const turn = await client.session('notes').start(`Hello from ${name}`).result;
  expect(turn.output === `Hello from ${name}`, `the agent of ${name} says "${turn.output}"`, turn);
  const body = { model: 'demo/echo', messages: [{ role: 'user', content: `A question of ${name}` }] };
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  const { choices } = (await response.json()) as { choices: { message: { content: string } }[] };
  expect(response.ok, `the model answers "${choices[0]?.message.content}"`, response.status);
  const limit = Number(response.headers.get('x-ratelimit-limit-requests'));
  const left = Number(response.headers.get('x-ratelimit-remaining-requests'));
  const planned = plan === 'small' ? 30 : 300;
  // The turn of the agent counts like every call.
  expect(
    limit === planned && left <= planned - 2,
    `${left} of ${limit} requests of the plan "${plan}" are left`,
    limit,
  );
}

interface Seen {
  readonly sessions: readonly object[];
  readonly jobs: readonly { readonly owner: string; readonly status: string; readonly errorCode?: string | null }[];
  readonly more: readonly object[];
}

/** Everything that shows whose work there is. */
const REPORTS = ['/usage?group_by=owner', '/usage/calls', '/keys', '/api/bridge/audit', '/api/bridge/schedules'];

/** Returns what a credential can see of sessions, jobs, usage, calls, keys, schedules and the audit log. */
async function everything(url: string, credential: string): Promise<Seen> {
  const rpc = { jsonrpc: '2.0', id: 1, method: 'app.jobs.list', params: {} };
  const { sessions } = await call(`${url}/api/bridge/sessions`, { credential });
  const { result } = await call(`${url}/acp/rpc`, { credential, body: rpc });
  const more = await Promise.all(REPORTS.map((path) => call(url + path, { credential })));
  return { sessions, jobs: result.jobs, more };
}

async function status(url: string, credential: string, path: string): Promise<number> {
  const response = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${credential}` } });
  await response.arrayBuffer();
  return response.status;
}

interface End {
  readonly how: string;
  readonly at: number;
}

/** Starts a turn, an agent program, three jobs, a stream and a socket, and returns how each of them ends. */
async function busy(url: string, { client, token }: Worker): Promise<Readonly<Record<string, Promise<End>>>> {
  const ended = (how: string): End => ({ how, at: performance.now() });
  const turn = client.session('long').start(LONG_TEXT, { routing: SLOW });
  for await (const { type } of turn) if (type === 'delta') break;
  say('an agent is writing for him');
  const deaf = client.session('deaf').start('Work', { routing: { explicitProviderId: 'deaf' } });
  let pid = 0;
  for await (const update of deaf) {
    if (update.type === 'delta') pid = Number(/process (\d+)/.exec(update.delta ?? '')?.[1]);
    if (pid !== 0) break;
  }
  expect(pid !== 0, `a program is at work for him, process ${pid}`, pid === 0 ? await deaf.result : pid);
  for (const sessionId of ['job-1', 'job-2', 'job-3']) {
    await client.jobs.submit({ sessionId, taskPrompt: LONG_TEXT, routing: SLOW });
  }
  say('three jobs of his run or wait');
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({
      ...{ model: 'demo/echo?delay=100', stream: true },
      messages: [{ role: 'user', content: LONG_TEXT }],
    }),
  });
  const chunks = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  await chunks?.read();
  say('a model is writing for him');
  const socket = new WebSocket(`${url.replace('http', 'ws')}/acp`, { headers: { authorization: `Bearer ${token}` } });
  cleanUps.push(() => socket.terminate());
  await once(socket, 'open');
  say('a socket of his is open');
  return {
    'the turn': turn.result.then(({ status: outcome }) => ended(outcome)),
    'the turn of the program': deaf.result.then(({ status: outcome }) => ended(outcome)),
    'the program': until('the program has ended', LIMIT_MS, () => !isAlive(pid) || undefined).then(() => ended('gone')),
    'the stream': readToEnd(chunks).then((last) => ended(/"code":"(\w+)"/.exec(last)?.[1] ?? last)),
    'the socket': once(socket, 'close').then(([code]) => ended(String(code))),
  };
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function readToEnd(chunks: ReadableStreamDefaultReader<string> | undefined): Promise<string> {
  let last = '';
  for (let next = await chunks?.read(); next?.done === false; next = await chunks?.read()) last = next.value;
  return last;
}

const { within } = parseArgs({ options: { within: { type: 'string', default: '1' } } }).values;

await perform(
  cleanUps,
  () => tell(Number(within) * 1000),
  (steps, seconds) => `Two people, apart: ${steps} steps, ${seconds} s`,
);
