import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { callBridge, type RpcAnswer } from '../kit/bridge/agent-session.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

type Row = Readonly<Record<string, unknown>>;

const AGENT = fileURLToPath(new URL('../kit/scripted-acp-agent.ts', import.meta.url));
const SCRIPTED = { explicitProviderId: 'scripted' };
const SLOW = { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=50' };
const PATIENCE_MS = 60_000;

const postgres = await startPostgres();
after(() => postgres.stop());
const folder = await temporaryFolder({ after });
const config = join(folder, 'trestle.yaml');
const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
const checkpoints = { timeout: '1m' };
await writeFile(config, JSON.stringify({ agents: { catalog: ['builtin'], custom }, bridge: { checkpoints } }));
const start = () => startProgram({ after }, { args: ['--config', config, '--database', postgres.url] });
const one = await start();
const other = await start();

function call(
  { url }: RunningProgram,
  method: string,
  params: object,
  headers: Record<string, string> = {},
): Promise<RpcAnswer & { readonly status: number }> {
  return fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'call', method, params }),
  }).then(async (response) => ({ ...((await response.json()) as RpcAnswer), status: response.status }));
}

function words(count: number): string {
  return Array.from({ length: count }, (_, index) => `word${index}`).join(' ');
}

async function turnsOf({ url }: RunningProgram, sessionId: string): Promise<readonly Row[]> {
  const response = await fetch(`${url}/api/bridge/sessions/${sessionId}/turns`);
  return (((await response.json()) as Row).turns ?? []) as readonly Row[];
}

async function running(program: RunningProgram, sessionId: string): Promise<void> {
  const isRunning = async () => (await turnsOf(program, sessionId)).some(({ status }) => status === 'running');
  await until(`${sessionId} to run`, isRunning, PATIENCE_MS);
}

test('DS-4: session.cancel on another instance stops the turn', async () => {
  for (const [sessionId, name] of [
    ['cancelled', { sessionId: 'cancelled' }],
    ['of-thread', { threadId: 'of-thread' }],
  ] as const) {
    const turn = call(one, 'session.start', { sessionId, taskPrompt: 'wait', routing: SCRIPTED });
    await running(other, sessionId);
    assert.deepEqual((await call(other, 'session.cancel', name)).result, { accepted: true });
    assert.equal((await turn).result?.status, 'cancelled');
  }
});

test('DS-4: a call to end a session on another instance ends a turn that waits for a place, which is not stored yet', async () => {
  const narrow = join(folder, 'narrow.yaml');
  await writeFile(
    narrow,
    JSON.stringify({ agents: { catalog: ['builtin'], custom }, bridge: { limits: { turns_per_agent: 1 } } }),
  );
  const busy = await startProgram({ after }, { args: ['--config', narrow, '--database', postgres.url] });
  const held = call(busy, 'session.start', { sessionId: 'holds', taskPrompt: words(4000), routing: SLOW });
  await running(other, 'holds');
  for (const [method, sessionId, name] of [
    ['session.cancel', 'waits', { sessionId: 'waits' }],
    ['session.cancel', 'waits-in-thread', { threadId: 'waits-in-thread' }],
    ['session.close', 'waits-for-close', { sessionId: 'waits-for-close' }],
    ['session.close', 'waits-in-closed-thread', { threadId: 'waits-in-closed-thread' }],
  ] as const) {
    // The head of the response comes when the turn was accepted.
    const response = await fetch(`${busy.url}/acp/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 'call',
        method: 'session.start',
        params: { sessionId, taskPrompt: 'never', routing: SLOW },
      }),
      signal: AbortSignal.timeout(20_000),
    });
    assert.deepEqual((await call(other, method, name)).result, { accepted: true });
    assert.match(await response.text(), /TURN_CANCELLED/, `${method} ${sessionId}`);
  }
  assert.equal((await turnsOf(one, 'holds'))[0]?.status, 'running');
  await call(one, 'session.cancel', { sessionId: 'holds' });
  assert.equal((await held).result?.status, 'cancelled');
});

test('DS-6: a message on another instance continues the conversation where its agent is', async () => {
  await call(one, 'session.start', { sessionId: 'talk', taskPrompt: 'say first', routing: SCRIPTED });
  const { result, error } = await call(other, 'session.message', { sessionId: 'talk', taskPrompt: 'recall' });
  assert.equal(result?.output, 'say first|recall', JSON.stringify(error));
  const turn = callBridge(other.url, 'session.message', { sessionId: 'talk', taskPrompt: 'say one two' });
  assert.equal((await turn.answer).result?.output, 'one two');
  const texts = turn.updates.filter(({ type }) => type === 'delta');
  assert.equal(texts.length, 2, 'the updates of the turn come with the answer');
});

test('DS-6: a message on another instance waits for the turn that runs', async () => {
  const first = call(one, 'session.start', { sessionId: 'line', taskPrompt: words(20), routing: SLOW });
  await running(other, 'line');
  const second = await call(other, 'session.message', { sessionId: 'line', taskPrompt: 'next' });
  assert.equal(second.result?.output, 'next', JSON.stringify(second.error));
  assert.equal((await first).result?.status, 'completed');
});

test('DS-6: the same idempotency key on another instance gives the result of the first call', async () => {
  const params = { sessionId: 'twice', taskPrompt: words(30), routing: SLOW };
  const headers = { 'idempotency-key': 'key-1' };
  const first = call(one, 'session.start', params, headers);
  await running(other, 'twice');
  const second = call(other, 'session.start', params, headers);
  assert.deepEqual((await second).result, (await first).result);
  assert.equal((await turnsOf(one, 'twice')).length, 1);
  const late = await call(other, 'session.start', params, { ...headers, 'last-event-id': '1' });
  assert.deepEqual(late.result, (await first).result, 'and after the end');
});

test('DS-6: session.close on another instance ends the turn and the session', async () => {
  const turn = call(one, 'session.start', { sessionId: 'closed', taskPrompt: 'wait', routing: SCRIPTED });
  await running(other, 'closed');
  assert.deepEqual((await call(other, 'session.close', { sessionId: 'closed' })).result, { accepted: true });
  assert.equal((await turn).result?.status, 'cancelled');
  const { error } = await call(one, 'session.message', { sessionId: 'closed', taskPrompt: 'recall' });
  assert.equal(error?.data.code, 'SESSION_CONTINUATION_UNAVAILABLE');
});

test('DS-12: artifacts, files and changes of another instance are served', async () => {
  const taskPrompt = 'edit notes.txt some words';
  await call(one, 'session.start', { sessionId: 'files', taskPrompt, routing: SCRIPTED });
  // A text that is too long for the result is a file.
  const long = await call(one, 'session.message', { sessionId: 'files', taskPrompt: 'burst 600 16000' });
  const [artifact] = (long.result?.artifacts ?? []) as readonly { readonly downloadUrl: string }[];
  assert.ok(artifact, JSON.stringify(long).slice(0, 1000));
  const downloaded = await fetch(`${other.url}${artifact.downloadUrl}`);
  assert.deepEqual([downloaded.status, (await downloaded.text()).length], [200, 9_600_000]);
  const file = await fetch(`${other.url}/api/bridge/sessions/files/files?path=notes.txt`);
  assert.equal(((await file.json()) as Row).content, 'some words\n');
  const missing = await fetch(`${other.url}/api/bridge/sessions/files/files?path=none.txt`);
  assert.deepEqual([missing.status, ((await missing.json()) as Row).error], [404, 'file_not_found']);
});

test('DS-12: a file that was uploaded to one instance goes with a prompt to another', async () => {
  const body = 'uploaded words';
  const headers = { 'content-type': 'text/plain', 'x-file-name': 'given.txt' };
  const upload = await fetch(`${other.url}/api/bridge/attachments`, { method: 'POST', headers, body });
  const { attachmentId } = (await upload.json()) as { readonly attachmentId: string };
  const params = { sessionId: 'given', taskPrompt: 'blocks', attachments: [{ attachmentId }], routing: SCRIPTED };
  const { result, error } = await call(one, 'session.start', params);
  assert.match(String(result?.output), /given\.txt/, JSON.stringify(error));
});

async function post({ url }: RunningProgram, path: string, body: object): Promise<{ status: number; body: Row }> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${url}/api/bridge/sessions/${path}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Row };
}

test('Undo, steer, removal from the queue and fork of a session of another instance are served where the session is', async () => {
  const workingDirectory = await temporaryFolder({ after });
  const taskPrompt = 'edit notes.txt some words';
  const edit = { sessionId: 'relayed', taskPrompt, workingDirectory, routing: SCRIPTED };
  const { result } = await call(one, 'session.start', edit);
  const undone = await post(other, 'relayed/undo', { turnId: result?.turnId });
  assert.deepEqual([undone.status, undone.body.restored], [200, ['notes.txt']], JSON.stringify(undone.body));

  const turn = call(one, 'session.start', { sessionId: 'steered', taskPrompt: words(40), routing: SLOW });
  await running(other, 'steered');
  // The turn takes messages as soon as its agent works.
  const steered = await until('the message to be taken', async () => {
    const { status, body } = await post(other, 'steered/steer', { text: 'something else' });
    return status === 200 && body;
  });
  assert.equal(steered.turnId, (await turn).result?.turnId);

  const first = call(one, 'session.message', { sessionId: 'steered', taskPrompt: words(40), routing: SLOW });
  await running(other, 'steered');
  const second = call(one, 'session.message', { sessionId: 'steered', taskPrompt: 'not needed', routing: SLOW });
  const address = `${other.url}/api/bridge/sessions/steered`;
  const [waiting] = await until('a message to wait', async () => {
    const view = (await (await fetch(address)).json()) as { readonly queued: readonly { readonly turnId: string }[] };
    return view.queued.length > 0 && view.queued;
  });
  const removed = await fetch(`${address}/turns/${waiting?.turnId}`, { method: 'DELETE' });
  assert.equal(removed.status, 200, await removed.text());
  assert.equal((await second).result?.status, 'cancelled');
  assert.equal((await first).result?.status, 'completed');

  const forked = await post(other, 'steered/fork', {});
  assert.ok(forked.status < 300, JSON.stringify(forked.body));
  const { sessionId } = forked.body as { readonly sessionId: string };
  const next = await call(other, 'session.message', { sessionId, taskPrompt: 'in the copy' });
  assert.equal(next.result?.status, 'completed', JSON.stringify(next.error));
});

test('A turn whose instance dies while another one relays it ends with what is stored', async () => {
  const third = await start();
  await call(third, 'session.start', { sessionId: 'dies', taskPrompt: 'hello', routing: SLOW });
  const turn = callBridge(other.url, 'session.message', { sessionId: 'dies', taskPrompt: words(2000), routing: SLOW });
  await until('updates', () => turn.updates.filter(({ type }) => type === 'delta').length > 2, PATIENCE_MS);
  await third.stop('SIGKILL');
  const { result, error } = await turn.answer;
  assert.deepEqual([result?.status, result?.code], ['failed', 'TURN_INTERRUPTED'], JSON.stringify(error));
  const [stored] = await turnsOf(one, 'dies');
  assert.deepEqual([stored?.status, stored?.code], ['failed', 'TURN_INTERRUPTED']);
  const seqs = turn.updates.map(({ seq }) => Number(seq));
  assert.deepEqual(
    seqs,
    [...new Set(seqs)].toSorted((a, b) => a - b),
    'each update once, in order',
  );
});

test('An instance that cannot be reached is reported, and nothing was started', async () => {
  const third = await start();
  await call(third, 'session.start', { sessionId: 'away', taskPrompt: 'hello', routing: SLOW });
  await third.stop('SIGKILL');
  const { error, status } = await call(other, 'session.message', { sessionId: 'away', taskPrompt: 'more' });
  assert.deepEqual([status, error?.code], [503, -32020]);
  assert.deepEqual([error?.data.code, error?.data.outcome], ['OWNER_UNREACHABLE', 'not_started']);
  const taken = await until(
    'the session to move',
    async () => {
      const answer = await call(other, 'session.message', { sessionId: 'away', taskPrompt: 'more' });
      return answer.result;
    },
    PATIENCE_MS,
  );
  assert.equal(taken.output, 'more');
});

test('A relayed request without the signature of an instance is refused before its body is read', async () => {
  for (const headers of [
    {},
    { 'x-trestle-relay': `v1.ins_0.${Date.now()}.${'a'.repeat(24)}.${'a'.repeat(43)}.${'a'.repeat(43)}` },
  ]) {
    const response = await fetch(`${one.url}/acp/relay`, { method: 'POST', headers, body: 'x'.repeat(100_000) });
    const { error } = (await response.json()) as RpcAnswer;
    assert.deepEqual([response.status, error?.data.code], [401, 'RELAY_REFUSED']);
  }
});
