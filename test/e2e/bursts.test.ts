import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { WebSocket } from 'ws';
import { call as callRpc } from '../kit/bridge/session-client.ts';
import { residentBytes } from '../kit/resident-bytes.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const MEBIBYTE = 1024 * 1024;
const MAX_MORE_MEMORY = 200 * MEBIBYTE;
/** Only for a program that has stopped: how long a burst takes depends on the machine. */
const LIMIT_MS = 500_000;

async function startWithAgent(t: TestContext, limits: object = {}): Promise<{ program: RunningProgram; work: string }> {
  const folder = await realpath(await temporaryFolder(t));
  const work = join(folder, 'work');
  await mkdir(work);
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ bridge: { limits }, agents: { catalog: ['builtin'], custom } }));
  return { program: await startProgram(t, { args: ['--config', config] }), work };
}

const startCall = (sessionId: string, taskPrompt: string, workingDirectory: string) =>
  JSON.stringify({
    jsonrpc: '2.0',
    id: '1',
    method: 'session.start',
    params: { sessionId, taskPrompt, workingDirectory, routing: { explicitProviderId: 'scripted' } },
  });

/** What a client has got. Messages are looked into without parsing: the test reads as fast as it can. */
interface Reader {
  readonly seqs: number[];
  text: number;
  result: Readonly<Record<string, unknown>> | undefined;
}

const createReader = (): Reader => ({ seqs: [], text: 0, result: undefined });

function take(reader: Reader, message: string): void {
  if (message.startsWith('{"jsonrpc":"2.0","id"')) {
    reader.result = (JSON.parse(message) as { result: Record<string, unknown> }).result;
    return;
  }
  reader.seqs.push(Number(/"seq":(\d{1,15})/.exec(message.slice(0, 500))?.[1]));
  const start = message.indexOf('"delta":"');
  if (start !== -1) reader.text += message.indexOf('"', start + 9) - start - 9;
}

/** The most memory that the program holds until the work is done, above what it held before. */
async function measureMemory(pid: number, work: () => Promise<void>): Promise<number> {
  const before = await residentBytes(pid);
  let most = before;
  const timer = setInterval(async () => {
    most = Math.max(most, await residentBytes(pid));
  }, 50);
  await work().finally(() => clearInterval(timer));
  return most - before;
}

async function follow({ url }: RunningProgram, query: string, reader: Reader): Promise<WebSocket> {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/acp?${query}`, { maxPayload: 256 * MEBIBYTE });
  socket.on('message', (data) => take(reader, String(data)));
  await once(socket, 'open');
  return socket;
}

async function post({ url }: RunningProgram, body: string, headers: object = {}): Promise<IncomingMessage> {
  const accept = { accept: 'text/event-stream', 'content-type': 'application/json' };
  const request = httpRequest(`${url}/acp/rpc`, { method: 'POST', headers: { ...accept, ...headers } });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

async function readEvents(response: IncomingMessage, reader: Reader): Promise<void> {
  let rest = '';
  response.setEncoding('utf8');
  for await (const chunk of response) {
    const events = `${rest}${chunk}`.split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const start = event.indexOf('data: {');
      if (start !== -1) take(reader, event.slice(start + 6));
    }
  }
}

function assertWhole({ seqs, text }: Reader, textLength: number): void {
  assert.equal(text, textLength);
  assert.ok(
    seqs.every((seq, index) => seq === index + 1),
    'every update once, in order',
  );
}

test('DB-25: 100 MiB of text at full speed reach clients that read, over HTTP and WebSocket, in bounded memory', {
  timeout: LIMIT_MS,
}, async (t) => {
  const { program, work } = await startWithAgent(t);
  const [count, length] = [1600, 65_536];
  const [caller, follower] = [createReader(), createReader()];
  const socket = await follow(program, 'sessionId=s&afterSeq=0', follower);
  let code = 0;
  socket.on('close', (closedWith) => {
    code = closedWith;
  });
  const more = await measureMemory(program.pid, async () => {
    await readEvents(await post(program, startCall('s', `burst ${count} ${length}`, work)), caller);
    await until('the end of the turn', () => code > 0 || follower.seqs.length >= caller.seqs.length, LIMIT_MS);
  });
  assert.deepEqual([caller.result?.status, caller.result?.truncated, code], ['completed', true, 0]);
  // More than an artifact may hold.
  const [text] = (caller.result?.artifacts ?? []) as { relativePath: string; sizeBytes: number }[];
  assert.deepEqual([text?.relativePath, text?.sizeBytes], ['output-beginning.txt', 64 * MEBIBYTE]);
  for (const reader of [caller, follower]) assertWhole(reader, count * length);
  t.diagnostic(`${Math.round(more / MEBIBYTE)} MiB more than idle`);
  assert.ok(more < MAX_MORE_MEMORY, `${Math.round(more / MEBIBYTE)} MiB more than idle`);
  socket.terminate();
});

test('DB-25: clients that stop reading are disconnected after the time limit, and resume with their numbers', async (t) => {
  const { program, work } = await startWithAgent(t, { stalled_after: '2s' });
  const [count, length] = [250, 65_536];
  const call = startCall('s', `burst ${count} ${length}`, work);
  const [caller, follower] = [createReader(), createReader()];
  const socket = await follow(program, 'sessionId=s&afterSeq=0', follower);
  const response = await post(program, call);
  const reading = readEvents(response, caller);
  // It fails before this test asks for it.
  reading.catch(() => undefined);
  const isClosed = { socket: false, response: false };
  socket.on('close', () => {
    isClosed.socket = true;
  });
  response.on('close', () => {
    isClosed.response = true;
  });
  await until('some updates for both', () => caller.seqs.length > 10 && follower.seqs.length > 10);
  socket.pause();
  response.socket.pause();
  // The turn does not wait for them: it ends while nobody reads.
  const ended = await callRpc(program.url, 'session.message', { sessionId: 's', taskPrompt: 'say more' });
  assert.equal(ended.result?.output, 'more');
  await new Promise((resolve) => setTimeout(resolve, 6000));
  socket.resume();
  response.socket.resume();
  await assert.rejects(reading, /aborted/);
  await until('the ends of both', () => isClosed.socket && isClosed.response);
  // On a busy machine this test is a slow reader too: it resumes as clients do, as often as it must.
  await until(
    'the end of the turn',
    async () => {
      const headers = { 'last-event-id': String(caller.seqs.at(-1) ?? 0) };
      await readEvents(await post(program, call, headers), caller).catch((error) =>
        assert.match(String(error), /aborted/),
      );
      return caller.result !== undefined;
    },
    LIMIT_MS,
  );
  assert.equal(caller.result?.status, 'completed');
  // Its stream leaves out one number: that the other turn is queued.
  assert.equal(caller.text, count * length);
  assert.ok(caller.seqs.every((seq, index) => index === 0 || seq > (caller.seqs[index - 1] ?? 0)));
  const isWhole = () => follower.text === count * length + 'more'.length;
  await until(
    'all updates',
    async () => {
      const again = await follow(program, `sessionId=s&afterSeq=${follower.seqs.at(-1)}`, follower);
      await until('all updates, or its end', () => isWhole() || again.readyState !== WebSocket.OPEN, LIMIT_MS);
      again.terminate();
      return isWhole();
    },
    LIMIT_MS,
  );
  assertWhole(follower, count * length + 'more'.length);
});

test('DB-28: 41 MB of text at full speed slow the agent down to the speed of the store, and the turn completes', async (t) => {
  const { program, work } = await startWithAgent(t);
  const { result } = await callRpc(program.url, 'session.start', {
    sessionId: 's',
    taskPrompt: `burst ${640} ${65_536}`,
    workingDirectory: work,
    routing: { explicitProviderId: 'scripted' },
  });
  assert.deepEqual([result?.status, result?.code], ['completed', undefined]);
});
