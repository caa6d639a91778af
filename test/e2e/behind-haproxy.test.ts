import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { freePort } from '../kit/free-port.ts';
import { startHaproxy } from '../kit/real-haproxy.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

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

test('DS-8: instances behind HAProxy are restarted one after the other: no call and no stream fails, no follower misses an update', {
  timeout: 400_000,
}, async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const ports = [await freePort(), await freePort(), await freePort()];
  const places = await Promise.all(ports.map(async (port) => ({ port, dataDirectory: await temporaryFolder(t) })));
  const start = ({ port, dataDirectory }: (typeof places)[number]) =>
    startProgram(t, { dataDirectory, args: ['--database', postgres.url, '--listen', `127.0.0.1:${port}`] });
  const programs = [];
  for (const place of places) programs.push(await start(place));
  const { url, log } = await startHaproxy(t, ports);

  const failures: string[] = [];
  let calls = 0;
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
  let streams = 0;
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
  t.after(() => {
    for (const { stop } of followers) stop();
  });
  for (const [index, place] of places.entries()) {
    const from = performance.now();
    assert.equal(await programs[index]?.stop('SIGTERM'), 0);
    t.diagnostic(`stopped in ${Math.round(performance.now() - from)} ms`);
    const seen = calls;
    programs[index] = await start(place);
    await until('calls after the restart', () => calls > seen + 50, PATIENCE_MS);
    // Until HAProxy sends calls to it again, so that two are never away.
    await pause(2_500);
  }
  isOver = true;
  await Promise.all(clients);
  const codes = followers.flatMap((one) => one.codes);
  t.diagnostic(`${calls} calls, ${streams} streams, ${codes.length} sockets closed (${[...new Set(codes)]})`);
  assert.deepEqual(failures, [], log());
  assert.ok(streams > 3 * STREAMS && codes.length >= followers.length, 'every follower had to connect again');
  for (const { sessionId, seqs } of followers) {
    const stored = await storedOf(url, sessionId);
    await until(`all updates of ${sessionId}`, () => seqs.at(-1) === stored.at(-1), PATIENCE_MS);
    assert.deepEqual(seqs, stored, sessionId);
  }
});
