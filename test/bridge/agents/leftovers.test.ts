import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import {
  type ProcessIdentity,
  readProcessTree,
  sweepLeftovers,
} from '../../../src/platform/child-process/process-table.ts';
import { until } from '../../kit/until.ts';

const OWNER = join(import.meta.dirname, 'agent-owner.ts');

/** Kills the owner of a working agent with SIGKILL; returns the agent's process. */
async function orphanAgent(t: TestContext, flags: readonly string[]) {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-owner-')));
  const owner = spawn(process.execPath, [OWNER, folder, ...flags], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(owner.stdout, 'data')) as [Buffer];
  const agent = JSON.parse(line.toString()) as ProcessIdentity;
  t.after(async () => {
    await sweepLeftovers(join(folder, 'processes'));
    await rm(folder, { recursive: true, force: true });
  });
  owner.kill('SIGKILL');
  await once(owner, 'exit');
  return { agent, journal: join(folder, 'processes') };
}

test('after kill -9 of the bridge, a stubborn agent and its children are swept at the next start', async (t) => {
  const { agent, journal } = await orphanAgent(t, ['--stubborn']);
  assert.equal(readProcessTree(agent).length, 2);
  assert.equal(await sweepLeftovers(journal), 1);
  assert.deepEqual(readProcessTree(agent), []);
});

test('after kill -9 of the bridge, an ordinary agent notices by itself, and its children are swept', async (t) => {
  const { agent, journal } = await orphanAgent(t, []);
  await until('the agent to notice', () => readProcessTree(agent).every(({ pid }) => pid !== agent.pid));
  await sweepLeftovers(journal);
  assert.deepEqual(readProcessTree(agent), []);
});
