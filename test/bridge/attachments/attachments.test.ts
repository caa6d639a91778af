import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { mkdir, readFile, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createRemoteAgent } from '../../../src/bridge/agents/remote/create-remote-agent.ts';
import { freeName, readGivenFiles, safeName } from '../../../src/bridge/attachments/given-files.ts';
import type { UploadedAttachment } from '../../../src/bridge/contract/session.ts';
import type { TurnPage } from '../../../src/bridge/contract/workbench.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { makeId } from '../../kit/bridge/builtin-agent.ts';
import { clientOf } from '../../kit/bridge/client-of.ts';
import { startOtherBridge, TOKEN } from '../../kit/bridge/other-bridge.ts';
import { bearer, call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { asMain, everythingTo, startNode } from '../../kit/bridge/start-nodes.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createScriptedProvider, type TurnScript } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);

/** Says what came with the prompt: name, type, size, kind and text of each file. */
const listing: TurnScript = async ({ files = [] }) => {
  const told = await Promise.all(
    files.map(async ({ name, contentType, sizeBytes, kind, path }) => {
      const text = kind === 'unsent' ? path : sizeBytes < 100 ? await readFile(path, 'utf8') : '';
      return [name, contentType, sizeBytes, kind, kind === 'image' ? '' : text];
    }),
  );
  return { kind: 'completed', output: JSON.stringify(told), stopReason: 'end_turn' };
};
/** Puts a link in the place of its first file before the file is read. */
const swapping: TurnScript = async ({ files: [file] = [] }) => {
  await rm(file?.path ?? '');
  await symlink('/etc/passwd', file?.path ?? '');
  const output = await file?.read().then(String, (error: { code: string }) => error.code);
  return { kind: 'completed', output: output ?? '', stopReason: 'end_turn' };
};
const agent = createScriptedProvider('lister', listing);
const swapper = createScriptedProvider('swapper', swapping);
const settings = `bridge: { auth_token: ${MAIN_TOKEN}, review_auth_token: ${REVIEW_TOKEN}, limits: { attachment_bytes_per_owner: 2097152 } }\n`;
const bridge = await startBridge({ after }, { providers: [agent, swapper], settings });
const { url } = bridge;

async function upload(bytes: Buffer, name: string, type: string, headers = main, to = url) {
  const response = await fetch(`${to}/api/bridge/attachments`, {
    method: 'POST',
    headers: { ...headers, 'content-type': type, 'x-file-name': encodeURIComponent(name) },
    body: new Uint8Array(bytes),
  });
  return {
    status: response.status,
    body: (await response.json()) as UploadedAttachment & { error: string; message: string },
  };
}

const inline = (name: string, text: string, contentType = 'text/plain') => ({
  name,
  contentType,
  data: Buffer.from(text).toString('base64'),
});
const PHOTO = { name: 'photo.png', contentType: 'image/png', data: PNG.toString('base64') };
const IMAGE_TOLD = ['photo.png', 'image/png', PNG.length, 'image', ''];

const transports = {
  async document(params: object) {
    return (await call(url, 'session.start', params, main)).result;
  },
  async stream(params: object) {
    const { final, updates } = await stream(url, { method: 'session.start', params }, main);
    const started = updates.find(({ event }) => event === 'started');
    assert.deepEqual(started?.attachments, [
      { name: 'notes.txt', contentType: 'text/plain', sizeBytes: 5 },
      { name: 'photo.png', contentType: 'image/png', sizeBytes: PNG.length },
    ]);
    return final.result;
  },
  async socket(params: object) {
    const client = await openClient({ after }, url, { headers: main });
    return (await client.call('session.start', params)).result;
  },
};

for (const [name, start] of Object.entries(transports)) {
  test(`DB-3: uploaded and carried files reach the agent over a ${name}`, async () => {
    const { status, body } = await upload(Buffer.from('hello'), 'notes.txt', 'text/plain');
    assert.equal(status, 201);
    assert.deepEqual([body.name, body.sizeBytes, body.sha256.length], ['notes.txt', 5, 64]);
    const sessionId = `by-${name}`;
    const attachments = [{ attachmentId: body.attachmentId }, PHOTO];
    const result = await start({ sessionId, taskPrompt: 'look', attachments });
    assert.deepEqual(JSON.parse(String(result?.output)), [['notes.txt', 'text/plain', 5, 'text', 'hello'], IMAGE_TOLD]);
    const next = await call(
      url,
      'session.message',
      { sessionId, taskPrompt: 'more', attachments: [inline('b.md', '# b', '')] },
      main,
    );
    assert.deepEqual(JSON.parse(String(next.result?.output)), [['b.md', 'text/markdown', 3, 'text', '# b']]);
    const page = await fetch(`${url}/api/bridge/sessions/${sessionId}/turns`, { headers: main });
    const { turns } = (await page.json()) as TurnPage;
    assert.deepEqual(
      turns.map((turn) => turn.attachments.map((file) => file.name)),
      [['b.md'], ['notes.txt', 'photo.png']],
    );
  });
}

test('DB-3: the known client’s lists reach the agent: sent files once, named ones as names', async () => {
  const params = {
    sessionId: 'known',
    taskPrompt: 'look',
    attachments: [
      { name: 'photo.png', description: 'image/png', path: '' },
      { name: 'plan.md', description: 'text/markdown', path: '/home/ada/plan.md' },
    ],
    inlineAttachments: [
      { name: 'photo.png', mimeType: 'image/png', content: PNG.toString('base64'), sizeBytes: PNG.length },
    ],
  };
  const told = [['plan.md', '', 0, 'unsent', '/home/ada/plan.md'], IMAGE_TOLD];
  const answer = await call(url, 'session.start', params, main);
  assert.equal(answer.result?.warnings, undefined);
  assert.deepEqual(JSON.parse(String(answer.result?.output)), told);
  const job = await call(url, 'app.jobs.submit', { ...params, sessionId: 'known-job' }, main);
  const jobId = String(job.result?.jobId);
  const ended = await until('the end of the job', async () => {
    const { result } = await call(url, 'app.jobs.get', { jobId }, main);
    return result?.status === 'completed' ? (result.result as { output: string }) : undefined;
  });
  assert.deepEqual(JSON.parse(ended.output), told);
});

test('DB-3: what cannot be used is refused with a reason before anything runs', async () => {
  const before = agent.asked.length;
  const foreign = (await upload(Buffer.from('x'), 'x.txt', 'text/plain', review)).body.attachmentId;
  const big = 'A'.repeat(4 * Math.ceil((5 * 1024 * 1024 + 1) / 3));
  const cases: readonly [readonly object[], string, RegExp][] = [
    [[{ attachmentId: 'att_none' }], 'ATTACHMENT_NOT_FOUND', /upload it again/],
    [[{ attachmentId: foreign }], 'ATTACHMENT_NOT_FOUND', /of yours/],
    [[{ name: 'a', data: 'not base64!' }], 'ATTACHMENT_REFUSED', /"a" is not base64/],
    [[{ name: 'a', data: big }], 'ATTACHMENT_REFUSED', /POST \/api\/bridge\/attachments/],
    [[{}], 'ATTACHMENT_REFUSED', /neither/],
  ];
  for (const [attachments, code, reason] of cases) {
    for (const method of ['session.start', 'app.jobs.submit']) {
      const { error } = await call(url, method, { sessionId: 'refused', taskPrompt: 'x', attachments }, main);
      assert.deepEqual([error?.code, (error?.data as { code: string })?.code], [-32602, code]);
      assert.match(error?.message ?? '', reason);
    }
  }
  assert.equal(agent.asked.length, before);
});

test('DB-3: an upload has at most 25 MiB, is not empty, and comes from someone who may start work', async () => {
  assert.equal((await upload(Buffer.alloc(0), 'a', 'text/plain')).body.error, 'attachment_refused');
  const { status } = await upload(Buffer.alloc(25 * 1024 * 1024 + 1), 'a', 'image/png');
  assert.equal(status, 413);
  assert.equal((await upload(Buffer.from('x'), 'a', 'text/plain', {} as typeof main)).status, 401);
  const page = await fetch(`${url}/api/bridge/attachments`, {
    method: 'POST',
    headers: { ...main, origin: 'https://evil.example' },
    body: 'x',
  });
  assert.equal(page.status, 403);
  await page.body?.cancel();
});

test('DB-3: uploads of one owner have a limit; used ones make room, others do not', async () => {
  const part = Buffer.alloc(650 * 1024, 1);
  const first = (await upload(part, 'one.bin', '', review)).body;
  await call(url, 'session.start', { sessionId: 'uses', taskPrompt: 'x', attachments: [first] }, review);
  for (const name of ['two.bin', 'three.bin']) assert.equal((await upload(part, name, '', review)).status, 201);
  // The first one was used, so it goes.
  assert.equal((await upload(part, 'four.bin', '', review)).status, 201);
  const { status, body } = await upload(part, 'five.bin', '', review);
  assert.deepEqual([status, body.error], [413, 'attachments_full']);
  assert.equal((await upload(Buffer.from('x'), 'main.txt', 'text/plain')).status, 201);
  const gone = await call(url, 'session.start', { sessionId: 'late', taskPrompt: 'x', attachments: [first] }, review);
  assert.equal((gone.error?.data as { code: string })?.code, 'ATTACHMENT_NOT_FOUND');
});

test('DB-3: names are made safe, and two of the same name both stay', () => {
  const cases: readonly [string, string][] = [
    ['../../etc/passwd', 'passwd'],
    ['C:\\Users\\ada\\a b.txt', 'a b.txt'],
    ['.bashrc', 'bashrc'],
    ['-rf', 'rf'],
    ['a\u202egnp.exe\n', 'a_gnp.exe_'],
    ['', 'file'],
    ['...', 'file'],
    [`${'ä'.repeat(200)}.png`, `${'ä'.repeat(58)}.png`],
  ];
  for (const [given, expected] of cases) assert.equal(safeName(given), expected);
  const taken = new Set<string>();
  assert.deepEqual(
    ['a.txt', 'A.txt', 'a.txt'].map((name) => freeName(name, taken)),
    ['a.txt', '2-A.txt', '3-a.txt'],
  );
  const [file] = readGivenFiles({ attachments: [{ name: 'x', data: 'data:image/png;base64,QUJD' }] });
  assert.equal(file?.kind === 'bytes' && String(file.bytes), 'ABC');
});

test('DB-3: files lie in the private folder of the session, not behind a link, and go with the session', async (t) => {
  let place = '';
  const sly = createScriptedProvider('sly', async (turn) => {
    place = turn.files?.[0]?.path ?? '';
    // As an agent may do in its own folder.
    await symlink(other.root, join(turn.workingDirectory, 'attachments')).catch(() => undefined);
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  });
  const other = await startBridge(t, { providers: [sly] });
  const attachments = [inline('a.txt', 'hello')];
  await call(other.url, 'session.start', { sessionId: 'linked', taskPrompt: 'x' });
  const answer = await call(other.url, 'session.message', { sessionId: 'linked', taskPrompt: 'x', attachments });
  assert.match(answer.error?.message ?? '', /is not a folder/);
  assert.deepEqual(readdirSync(other.root), []);
  const own = join(other.root, 'project');
  await mkdir(own);
  await call(other.url, 'session.start', { sessionId: 's', taskPrompt: 'x', workingDirectory: own, attachments });
  assert.ok(place.startsWith(join(other.folder, 'scratch')) && existsSync(place));
  assert.deepEqual(
    readdirSync(own).filter((name) => name !== 'attachments'),
    [],
  );
  await call(other.url, 'session.close', { sessionId: 's' });
  await until('the files are gone', async () => !existsSync(place));
});

test('DB-3: an upload that nobody has used is gone after 24 hours, with its file', async (t) => {
  const clock = createFakeClock(1_800_000_000_000);
  const other = await startBridge(t, { providers: [createScriptedProvider('lister', listing)], clock });
  const { attachmentId } = (await upload(Buffer.from('x'), 'a.txt', 'text/plain', main, other.url)).body;
  const file = join(other.folder, 'attachments', attachmentId);
  assert.ok(existsSync(file));
  await clock.sleep(24 * 3_600_000 + 1);
  const late = await call(other.url, 'session.start', {
    sessionId: 's',
    taskPrompt: 'x',
    attachments: [{ attachmentId }],
  });
  assert.equal((late.error?.data as { code: string })?.code, 'ATTACHMENT_NOT_FOUND');
  await until('the file is gone', async () => {
    await clock.advance(10 * 60_000);
    return !existsSync(file);
  });
});

test('DB-3: a forwarded session gets its files, uploaded ones too', async (t) => {
  const b = await startNode(t, { id: 'b', script: listing });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const { attachmentId } = (await upload(Buffer.from('hello'), 'notes.txt', 'text/plain', asMain, a.url)).body;
  const attachments = [{ attachmentId }, PHOTO];
  const answer = await call(a.url, 'session.start', { sessionId: 's', taskPrompt: 'x', attachments }, asMain);
  const told = [['notes.txt', 'text/plain', 5, 'text', 'hello'], IMAGE_TOLD];
  assert.deepEqual(JSON.parse(String(answer.result?.output)), told);
  assert.equal(a.agent.asked.length, 0);
  const large = (await upload(Buffer.alloc(6 * 1024 * 1024, 1), 'a.bin', '', asMain, a.url)).body;
  const refused = await call(
    a.url,
    'session.message',
    { sessionId: 's', taskPrompt: 'x', attachments: [large] },
    asMain,
  );
  assert.match(refused.error?.message ?? '', /on another bridge/);
});

test('an upload that a forwarded call names again and again is not read again and again', async (t) => {
  const b = await startNode(t, { id: 'b', script: listing });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const { attachmentId } = (await upload(Buffer.alloc(3 * 1024 * 1024, 1), 'a.bin', '', asMain, a.url)).body;
  const start = async (times: number) => {
    const attachments = Array.from({ length: times }, () => ({ attachmentId }));
    const params = { sessionId: `s-${times}`, taskPrompt: 'x', attachments };
    return (await call(a.url, 'session.start', params, asMain)).error?.message ?? '';
  };
  assert.equal(await start(1), '');
  assert.match(await start(2), /takes at most 5242880 bytes of files with one call/);
  assert.match(await start(33), /a call has at most 32 of them/);
  assert.equal(b.agent.asked.length, 1);
});

test('DB-3: a remote agent gets its files, larger ones ahead of the call', async (t) => {
  const remote = createRemoteAgent({
    id: 'far',
    url: await startOtherBridge(t, createScriptedProvider('lister', listing)),
    token: TOKEN,
    clock: systemClock,
    randomness: systemRandomness,
    makeId,
    logger: silentLogger,
    isScratchFolder: () => true,
    hopLimit: 3,
  });
  const near = await startBridge(t, { providers: [remote] });
  const attachments = [inline('a.txt', 'hello'), PHOTO];
  const small = await call(near.url, 'session.start', { sessionId: 's', taskPrompt: 'x', attachments });
  assert.deepEqual(JSON.parse(String(small.result?.output)), [['a.txt', 'text/plain', 5, 'text', 'hello'], IMAGE_TOLD]);
  const size = 6 * 1024 * 1024;
  const { attachmentId } = (await upload(Buffer.alloc(size, 1), 'a.bin', '', {} as typeof main, near.url)).body;
  const large = await call(near.url, 'session.message', {
    sessionId: 's',
    taskPrompt: 'x',
    attachments: [{ attachmentId }],
  });
  assert.deepEqual(JSON.parse(String(large.result?.output)), [['a.bin', 'application/octet-stream', size, 'file', '']]);
});

test('DB-3: the typed client uploads files and sends them with a prompt', async () => {
  const trestle = clientOf({ after }, { url, token: MAIN_TOKEN });
  const { attachmentId, contentType } = await trestle.attachments.upload(new TextEncoder().encode('a,b'), {
    name: 'tä.csv',
  });
  assert.equal(contentType, 'text/csv');
  const { output } = await trestle.session('typed').start('look', { attachments: [{ attachmentId }] }).result;
  assert.deepEqual(JSON.parse(output), [['tä.csv', 'text/csv', 3, 'text', 'a,b']]);
});

test('DB-3: what an agent puts in the place of a file is not read for it', async () => {
  const routing = { routingMode: 'explicit', explicitProviderId: 'swapper' };
  const params = { sessionId: 'swapped', taskPrompt: 'x', routing, attachments: [inline('notes.txt', 'hello')] };
  const { result } = await call(url, 'session.start', params, main);
  assert.equal((result as { output: string }).output, 'TOOL_CALL_REFUSED');
});
