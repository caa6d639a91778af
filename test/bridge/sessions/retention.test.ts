import assert from 'node:assert/strict';
import { access, mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createScratchSpace, sweepOldRecords } from '../../../src/bridge/sessions/housekeeping.ts';
import type { RetentionStore } from '../../../src/bridge/storage/update-store.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { AppError, type ErrorCode } from '../../../src/platform/errors/app-error.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const SWEEP_PAUSE_MS = 10 * 60_000;
/** What is repeated every ten minutes is repeated all the time. */
const sweeping: Clock = {
  ...systemClock,
  after: (ms, action) => systemClock.after(ms === SWEEP_PAUSE_MS ? 20 : ms, action),
};
const writing: TurnScript = async ({ workingDirectory, report }) => {
  const path = join(workingDirectory, 'file.txt');
  await writeFile(path, 'hello');
  const call = { toolCallId: 't', title: 'edit', status: 'completed', toolKind: 'edit' } as const;
  report({ kind: 'tool_call', ...call, locations: [{ path }] });
  return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
};
const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );
const linkOf = (result: Record<string, unknown> | undefined) => {
  const artifacts = (result?.artifacts ?? []) as { readonly downloadUrl: string }[];
  return artifacts[0]?.downloadUrl ?? '/no-link';
};

test('DB-9: everything that belongs to a session is deleted when it was not used for that long, and nothing before', async (context) => {
  const agent = createScriptedProvider('one', writing);
  const retention = { events: 3000, audit: 0, jobs: 0 };
  const { url, folder, database } = await startBridge(context, { providers: [agent], retention, clock: sweeping });
  const { result } = await call(url, 'session.start', { sessionId: 'left', taskPrompt: 'a' });
  const used = await call(url, 'session.start', { sessionId: 'used', taskPrompt: 'a' });
  const rows = async () =>
    (await database.query.selectFrom('sessions').select('session_id').execute()).map(({ session_id }) => session_id);
  await until('the session that nobody uses to be gone, its row included', async () => {
    const answer = await call(url, 'session.message', { sessionId: 'used', taskPrompt: 'b' });
    assert.equal(answer.result?.status, 'completed', 'a session in use stays');
    return !(await rows()).includes('left');
  });
  assert.deepEqual(agent.closed, ['one-conversation-1']);
  assert.equal(await exists(String(result?.resolvedWorkingDirectory)), false);
  assert.equal(await exists(String(used.result?.resolvedWorkingDirectory)), true);
  assert.equal((await fetch(url + linkOf(result))).status, 404);
  assert.equal((await fetch(url + linkOf(used.result))).status, 200);
  await until('its private folder to be removed', async () => (await readdir(join(folder, 'scratch'))).length === 1);
  const again = await call(url, 'session.start', { sessionId: 'left', taskPrompt: 'c' });
  assert.equal(again.result?.status, 'completed');
});

test('a session that another instance has taken during the sweep is passed over, and any other failure ends the sweep', async () => {
  const names = ['old', 'taken', 'older'];
  const deleted: string[] = [];
  const store: RetentionStore = {
    unusedSessions: async () => names.map((name) => ({ owner: 'main', session_id: name })),
    deleteUpdates: async () => deleted.push('updates'),
    deleteTurns: async () => deleted.push('turns'),
    deleteAuditRecords: async () => deleted.push('audit records'),
  };
  const sweep = (code: ErrorCode) => {
    const expired: string[] = [];
    const expire = async (_owner: string, name: string) => {
      if (name === 'taken') throw new AppError(code);
      expired.push(name);
      return true;
    };
    const { signal } = new AbortController();
    const retention = { events: 1000, audit: 1000 };
    return sweepOldRecords({ store, retention, clock: systemClock, signal, expire }).then(() => expired);
  };
  assert.deepEqual(await sweep('SESSION_BUSY'), ['old', 'older']);
  assert.deepEqual(deleted, ['updates', 'turns', 'audit records']);
  await assert.rejects(sweep('STORAGE_UNAVAILABLE'), { code: 'STORAGE_UNAVAILABLE' });
});

test('DB-16: after session.close the files of a session cannot be downloaded, and are removed', async (context) => {
  const failing: TurnScript = async (turn) => {
    await writing(turn);
    return { kind: 'failed', code: 'AGENT_FAILED', error: 'no', output: '' };
  };
  const providers = [createScriptedProvider('one', writing), createScriptedProvider('two', failing)];
  const { url, folder } = await startBridge(context, { providers });
  const links = [];
  for (const explicitProviderId of ['one', 'two']) {
    const params = { sessionId: explicitProviderId, taskPrompt: 'a', routing: { explicitProviderId } };
    links.push(linkOf((await call(url, 'session.start', params)).result));
  }
  for (const link of links) assert.equal((await fetch(url + link)).status, 200);
  for (const sessionId of ['one', 'two']) await call(url, 'session.close', { sessionId });
  for (const link of links) assert.equal((await fetch(url + link)).status, 404);
  assert.deepEqual(await readdir(join(folder, 'artifacts')), []);
});

test('DB-9: private folders are limited for each owner and in all, and those of no session are removed', async (context) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-scratch-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const shelves = await mkdtemp(join(tmpdir(), 'trestle-shelves-'));
  context.after(() => rm(shelves, { recursive: true, force: true }));
  const owners = new Map([
    ['ses_1', 'hostile'],
    ['ses_2', 'hostile'],
    ['ses_3', 'good'],
  ]);
  const space = createScratchSpace({
    folder,
    shelves,
    maxBytes: 1000,
    maxBytesOfOwner: 800,
    clock: systemClock,
    ownerOf: async (key) => owners.get(key),
  });
  const { signal } = new AbortController();
  await space.sweep(signal);
  space.check('hostile');
  const sizes = { ses_1: 500, ses_2: 350, ses_3: 10, ses_old: 5, 'closed-abc': 5, ses_new: 5 };
  for (const [name, size] of Object.entries(sizes)) {
    await mkdir(join(folder, name, 'deep'), { recursive: true });
    await writeFile(join(folder, name, 'deep', 'f'), Buffer.alloc(size));
  }
  const past = new Date(Date.now() - 2 * 3_600_000);
  for (const name of ['ses_old', 'closed-abc', 'ses_1']) await utimes(join(folder, name), past, past);
  for (const name of ['ses_1', 'ses_old', 'ses_new']) await mkdir(join(shelves, 'one', name), { recursive: true });
  for (const name of ['ses_1', 'ses_old']) await utimes(join(shelves, 'one', name), past, past);
  await space.sweep(signal);
  assert.deepEqual((await readdir(join(shelves, 'one'))).toSorted(), ['ses_1', 'ses_new']);
  assert.deepEqual((await readdir(folder)).toSorted(), ['ses_1', 'ses_2', 'ses_3', 'ses_new']);
  assert.throws(() => space.check('hostile'), { code: 'WORKING_DIRECTORY_REFUSED' });
  space.check('good');
  space.check('somebody new');
  await rm(join(folder, 'ses_2'), { recursive: true });
  await writeFile(join(folder, 'ses_3', 'more'), Buffer.alloc(600));
  await space.sweep(signal);
  assert.throws(() => space.check('good'), { code: 'WORKING_DIRECTORY_REFUSED' }, 'all together are too large');
  space.check('somebody new');
});
