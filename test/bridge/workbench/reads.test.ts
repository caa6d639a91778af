import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { FileView, FolderPage } from '../../../src/bridge/contract/files.ts';
import type * as contract from '../../../src/bridge/contract/workbench.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);
const OUTPUTS: Readonly<Record<string, string>> = {
  long: 'x\n"'.repeat(40_000),
  huge: 'y'.repeat(1.2 * 1024 * 1024),
};
const worker = createScriptedProvider('worker', async ({ prompt, report, signal, usedModel }) => {
  usedModel('model-1');
  report({ kind: 'thinking', text: 'hm' });
  const tool = { kind: 'tool_call', toolCallId: 't1', title: 'Run the tests', toolKind: 'execute' } as const;
  report({ ...tool, status: 'in_progress', input: { command: 'npm test' } });
  report({ kind: 'permission', title: 'Run the tests', decision: 'allowed', toolCallId: 't1' });
  if (prompt.startsWith('wait')) {
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    return { kind: 'cancelled', output: '' };
  }
  report({ ...tool, status: 'completed', output: 'ok' });
  for (const text of ['all ', 'good']) report({ kind: 'text', text });
  const usage = { inputTokens: 10, outputTokens: 5, totalTokens: 15, costUsd: 0.25 };
  return {
    kind: 'completed',
    output: OUTPUTS[prompt.slice(0, 4)] ?? 'all good',
    stopReason: 'end_turn',
    usage,
  };
});
const { url, root, database } = await startBridge({ after }, { providers: [worker], isGuarded: true });

async function get<Shape>(path: string, headers = main): Promise<{ status: number; body: Shape; text: string }> {
  const response = await fetch(`${url}/api/bridge/${path}`, { headers });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json');
  return { status: response.status, body: (isJson ? JSON.parse(text) : undefined) as Shape, text };
}

const patch = (sessionId: string, body: unknown, headers = main) =>
  fetch(`${url}/api/bridge/sessions/${sessionId}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

const start = (sessionId: string, taskPrompt: string, headers = main, more = {}) =>
  call(url, 'session.start', { sessionId, taskPrompt, ...more }, headers);

await mkdir(join(root, 'project', '.git'), { recursive: true });
await writeFile(join(root, 'project', '.git', 'HEAD'), 'ref: refs/heads/feature/one\n');
await start('one', 'Fix the build\nand more', main, { workingDirectory: join(root, 'project'), threadId: 'thread' });
await call(url, 'session.message', { sessionId: 'one', taskPrompt: 'again' }, main);
await start('secret', 'Something private', review);

test('a summary tells what a session is about, what it cost and how its last turn ended', async () => {
  const { session } = (await get<contract.SessionView>('sessions/one')).body;
  const { createdAt, updatedAt, lastTurn, lastSeq, ...rest } = session;
  assert.deepEqual(rest, {
    sessionId: 'one',
    threadId: 'thread',
    owner: 'main',
    title: 'Fix the build',
    providerId: 'worker',
    model: 'model-1',
    mode: '',
    folder: join(root, 'project'),
    branch: 'feature/one',
    state: 'idle',
    doing: '',
    turns: 2,
    queuedTurns: 0,
    openPermissions: 0,
    usage: { inputTokens: 20, outputTokens: 10, totalTokens: 30 },
    costUsd: 0.5,
    changed: { files: 0, added: 0, removed: 0 },
    jobId: '',
    nodeId: '',
    archivedAt: null,
    pinned: false,
  });
  assert.equal(lastTurn?.status, 'completed');
  assert.ok(updatedAt >= createdAt && createdAt > 1e12);
  const { updates } = (await get<contract.UpdatePage>('sessions/one/updates?limit=1')).body;
  assert.equal(updates[0]?.seq, lastSeq, 'the number of the last update');
});

test('a session that runs or waits says so, with what it is doing, and is counted', async () => {
  const running = start('busy', 'wait for me');
  await until(
    'the session runs',
    async () => (await get<contract.SessionPage>('sessions?state=running')).body.sessions.length > 0,
  );
  const waiting = call(url, 'session.message', { sessionId: 'busy', taskPrompt: 'next' }, main);
  await until('a turn waits', async () => (await get<contract.SessionView>('sessions/busy')).body.queued?.length === 1);
  const { session, queued } = (await get<contract.SessionView>('sessions/busy')).body;
  assert.equal(session.state, 'running');
  assert.equal(session.doing, 'Run the tests');
  assert.equal(session.turns, 2);
  assert.equal(session.queuedTurns, 1);
  assert.equal(queued[0]?.prompt, 'next');
  const { counts, sessions } = (await get<contract.SessionPage>('sessions?state=running')).body;
  assert.deepEqual(
    sessions.map(({ sessionId }) => sessionId),
    ['busy'],
  );
  assert.equal(counts.running, 1);
  const idle = (await get<contract.SessionPage>('sessions?state=idle')).body.sessions.map(({ sessionId }) => sessionId);
  assert.ok(!idle.includes('busy') && idle.includes('one'));
  await call(url, 'session.cancel', { sessionId: 'busy' }, main);
  await Promise.all([running, waiting]);
  const after = (await get<contract.SessionView>('sessions/busy')).body.session;
  assert.deepEqual([after.state, after.lastTurn?.status, after.turns], ['idle', 'cancelled', 2]);
});

test('lists are newest first, filtered, and paged without gaps', async () => {
  for (const name of ['p1', 'p2', 'p3', 'p4', 'p5']) await start(name, `Page ${name}`, main, { threadId: 'pages' });
  const ids = (body: contract.SessionPage) => body.sessions.map(({ sessionId }) => sessionId);
  const found: string[] = [];
  for (let cursor = ''; ; ) {
    const { body } = await get<contract.SessionPage>(`sessions?threadId=pages&limit=2${cursor}`);
    found.push(...ids(body));
    if (body.nextCursor === null) break;
    cursor = `&cursor=${body.nextCursor}`;
  }
  assert.deepEqual(found, ['p5', 'p4', 'p3', 'p2', 'p1']);
  assert.deepEqual(ids((await get<contract.SessionPage>('sessions?search=PAGE%20P3')).body), ['p3']);
  // Behind more sessions than are read first.
  assert.deepEqual(ids((await get<contract.SessionPage>('sessions?search=fix%20the%20build&limit=1')).body), ['one']);
  assert.deepEqual(ids((await get<contract.SessionPage>(`sessions?folder=${join(root, 'project')}`)).body), ['one']);
  assert.deepEqual(ids((await get<contract.SessionPage>('sessions?providerId=nobody')).body), []);
  assert.deepEqual(ids((await get<contract.SessionPage>('sessions?owner=review')).body), ['secret']);
});

test('an owner sees its own work and nothing of others, in every route', async () => {
  const own = (await get<contract.SessionPage>('sessions', review)).body;
  assert.deepEqual(
    own.sessions.map(({ sessionId }) => sessionId),
    ['secret'],
  );
  assert.deepEqual(own.counts, { needsYou: 0, running: 0, waiting: 0, idle: 1 });
  assert.deepEqual((await get<contract.SessionPage>('sessions?owner=main', review)).body.sessions, []);
  for (const path of ['one', 'one/turns', 'one/updates', 'one/export', 'one/files?path=a', 'one?owner=main']) {
    const { status, body } = await get<{ error: string; requestId: string }>(`sessions/${path}`, review);
    assert.equal(status, 404, path);
    assert.equal(body.error, 'session_not_found', path);
    assert.ok(body.requestId.length > 0);
  }
  assert.equal((await patch('one', { title: 'mine' }, review)).status, 404);
  const audit = (await get<contract.AuditPage>('audit', review)).body.entries;
  assert.ok(audit.length > 0 && audit.every(({ owner }) => owner === 'review'));
  assert.deepEqual((await get<contract.AuditPage>('audit?owner=main', review)).body.entries, []);
  assert.equal((await get('nodes', review)).status, 403);
  assert.equal((await get<contract.SessionView>('sessions/secret')).body.session.owner, 'review', 'main sees all');
});

test('title, archive and pin are changed, and the next turn brings an archived session back', async () => {
  await start('kept', 'Keep me');
  const changed = await patch('kept', { title: 'Ümläut \u0000 "x"', archived: true, pinned: true });
  assert.equal(changed.status, 200);
  const { session } = (await changed.json()) as { session: contract.Summary };
  assert.deepEqual([session.title, session.state, session.pinned], ['Ümläut \u0000 "x"', 'archived', true]);
  const listed = async (query: string) =>
    (await get<contract.SessionPage>(`sessions${query}`)).body.sessions.some(({ sessionId }) => sessionId === 'kept');
  assert.equal(await listed(''), false);
  assert.equal(await listed('?state=archived'), true);
  assert.equal(await listed('?state=archived&search=%C3%BCml'), true);
  await call(url, 'session.message', { sessionId: 'kept', taskPrompt: 'more' }, main);
  assert.equal(await listed('?state=idle'), true);
  assert.equal((await get<contract.SessionView>('sessions/kept')).body.session.title, 'Ümläut \u0000 "x"');
  for (const wrong of [{}, { title: '' }, { title: 'x'.repeat(201) }, { owner: 'main' }, { archived: 'yes' }]) {
    assert.equal((await patch('kept', wrong)).status, 400, JSON.stringify(wrong));
  }
  await call(url, 'session.close', { sessionId: 'kept' }, main);
  assert.equal((await get('sessions/kept')).status, 404);
  assert.equal(await listed('?state=idle'), false);
});

test('turns come newest first, with their result and the beginning of long texts', async () => {
  const { turns, nextCursor } = (await get<contract.TurnPage>('sessions/one/turns?limit=1')).body;
  assert.deepEqual([turns[0]?.prompt, turns[0]?.method, turns[0]?.status], ['again', 'session.message', 'completed']);
  assert.deepEqual([turns[0]?.output, turns[0]?.costUsd, turns[0]?.truncated], ['all good', 0.25, false]);
  const rest = (await get<contract.TurnPage>(`sessions/one/turns?before=${nextCursor}`)).body;
  assert.deepEqual(
    rest.turns.map(({ prompt }) => prompt),
    ['Fix the build\nand more'],
  );
  assert.equal(rest.nextCursor, null);
  await start('long', 'long text');
  const long = (await get<contract.TurnPage>('sessions/long/turns')).body.turns[0];
  assert.equal(long?.truncated, true);
  const whole = 'x\n"'.repeat(40_000);
  assert.ok(long !== undefined && long.output.length > 5_000 && whole.startsWith(long.output));
  assert.ok((await get('sessions/long/export')).text.includes(whole), 'an export has the whole text');
});

test('the update of a turn that starts has at most 4,096 characters of its prompt, and no half of one', async () => {
  await start('shown', `${'x'.repeat(4095)}🙂 and more`);
  const { updates } = (await get<contract.UpdatePage>('sessions/shown/updates?kinds=started')).body;
  assert.deepEqual(
    updates.map((update) => 'prompt' in update && update.prompt),
    ['x'.repeat(4095)],
  );
});

test('updates are plain, in order, by number from both sides and by kind', async () => {
  const { updates, hasEarlier, hasLater } = (await get<contract.UpdatePage>('sessions/one/updates')).body;
  assert.deepEqual([hasEarlier, hasLater], [false, false]);
  const first = updates.filter(({ turnId }) => turnId === updates[0]?.turnId);
  assert.deepEqual(
    first.map(({ kind }) => kind),
    ['started', 'running', 'thinking', 'tool_call', 'permission', 'tool_call', 'text', 'text', 'completed'],
  );
  assert.equal(first[0] !== undefined && 'prompt' in first[0] && first[0].prompt, 'Fix the build\nand more');
  const { seq, at, turnId, ...tool } = first[3] ?? {};
  assert.deepEqual(tool, {
    kind: 'tool_call',
    toolCallId: 't1',
    title: 'Run the tests',
    status: 'in_progress',
    toolKind: 'execute',
    input: { command: 'npm test' },
  });
  assert.deepEqual(
    { ...first[4], seq: 0, at: 0, turnId: '' },
    {
      ...{ seq: 0, at: 0, turnId: '' },
      kind: 'permission',
      state: 'allowed',
      title: 'Run the tests',
      toolCallId: 't1',
    },
  );
  const page = async (query: string) => (await get<contract.UpdatePage>(`sessions/one/updates?${query}`)).body;
  const texts = await page('kinds=text');
  assert.deepEqual(
    texts.updates.map((update) => 'text' in update && update.text),
    ['all ', 'good', 'all ', 'good'],
  );
  const all: number[] = [];
  for (let afterSeq = 0; ; ) {
    const next = await page(`afterSeq=${afterSeq}&limit=4`);
    all.push(...next.updates.map((update) => update.seq));
    afterSeq = next.lastSeq;
    if (!next.hasLater) break;
  }
  assert.deepEqual(
    all,
    updates.map((update) => update.seq),
  );
  const back: number[] = [];
  for (let beforeSeq = 1e15; ; ) {
    const next = await page(`beforeSeq=${beforeSeq}&limit=5`);
    back.unshift(...next.updates.map((update) => update.seq));
    beforeSeq = next.firstSeq;
    if (!next.hasEarlier) break;
  }
  assert.deepEqual(back, all);
  assert.deepEqual((await page(`afterSeq=${all.at(-1)}`)).updates, []);
  assert.equal((await get('sessions/one/updates?afterSeq=1&beforeSeq=9')).status, 400);
  assert.equal((await get('sessions/one/updates?limit=2001')).status, 400);
});

test('an export is a document that people read, or JSON with everything', async () => {
  const markdown = (await get('sessions/one/export')).text;
  assert.match(markdown, /^# Fix the build\n/);
  assert.match(markdown, /> Fix the build\n> and more\n\n- Run the tests\n\nall good\n/);
  const { body } = await get<{ session: contract.Summary; turns: unknown[]; updates: unknown[] }>(
    'sessions/one/export?form=json',
  );
  assert.deepEqual([body.session.sessionId, body.turns.length, body.updates.length], ['one', 2, 18]);
});

test('an export in pages is the same document, and no page is much longer than a turn', async () => {
  for (const [sessionId, prompt] of [
    ['one', ''],
    ['paged', 'huge'],
  ] as const) {
    for (let turn = 0; prompt !== '' && turn < 3; turn += 1) {
      await call(url, turn === 0 ? 'session.start' : 'session.message', { sessionId, taskPrompt: prompt }, main);
    }
    for (const form of ['markdown', 'json']) {
      const whole = (await get(`sessions/${sessionId}/export?form=${form}`)).text;
      const pages: string[] = [];
      for (let cursor: string | null = ''; cursor !== null; ) {
        const page: Response = await fetch(
          `${url}/api/bridge/sessions/${sessionId}/export?form=${form}&cursor=${cursor}`,
          {
            headers: main,
          },
        );
        assert.equal(page.status, 200);
        pages.push(await page.text());
        cursor = page.headers.get('x-next-cursor');
      }
      assert.equal(pages.join('') === whole, true, `${sessionId} as ${form}`);
      assert.equal(pages.length > 2, prompt !== '', `${pages.length} pages of ${sessionId}`);
      assert.ok(pages.every(({ length }) => length < 2.5 * 1024 * 1024));
    }
  }
  for (const wrong of ['form=json&cursor=x', 'cursor=update-3', 'form=json&cursor=update-1e9']) {
    assert.equal((await get(`sessions/one/export?${wrong}`)).status, 400, wrong);
  }
});

test('the audit is read by owner, action, session and time', async () => {
  const { entries } = (await get<contract.AuditPage>('audit?sessionId=one&action=permission')).body;
  assert.equal(entries.length, 2);
  assert.deepEqual(
    [entries[0]?.decision, entries[0]?.subject],
    ['allowed', { title: 'Run the tests', toolCallId: 't1' }],
  );
  assert.ok((entries[0]?.at ?? 0) >= (entries[1]?.at ?? 0));
  const page = (await get<contract.AuditPage>('audit?sessionId=one&limit=1')).body;
  const next = (await get<contract.AuditPage>(`audit?sessionId=one&limit=1&cursor=${page.nextCursor}`)).body;
  assert.deepEqual([page.entries[0]?.id, next.entries[0]?.id], [entries[0]?.id, entries[1]?.id]);
  assert.deepEqual((await get<contract.AuditPage>('audit?to=1000')).body.entries, []);
});

test('folders are listed inside the roots alone, without hidden, private and linked ones', async () => {
  await mkdir(join(root, '.hidden'));
  await mkdir(join(root, 'plain'));
  // Reading a pipe would wait for its writer, and four such requests would stop every access to files.
  await mkdir(join(root, 'piped'));
  await mkdir(join(root, 'piped-head', '.git'), { recursive: true });
  execFileSync('mkfifo', [join(root, 'piped', '.git'), join(root, 'piped-head', '.git', 'HEAD')]);
  await writeFile(join(root, 'file'), '');
  await symlink('/', join(root, 'link'));
  assert.deepEqual((await get<FolderPage>('folders')).body, { roots: [root], entries: [], truncated: false });
  const { entries } = (await get<FolderPage>(`folders?path=${root}`)).body;
  assert.deepEqual(entries, [
    { name: 'piped', path: join(root, 'piped'), git: { branch: '' } },
    { name: 'piped-head', path: join(root, 'piped-head'), git: { branch: '' } },
    { name: 'plain', path: join(root, 'plain') },
    { name: 'project', path: join(root, 'project'), git: { branch: 'feature/one' } },
  ]);
  for (const path of ['/', '/proc/self', `${root}/..`, `${root}/link/etc`, 'relative', `${root}/none`, `${root}/%00`]) {
    const { status, body } = await get<{ error: string }>(`folders?path=${path}`);
    assert.equal(status, 403, path);
    assert.equal(body.error, 'folder_refused', path);
  }
});

test('files are read inside the folder of the session alone', async () => {
  await writeFile(join(root, 'project', 'a.txt'), 'héllo');
  await writeFile(join(root, 'project', 'bytes'), Buffer.from([0xff, 0xfe, 0, 1]));
  await writeFile(join(root, 'project', 'large'), 'é'.repeat(600_000));
  await writeFile(join(root, 'outside'), 'secret');
  await symlink(join(root, 'outside'), join(root, 'project', 'out'));
  const read = (path: string) =>
    get<FileView & { error: string }>(`sessions/one/files?path=${encodeURIComponent(path)}`);
  const { body } = await read('a.txt');
  assert.deepEqual([body.encoding, body.content, body.truncated], ['utf8', 'héllo', false]);
  assert.deepEqual([(await read('bytes')).body.encoding, (await read('bytes')).body.content], ['base64', '//4AAQ==']);
  const large = (await read('large')).body;
  assert.deepEqual([large.truncated, large.sizeBytes, large.content.length], [true, 1_200_000, 524_288]);
  for (const path of ['../outside', 'out', join(root, 'outside'), '/etc/passwd', '.', 'a\0b', '.git']) {
    assert.equal((await read(path)).body.error, 'file_refused', path);
  }
  assert.equal((await read('missing')).body.error, 'file_not_found');
});

test('wrong input is refused in words, and never an internal error', async () => {
  for (const path of [
    'sessions?cursor=xx',
    'sessions?cursor=WzEsMl0',
    'sessions?limit=0',
    'sessions?limit=x',
    'sessions?state=none',
    'audit?cursor=%22',
    'sessions/one/updates?kinds=a%20b',
    'sessions/one/files',
    'nodes/explain',
  ]) {
    const { status, body } = await get<{ error: string; message: string }>(path);
    assert.equal(status, 400, path);
    assert.equal(body.error, 'invalid_request', path);
  }
  assert.equal((await get('nothing')).status, 404);
  assert.equal((await get('sessions/%00')).status, 400);
  const foreign = await get<{ error: string }>('sessions', { ...main, origin: 'https://evil.example' });
  assert.deepEqual([foreign.status, foreign.body.error], [403, 'own_origin_required']);
  assert.equal((await get('sessions', { ...main, origin: url })).status, 200);
});

test('a turn has no commit more than before: its summary travels with its beginning and its end', async () => {
  await start('counted', 'first');
  const before = database.statistics().batches;
  await call(url, 'session.message', { sessionId: 'counted', taskPrompt: 'again' }, main);
  const batches = database.statistics().batches - before;
  assert.ok(batches <= 3, `${batches} batches`);
});
