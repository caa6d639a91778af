import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import {
  chmod,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { ChangesPage, DiffView, UndoResult } from '../../../src/bridge/contract/files.ts';
import type { SessionView, TurnPage, UpdatePage } from '../../../src/bridge/contract/workbench.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);
/** What the agent does in its folder, by prompt. */
const work = new Map<string, (folder: string, signal: AbortSignal) => Promise<void>>();
const worker = createScriptedProvider('worker', async ({ prompt, workingDirectory, signal, report }) => {
  await work.get(prompt)?.(workingDirectory, signal);
  if (prompt === 'report') {
    const tool = { kind: 'tool_call', toolCallId: 't', title: 'Edit', toolKind: 'edit', status: 'completed' } as const;
    const text = { path: 'a.txt', oldText: 'one\ntwo\n', newText: 'one\n2\n', added: 1, removed: 1, truncated: false };
    report({ ...tool, changes: [text] });
    report({ ...tool, status: 'completed', changes: [text] });
  }
  return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
});
const bridge = await startBridge({ after }, { providers: [worker], isGuarded: true });
const { url, root } = bridge;
let sessions = 0;

async function request<Shape>(method: string, path: string, body?: object, headers = main) {
  const response = await fetch(`${url}/api/bridge/sessions/${path}`, {
    method,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Shape & { error?: string; details?: object } };
}

const get = <Shape>(path: string, headers = main) => request<Shape>('GET', path, undefined, headers);
const undo = (sessionId: string, turnId: string, headers = main) =>
  request<UndoResult>('POST', `${sessionId}/undo`, { turnId }, headers);

/** A folder with these files, and a session that has worked in it; the ids of its turns, oldest first. */
async function workIn(files: Readonly<Record<string, string>>, ...turns: ((folder: string) => Promise<void>)[]) {
  sessions += 1;
  const sessionId = `s${sessions}`;
  const folder = join(root, sessionId);
  await mkdir(folder);
  for (const [path, content] of Object.entries(files)) {
    await mkdir(join(folder, path, '..'), { recursive: true });
    await writeFile(join(folder, path), content);
  }
  for (const [index, turn] of turns.entries()) {
    const taskPrompt = `${sessionId} turn ${index}`;
    work.set(taskPrompt, turn);
    const method = index === 0 ? 'session.start' : 'session.message';
    const params = { sessionId, taskPrompt, ...(index === 0 && { workingDirectory: folder }) };
    const { result } = await call(url, method, params, main);
    assert.equal((result as { success?: boolean } | undefined)?.success, true);
  }
  const { body } = await get<TurnPage>(`${sessionId}/turns`);
  const turnIds = body.turns.map(({ turnId }) => turnId).toReversed();
  return { sessionId, folder, turnIds, turnId: turnIds[0] ?? '' };
}

const text = (folder: string, path: string) => readFile(join(folder, path), 'utf8');

test('what a turn has changed is listed, shown, counted in the summary, and undone', async () => {
  const { sessionId, folder, turnId } = await workIn(
    { 'a.txt': 'one\ntwo\n', 'gone.txt': 'x\n', 'run.sh': '#!/bin/sh\n', 'dir/file': 'f\n', plain: 'p\n' },
    async (place) => {
      await writeFile(join(place, 'a.txt'), 'one\n2\n');
      await mkdir(join(place, 'new/deep'), { recursive: true });
      await writeFile(join(place, 'new/deep/file'), 'new\n');
      await rm(join(place, 'gone.txt'));
      await chmod(join(place, 'run.sh'), 0o755);
      await rm(join(place, 'dir'), { recursive: true });
      await writeFile(join(place, 'dir'), 'now a file\n');
      await rm(join(place, 'plain'));
      await symlink('/etc/passwd', join(place, 'plain'));
    },
  );
  const { body } = await get<ChangesPage>(`${sessionId}/changes`);
  assert.deepEqual(body.base, { source: 'checkpoint', turnId });
  assert.deepEqual(
    body.files.map(({ path, status, added, removed }) => [path, status, added, removed]),
    [
      ['a.txt', 'modified', 1, 1],
      ['dir', 'added', 1, 0],
      ['dir/file', 'deleted', 0, 1],
      ['gone.txt', 'deleted', 0, 1],
      ['new/deep/file', 'added', 1, 0],
      ['plain', 'modified', 1, 1],
      ['run.sh', 'modified', 0, 0],
    ],
  );
  const { session } = (await get<SessionView>(sessionId)).body;
  assert.deepEqual(session.changed, { files: 7, added: 4, removed: 4 });
  const diff = (await get<DiffView>(`${sessionId}/changes/diff?path=a.txt`)).body;
  assert.deepEqual(diff, {
    path: 'a.txt',
    unified: '--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n',
    truncated: false,
  });
  assert.match((await get<DiffView>(`${sessionId}/changes/diff?path=gone.txt`)).body.unified, /^\+\+\+ \/dev\/null$/m);
  assert.equal((await get(`${sessionId}/changes/diff?path=nothing`)).body.error, 'file_not_changed');

  const undone = await undo(sessionId, turnId);
  assert.equal(undone.status, 200, JSON.stringify(undone.body));
  assert.equal(undone.body.restored.length, 7);
  assert.deepEqual(
    undone.body.files.map(({ path, action }) => `${action} ${path}`),
    [
      'restored a.txt',
      'removed dir',
      'created dir/file',
      'created gone.txt',
      'removed new/deep/file',
      'restored plain',
      'restored run.sh',
    ],
  );
  assert.equal(await text(folder, 'a.txt'), 'one\ntwo\n');
  assert.equal(await text(folder, 'gone.txt'), 'x\n');
  assert.equal(await text(folder, 'dir/file'), 'f\n');
  assert.equal(await text(folder, 'plain'), 'p\n');
  assert.equal((await lstat(join(folder, 'plain'))).isFile(), true);
  assert.equal((await stat(join(folder, 'run.sh'))).mode & 0o111, 0);
  assert.deepEqual((await readdir(folder)).toSorted(), ['a.txt', 'dir', 'gone.txt', 'plain', 'run.sh']);
  assert.deepEqual((await undo(sessionId, turnId)).body.restored, [], 'undone already');
  assert.deepEqual((await get<ChangesPage>(`${sessionId}/changes`)).body.files, []);
  assert.equal((await get<SessionView>(sessionId)).body.session.changed.files, 0);
});

test('turns are undone one after the other, the last one first; what changed since is named and kept', async () => {
  const { sessionId, folder, turnIds } = await workIn(
    { a: '1\n', b: '1\n', user: '1\n' },
    async (place) => writeFile(join(place, 'a'), '2\n'),
    async (place) => {
      await writeFile(join(place, 'a'), '3\n');
      await writeFile(join(place, 'b'), '2\n');
    },
  );
  const [first = '', second = ''] = turnIds;
  await writeFile(join(folder, 'user'), 'edited by a person\n');
  const all = (await get<ChangesPage>(`${sessionId}/changes`)).body;
  assert.deepEqual(
    all.files.map(({ path, added, removed }) => [path, added, removed]),
    [
      ['a', 1, 1],
      ['b', 1, 1],
    ],
  );
  const early = await undo(sessionId, first);
  assert.deepEqual([early.status, early.body.error, early.body.details], [409, 'files_changed', { files: ['a'] }]);
  await writeFile(join(folder, 'b'), 'edited by a person\n');
  const refused = await undo(sessionId, second);
  assert.deepEqual([refused.status, refused.body.details], [409, { files: ['b'] }]);
  assert.equal(await text(folder, 'a'), '3\n', 'nothing was undone');
  await writeFile(join(folder, 'b'), '2\n');
  assert.deepEqual((await undo(sessionId, second)).body.restored, ['a', 'b']);
  assert.deepEqual(
    (await get<ChangesPage>(`${sessionId}/changes`)).body.files.map(({ path }) => path),
    ['a'],
  );
  assert.deepEqual((await undo(sessionId, first)).body.restored, ['a']);
  assert.equal(await text(folder, 'a'), '1\n');
  assert.equal(await text(folder, 'user'), 'edited by a person\n');
});

test('an undo that was interrupted is completed by another one', async () => {
  const { sessionId, folder, turnId } = await workIn({ a: '1\n', b: '1\n' }, async (place) => {
    await writeFile(join(place, 'a'), '2\n');
    await writeFile(join(place, 'b'), '2\n');
  });
  // As a crash in the middle leaves it: one file is back, and nothing is noted.
  await writeFile(join(folder, 'a'), '1\n');
  assert.deepEqual((await undo(sessionId, turnId)).body.restored, ['b']);
  assert.equal(await text(folder, 'b'), '1\n');
});

test('undo writes nothing through links that lead out of the folder', async () => {
  const { sessionId, folder, turnId } = await workIn({ 'd/a': '1\n', 'e/a': '1\n' }, async (place) => {
    await writeFile(join(place, 'd/a'), '2\n');
    await rm(join(place, 'e/a'));
  });
  const outside = join(root, `${sessionId}-outside`);
  await mkdir(outside);
  await writeFile(join(outside, 'a'), '2\n');
  for (const name of ['d', 'e']) {
    await rename(join(folder, name), join(folder, `${name}-moved`));
    await symlink(outside, join(folder, name));
  }
  const refused = await undo(sessionId, turnId);
  assert.deepEqual([refused.status, refused.body.details], [409, { files: ['d/a'] }]);
  await rm(join(folder, 'd'));
  await rename(join(folder, 'd-moved'), join(folder, 'd'));
  const stopped = await undo(sessionId, turnId);
  assert.equal(stopped.status, 409, JSON.stringify(stopped.body));
  assert.deepEqual(await readdir(outside), ['a']);
  assert.equal(await text(outside, 'a'), '2\n');
  assert.equal(await readlink(join(folder, 'e')), outside);
});

test('a running turn shows its changes and cannot be undone; a person may not undo what is not theirs', async () => {
  const goOn = Promise.withResolvers<void>();
  const { sessionId, turnId } = await workIn({ a: '1\n' }, async () => undefined);
  work.set('slow', async (folder) => {
    await writeFile(join(folder, 'a'), '2\n');
    await goOn.promise;
  });
  const running = call(url, 'session.message', { sessionId, taskPrompt: 'slow' }, main);
  await until(
    'the change of the running turn',
    async () => (await get<ChangesPage>(`${sessionId}/changes`)).body.files.length === 1,
  );
  const refused = await undo(sessionId, turnId);
  assert.deepEqual([refused.status, refused.body.error], [409, 'turn_running']);
  goOn.resolve();
  await running;
  assert.equal((await undo(sessionId, turnId, review)).status, 404, 'a session of another owner');
  assert.equal((await get(`${sessionId}/changes`, review)).status, 404);
  assert.equal((await undo(sessionId, 'turn-unknown')).body.error, 'turn_not_found');
  assert.equal((await get(`${sessionId}/changes?turnId=turn-unknown`)).body.error, 'turn_not_found');
  assert.equal((await request('POST', `${sessionId}/undo`, { turnId, more: 1 })).status, 400);
});

test('a turn that died with its bridge can be undone by the next one', async () => {
  const { sessionId, folder, turnIds } = await workIn(
    { a: '1\n' },
    async () => undefined,
    async (place) => writeFile(join(place, 'a'), '2\n'),
  );
  const [, turnId = ''] = turnIds;
  const { folder: data } = bridge;
  const [key = ''] = (await readdir(join(data, 'checkpoints'), { recursive: true }))
    .filter((name) => name.endsWith(`${turnId}.json`))
    .map((name) => name.split('/')[0] ?? '');
  const file = join(data, 'checkpoints', key, 'turns', `${turnId}.json`);
  const {
    after: _after,
    files: _files,
    ...begun
  } = JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>;
  await writeFile(file, JSON.stringify(begun));
  assert.deepEqual(
    (await get<ChangesPage>(`${sessionId}/changes?turnId=${turnId}`)).body.files.map(({ path }) => path),
    ['a'],
  );
  assert.deepEqual((await undo(sessionId, turnId)).body.restored, ['a']);
  assert.equal(await text(folder, 'a'), '1\n');
});

test('saved states are removed with their session, and a session without a folder has none', async () => {
  const { sessionId } = await workIn({ a: '1\n' }, async (place) => writeFile(join(place, 'a'), '2\n'));
  const saved = async () => (await readdir(join(bridge.folder, 'checkpoints'))).length;
  const before = await saved();
  await call(url, 'session.close', { sessionId }, main);
  assert.equal(await saved(), before - 1);
  await call(url, 'session.start', { sessionId: 'folderless', taskPrompt: 'report' }, main);
  assert.equal(await saved(), before - 1);
  const { body } = await get<ChangesPage>('folderless/changes');
  assert.deepEqual(body, {
    files: [{ path: 'a.txt', status: 'modified', added: 1, removed: 1, binary: false }],
    base: { source: 'updates', turnId: '' },
  });
  assert.equal(
    (await get<DiffView>('folderless/changes/diff?path=a.txt')).body.unified,
    '--- a/a.txt\n+++ b/a.txt\n@@ -2,1 +2,1 @@\n-two\n+2\n',
  );
  const { turns } = (await get<TurnPage>('folderless/turns')).body;
  assert.equal((await undo('folderless', turns[0]?.turnId ?? '')).body.error, 'undo_unavailable');
});

test('a folder that is too large is not saved: the first turn says so, and it is not tried again', async () => {
  const small = await startBridge(
    { after },
    { providers: [createScriptedProvider('worker')], settings: 'bridge: { checkpoints: { max_files: 1 } }\n' },
  );
  await writeFile(join(small.root, 'a'), '1');
  await writeFile(join(small.root, 'b'), '1');
  const params = { sessionId: 'large', workingDirectory: small.root };
  await call(small.url, 'session.start', { ...params, taskPrompt: 'one' });
  await call(small.url, 'session.message', { ...params, taskPrompt: 'two' });
  const response = await fetch(`${small.url}/api/bridge/sessions/large/updates?kinds=status`);
  const notes = ((await response.json()) as UpdatePage).updates.map((update) => ('text' in update ? update.text : ''));
  assert.deepEqual(notes, [
    'The changes of this session cannot be undone: 2 files would have to be read, more than 1.',
  ]);
});

test('a repository keeps its history and its index, and what it ignores is not touched', async () => {
  const { sessionId, folder, turnId } = await workIn(
    { '.gitignore': 'out\n', a: '1\n', out: 'built\n' },
    async (place) => {
      const env = { PATH: process.env.PATH, HOME: '/nonexistent' };
      execFileSync('git', ['init', '-q', '.'], { cwd: place, env });
      execFileSync('git', ['add', 'a'], { cwd: place, env });
      await writeFile(join(place, 'a'), '2\n');
      await writeFile(join(place, 'out'), 'built again\n');
    },
  );
  const index = await readFile(join(folder, '.git/index'));
  assert.deepEqual((await undo(sessionId, turnId)).body.restored, ['a']);
  assert.deepEqual(await readFile(join(folder, '.git/index')), index);
  assert.equal(existsSync(join(folder, '.git/refs/heads/none')), false);
  assert.equal(await text(folder, 'out'), 'built again\n');
});
