import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, realpath, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import type { AgentEvent } from '../../../src/bridge/agents/agent-provider.ts';
import { createArtifactLinks } from '../../../src/bridge/artifacts/artifact-links.ts';
import { createArtifacts, createProducedPaths } from '../../../src/bridge/artifacts/create-artifacts.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createArtifactStore } from '../../../src/bridge/storage/file-stores.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { confine } from '../../kit/bridge/builtin-agent.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createScriptedProvider, type TurnScript } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

interface Listed {
  readonly relativePath: string;
  readonly label: string;
  readonly contentType: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly downloadUrl: string;
}

const KEYS = [new Uint8Array(32).fill(7)] as const;
const DAY = 24 * 3_600_000;

const edited = (path: string, more: Partial<Extract<AgentEvent, { kind: 'tool_call' }>> = {}): AgentEvent => ({
  kind: 'tool_call',
  toolCallId: path,
  title: 'edit',
  status: 'completed',
  toolKind: 'edit',
  locations: [{ path }],
  ...more,
});

async function runTurn(context: TestContext, script: TurnScript) {
  const bridge = await startBridge(context, { providers: [createScriptedProvider('first', script)] });
  const { result } = await call(bridge.url, 'session.start', { sessionId: 's1', taskPrompt: 'write' });
  return { bridge, artifacts: result?.artifacts as Listed[], result };
}

test('files that an agent says it has written come as artifacts whose links download them', async (context) => {
  const { bridge, artifacts } = await runTurn(context, async ({ workingDirectory, report }) => {
    await mkdir(join(workingDirectory, 'out'));
    await writeFile(join(workingDirectory, 'out', "it's für.html"), '<b>hello</b>');
    await writeFile(join(workingDirectory, 'unnamed.txt'), 'nobody said so');
    report(edited(join(workingDirectory, 'out', "it's für.html")));
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  });
  const [artifact, ...others] = artifacts;
  assert.deepEqual(others, []);
  assert.equal(artifact?.relativePath, join('out', "it's für.html"));
  assert.equal(artifact?.label, "it's für.html");
  assert.equal(artifact?.contentType, 'text/html; charset=utf-8');
  assert.equal(artifact?.sizeBytes, 12);
  assert.equal(artifact?.sha256, createHash('sha256').update('<b>hello</b>').digest('hex'));
  const response = await fetch(`${bridge.url}${artifact?.downloadUrl}`);
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(response.headers.get('content-disposition'), "attachment; filename*=UTF-8''it%27s%20f%C3%BCr.html");
  assert.equal(response.headers.get('content-length'), '12');
  assert.equal(await response.text(), '<b>hello</b>');
});

test('a link outlives the private folder, gives the file as it was, and needs no credential', async (context) => {
  const { bridge, artifacts } = await runTurn(context, async ({ workingDirectory, report }) => {
    await writeFile(join(workingDirectory, 'a.txt'), 'first');
    await writeFile(join(workingDirectory, 'empty.txt'), '');
    report(edited('a.txt'));
    report(edited('empty.txt'));
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  });
  await rm(join(bridge.folder, 'scratch'), { recursive: true });
  const empty = await fetch(`${bridge.url}${artifacts[1]?.downloadUrl}`);
  assert.deepEqual([empty.status, await empty.text()], [200, '']);
  const response = await fetch(`${bridge.url}${artifacts[0]?.downloadUrl}`);
  assert.equal(await response.text(), 'first');
  const [file] = await readdir(join(bridge.folder, 'artifacts'));
  assert.equal((await stat(join(bridge.folder, 'artifacts', file ?? ''))).mode & 0o777, 0o600);
});

test('what lies outside the working directory is no artifact, by whatever path', async (context) => {
  const outside = await realpath(await mkdtemp(join(tmpdir(), 'trestle-outside-')));
  context.after(() => rm(outside, { recursive: true, force: true }));
  await writeFile(join(outside, 'secret.txt'), 'secret');
  const { artifacts, result } = await runTurn(context, async ({ workingDirectory, report }) => {
    await symlink(join(outside, 'secret.txt'), join(workingDirectory, 'link.txt'));
    await symlink(outside, join(workingDirectory, 'folder'));
    for (const path of [
      join(outside, 'secret.txt'),
      'link.txt',
      'folder/secret.txt',
      '../../bridge.db',
      '.',
      'gone.txt',
    ]) {
      report(edited(path));
    }
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  });
  assert.deepEqual(artifacts, []);
  assert.equal(result?.status, 'completed');
});

test('a changed link is 403, an old one 410, and one to nothing 404', async (context) => {
  const { bridge, artifacts } = await runTurn(context, async ({ workingDirectory, report }) => {
    await writeFile(join(workingDirectory, 'a.txt'), 'text');
    report(edited('a.txt'));
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  });
  const link = artifacts[0]?.downloadUrl ?? '';
  const [, , signature = '', expires = '', id = '', name = ''] = link.split('/');
  const status = async (path: string) => (await fetch(`${bridge.url}${path}`)).status;
  const later = Number(expires) + DAY;
  for (const path of [
    `/artifacts/${signature}/${later}/${id}/${name}`,
    `/artifacts/${signature}/${expires}/art_other/${name}`,
    `/artifacts/${signature}/${expires}/${id}/b.txt`,
    `/artifacts/${signature.slice(1)}/${expires}/${id}/${name}`,
    `/artifacts//${expires}/${id}/${name}`,
    '/artifacts/x',
    '/artifacts/../bridge.db',
    '/artifacts/%2e%2e/bridge.db',
  ]) {
    assert.ok([403, 404].includes(await status(path)), path);
  }
  assert.equal(await status(`/artifacts/${signature}/${later}/${id}/${name}`), 403);
  const links = createArtifactLinks(KEYS);
  assert.equal(await status(links.sign(id, 'a.txt', Date.now() - 1)), 410);
  assert.equal(await status(links.sign('art_gone', 'a.txt', Date.now() + 1000)), 404);
  assert.equal(await status(link), 200);
  assert.equal((await fetch(`${bridge.url}${link}`, { method: 'POST' })).status, 405);
  await rm(join(bridge.folder, 'artifacts', id));
  assert.equal(await status(link), 404);
});

test('a link that was signed with an older key is still good', () => {
  const older = new Uint8Array(32).fill(1);
  const link = createArtifactLinks([older]).sign('art_1', 'a', 5);
  assert.deepEqual(createArtifactLinks([KEYS[0], older]).read(link), { artifactId: 'art_1', expiresAt: 5 });
  assert.equal(createArtifactLinks(KEYS).read(link), undefined);
});

test('only completed edits count, also when the place was named at the beginning of the call', () => {
  const produced = createProducedPaths();
  for (const event of [
    edited('read.txt', { toolKind: 'read' }),
    edited('failed.txt', { status: 'failed' }),
    edited('open.txt', { status: 'in_progress' }),
    edited('early.txt', { toolCallId: 'e', status: 'pending' }),
    { kind: 'tool_call', toolCallId: 'e', title: 'x', status: 'completed', toolKind: 'other' } as const,
    edited('plain.txt'),
    edited('plain.txt'),
  ]) {
    produced.note(event);
  }
  assert.deepEqual(produced.paths(), ['early.txt', 'plain.txt']);
});

/** Longer than the output of a result may be, with characters of two code units at every place where it could be cut. */
const LONG_TEXT = 'long 🙂'.repeat(600_000);

/** Reports a text in pieces of a size that the bridge must split again. */
async function tell(report: (event: AgentEvent) => Promise<void> | undefined, text: string): Promise<void> {
  for (let at = 0; at < text.length; at += 70_000) await report({ kind: 'text', text: text.slice(at, at + 70_000) });
}

async function download(url: string, { downloadUrl }: Listed): Promise<string> {
  return (await fetch(new URL(downloadUrl, url))).text();
}

test('DB-30: an output that is too long for the result is marked as truncated, and is an artifact as a whole', async (context) => {
  const { bridge, artifacts, result } = await runTurn(context, async ({ workingDirectory, report }) => {
    await report({ kind: 'text', text: 'before the last tool call' });
    await writeFile(join(workingDirectory, 'output.txt'), 'a file of the agent');
    report(edited(join(workingDirectory, 'output.txt')));
    await tell(report, LONG_TEXT);
    return { kind: 'completed', output: LONG_TEXT, stopReason: 'end_turn' };
  });
  assert.deepEqual([result?.status, result?.truncated], ['completed', true]);
  assert.equal(result?.output, LONG_TEXT.slice(0, 4_000_000));
  assert.deepEqual(
    artifacts.map(({ relativePath, contentType }) => [relativePath, contentType]),
    [
      ['output.txt', 'text/plain; charset=utf-8'],
      ['2-output.txt', 'text/plain; charset=utf-8'],
    ],
  );
  const [, whole] = artifacts as [Listed, Listed];
  const text = await download(bridge.url, whole);
  assert.equal(text, LONG_TEXT);
  assert.equal(createHash('sha256').update(text).digest('hex'), whole.sha256);
});

test('DB-30: every long output of a multi-agent run is marked in its step and kept', async (context) => {
  const script: TurnScript = async ({ report, prompt }) => {
    const output = prompt === 'long' ? LONG_TEXT : 'short';
    await tell(report, output);
    return { kind: 'completed', output: output.slice(0, 4_000_000), stopReason: 'end_turn' };
  };
  const providers = [createScriptedProvider('first', script), createScriptedProvider('second', script)];
  const bridge = await startBridge(context, { providers });
  const { result } = await call(bridge.url, 'session.start', {
    sessionId: 's1',
    taskPrompt: 'both',
    multiAgent: true,
    routing: {
      orchestrationMode: 'parallel',
      steps: [
        { providerId: 'first', prompt: 'short' },
        { providerId: 'second', prompt: 'long' },
      ],
    },
  });
  const steps = (result?.steps ?? []) as { truncated?: boolean }[];
  assert.deepEqual([result?.truncated, ...steps.map(({ truncated }) => truncated)], [true, undefined, true]);
  const [only, ...others] = (result?.artifacts ?? []) as Listed[];
  assert.deepEqual([only?.relativePath, others], ['step-1-output.txt', []]);
  assert.equal(await download(bridge.url, only as Listed), LONG_TEXT);
});

for (const engine of engines) {
  describe(`artifacts on ${engine}`, () => {
    const places = databasePlaces(engine);
    test('DB-16: one owner cannot take the room of another: its own oldest files go first', async (context) => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-artifacts-')));
      context.after(() => rm(folder, { recursive: true, force: true }));
      const store = createArtifactStore(database);
      let now = 1_700_000_000_000;
      const artifacts = createArtifacts({
        folder: join(folder, 'kept'),
        confine,
        store,
        maxBytes: 1000,
        maxBytesOfOwner: 600,
        links: createArtifactLinks(KEYS),
        clock: { now: () => now },
        makeId: createSortableIds(systemClock, systemRandomness),
        logger: silentLogger,
      });
      const keep = async (owner: string, size: number) => {
        now += 1;
        const origin = { owner, sessionKey: `ses_${owner}`, turnId: 'turn-1', workingDirectory: folder };
        const [kept] = await artifacts.keep(origin, [], [{ label: 'f', contentType: '', bytes: Buffer.alloc(size) }]);
        return kept?.downloadUrl;
      };
      const isThere = (url: string | undefined) =>
        artifacts.find(url ?? '').then(
          () => true,
          () => false,
        );
      const good = await keep('good', 300);
      const hostile = [];
      for (let count = 0; count < 10; count += 1) hostile.push(await keep('hostile', 200));
      assert.equal(await isThere(good), true);
      const left = await Promise.all(hostile.map(isThere));
      assert.deepEqual(left, [...Array(7).fill(false), true, true, true]);
      const second = await keep('good', 300);
      assert.deepEqual([await isThere(good), await isThere(second)], [true, true], 'whoever has most makes room');
      assert.equal(await keep('hostile', 700), undefined, 'too large to be kept at all');
      assert.equal((await readdir(join(folder, 'kept'))).length, 4);
      await artifacts.removeSession('ses_good');
      assert.equal(await isThere(second), false);
      // The beginning of a long text is worth more than nothing.
      const chunks = [Buffer.alloc(300), Buffer.from(`${'x'.repeat(298)}€${'x'.repeat(99)}`)];
      const origin = { owner: 'long', sessionKey: 'ses_long', turnId: 'turn-1', workingDirectory: folder };
      const [text] = await artifacts.keep(origin, [], [], [{ label: 'output', chunks }]);
      // 600 bytes would end in the middle of a character.
      assert.deepEqual([text?.relativePath, text?.sizeBytes], ['output-beginning.txt', 598]);
    });

    test('files are kept with their owner, within bounds, and deleted when their links are over', async (context) => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-artifacts-')));
      context.after(() => rm(folder, { recursive: true, force: true }));
      let now = 1_700_000_000_000;
      const store = createArtifactStore(database);
      const artifacts = createArtifacts({
        folder: join(folder, 'kept'),
        confine,
        store,
        maxBytes: 2 ** 40,
        maxBytesOfOwner: 2 ** 40,
        links: createArtifactLinks(KEYS),
        clock: { now: () => now },
        makeId: createSortableIds(systemClock, systemRandomness),
        logger: silentLogger,
      });
      const origin = { owner: 'review', sessionKey: 'ses_1', turnId: 'turn-1', workingDirectory: folder };
      const bytes = Buffer.from('x');
      const files = Array.from({ length: 30 }, () => ({ label: 'same.txt', contentType: 'not a type', bytes }));
      const large = { label: 'large.bin', contentType: '', bytes: Buffer.alloc(64 * 1024 * 1024 + 1) };
      const kept = await artifacts.keep(origin, [], [large, ...files]);
      assert.equal(kept.length, 19);
      assert.equal(new Set(kept.map(({ relativePath }) => relativePath)).size, 19);
      assert.equal(kept[0]?.contentType, 'text/plain; charset=utf-8');
      const found = await artifacts.find(kept[0]?.downloadUrl ?? '');
      assert.ok('row' in found);
      const { row } = found;
      assert.deepEqual([row.owner, row.session_key, row.turn_id], ['review', 'ses_1', 'turn-1']);
      await artifacts.sweep();
      assert.notEqual(await store.find(row.id), undefined);
      const old = new Date(now - 2 * DAY);
      for (const name of await readdir(join(folder, 'kept'))) await utimes(join(folder, 'kept', name), old, old);
      now += DAY + 1;
      await artifacts.sweep();
      assert.equal(await store.find(row.id), undefined);
      assert.deepEqual(await readdir(join(folder, 'kept')), []);
    });
  });
}
