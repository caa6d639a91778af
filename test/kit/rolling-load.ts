import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { freePort } from './free-port.ts';
import { startHaproxy } from './real-haproxy.ts';
import {
  type ProgramOptions,
  type RunningProgram,
  type Scope,
  startProgram,
  temporaryFolder,
} from './running-program.ts';
import { until } from './until.ts';

const CLIENTS = 4;
const STREAMS = 4;
const BUILTIN = { explicitProviderId: 'builtin' };
const PATIENCE_MS = 60_000;

const WORDS = Array.from({ length: 40 }, (_, index) => `word${index}`).join(' ');

/** What a stream of two seconds said, all of it if it came to its end. */
async function readStream(url: string): Promise<string> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'demo/echo?delay=50',
      stream: true,
      messages: [{ role: 'user', content: WORDS }],
    }),
  });
  const text = await response.text();
  if (response.status !== 200 || !text.trimEnd().endsWith('data: [DONE]')) return text;
  const events = text.split('\n').filter((line) => line.startsWith('data: {'));
  return events
    .map((line) => JSON.parse(line.slice(6)) as { choices?: readonly { delta?: { content?: string } }[] })
    .map(({ choices }) => choices?.[0]?.delta?.content ?? '')
    .join('');
}

/** Follows a session as the documents say: when its socket is closed, it connects again with the last number that it got. */
function follow(url: string, sessionId: string) {
  const seqs: number[] = [];
  const codes: number[] = [];
  let isOver = false;
  let socket: WebSocket;
  function connect(): void {
    if (isOver) return;
    const query = new URLSearchParams({ sessionId, afterSeq: String(seqs.at(-1) ?? 0) });
    socket = new WebSocket(`${url.replace(/^http/, 'ws')}/acp?${query}`);
    socket.addEventListener('message', ({ data }) => {
      const { method, params } = JSON.parse(String(data)) as { method?: string; params?: { seq: number } };
      if (method === 'session.update') seqs.push(Number(params?.seq));
    });
    socket.addEventListener('close', ({ code }) => {
      if (!isOver) codes.push(code);
      setTimeout(connect, 100);
    });
  }
  connect();
  const stop = () => {
    isOver = true;
    socket.close();
  };
  return { sessionId, seqs, codes, stop };
}

/** The numbers of all stored updates. */
async function storedOf(url: string, sessionId: string): Promise<readonly number[]> {
  const all: number[] = [];
  for (;;) {
    const response = await fetch(`${url}/api/bridge/sessions/${sessionId}/updates?afterSeq=${all.at(-1) ?? 0}`);
    const { updates = [] } = (await response.json()) as { readonly updates?: readonly { readonly seq: number }[] };
    if (updates.length === 0) return all;
    all.push(...updates.map(({ seq }) => seq));
  }
}

/** Three instances behind HAProxy on one database, and clients that never pause: calls, streams, and followers of sessions. */
export async function startRollingLoad(scope: Scope, database: string, build: ProgramOptions = {}) {
  const ports = [await freePort(), await freePort(), await freePort()];
  const places = await Promise.all(ports.map(async (port) => ({ port, dataDirectory: await temporaryFolder(scope) })));
  const start = ({ port, dataDirectory }: (typeof places)[number], options: ProgramOptions) =>
    startProgram(scope, { ...options, dataDirectory, args: ['--database', database, '--listen', `127.0.0.1:${port}`] });
  const programs: RunningProgram[] = [];
  for (const place of places) programs.push(await start(place, build));
  const { url, log } = await startHaproxy(scope, ports);

  const failures: string[] = [];
  let calls = 0;
  let streams = 0;
  let isOver = false;
  async function post(path: string, body: object): Promise<void> {
    calls += 1;
    try {
      const headers = { 'content-type': 'application/json' };
      const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      const text = await response.text();
      if (response.status !== 200) failures.push(`${path} ${response.status} ${text.slice(0, 300)}`);
    } catch (error) {
      failures.push(`${path} ${String(error)} ${String((error as Error).cause)}`);
    }
  }
  async function client(number: number): Promise<void> {
    for (let turn = 0; !isOver; turn += 1) {
      // Half of the turns belong to a session that has been used before, wherever it is.
      const sessionId = turn % 2 === 0 ? `stays-${number}` : `new-${number}-${turn}`;
      const params = { sessionId, taskPrompt: `hello ${turn}`, routing: BUILTIN };
      await post('/acp/rpc', { jsonrpc: '2.0', id: '1', method: 'session.start', params });
      const messages = [{ role: 'user', content: 'hello' }];
      await post('/v1/chat/completions', { model: 'demo/echo', messages });
      await pause(30);
    }
  }
  async function listener(): Promise<void> {
    while (!isOver) {
      const text = await readStream(url).catch((error: unknown) => `${error} ${(error as Error).cause}`);
      streams += 1;
      if (text !== WORDS) failures.push(`a stream: ${text.slice(-300)}`);
    }
  }
  const clients = Array.from({ length: CLIENTS }, (_, number) => client(number));
  await until('the first calls', () => calls > 50, PATIENCE_MS);
  clients.push(...Array.from({ length: STREAMS }, () => listener()));
  // Round-robin: the sockets of three followers of each session are on three instances.
  const names = Array.from({ length: 3 * CLIENTS }, (_, number) => `stays-${number % CLIENTS}`);
  const followers = names.map((name) => follow(url, name));
  scope.after(() => {
    for (const { stop } of followers) stop();
  });

  /** Stops one instance and starts it again at its place, from another build if one is given. */
  async function restart(index: number, options: ProgramOptions = {}): Promise<void> {
    const place = places[index];
    assert.ok(place !== undefined);
    assert.equal(await programs[index]?.stop('SIGTERM'), 0);
    const seen = calls;
    programs[index] = await start(place, options);
    await until('calls after the restart', () => calls > seen + 50, PATIENCE_MS);
    // Until HAProxy sends calls to it again, so that two are never away.
    await pause(2_500);
  }

  /** Ends the load. No call and no stream may have failed, and every follower has what is stored. Returns what there was. */
  async function finish(): Promise<string> {
    isOver = true;
    await Promise.all(clients);
    const codes = followers.flatMap((one) => one.codes);
    assert.deepEqual(failures, [], log());
    assert.ok(streams > 3 * STREAMS && codes.length >= followers.length, 'every follower had to connect again');
    for (const { sessionId, seqs } of followers) {
      const stored = await storedOf(url, sessionId);
      await until(`all updates of ${sessionId}`, () => seqs.at(-1) === stored.at(-1), PATIENCE_MS);
      assert.deepEqual(seqs, stored, sessionId);
    }
    return `${calls} calls, ${streams} streams, ${codes.length} sockets closed (${[...new Set(codes)]})`;
  }

  return { url, programs, places, restart, finish };
}
