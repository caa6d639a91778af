import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { agentPackages } from '../../scripts/agents/agent-packages.ts';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { until } from '../kit/until.ts';
import { type InstalledWorld, startInstalledWorld, TOKEN } from './installed-world.ts';
import { newestFirst } from './real-agent.ts';

const { program: BUBBLEWRAP, missing } = await findBubblewrap();

const EVERY = agentPackages.map(({ id }) => id);

for (const [where, bridge, skip, agents] of [
  ['in the sandbox', { sandbox: 'require', sandbox_program: BUBBLEWRAP }, missing, EVERY],
  // A key of its own for each process, or none at all: what differs is the same for all agents.
  ['without a sandbox', { sandbox: 'off' }, false, ['opencode', 'kimi']],
] as const) {
  const scope = newestFirst({ after });
  let world: InstalledWorld | undefined;
  if (skip === false) {
    before(async () => {
      world = await startInstalledWorld(scope, bridge);
    });
  }

  for (const id of agents) {
    test(`${id} works ${where} with our model, and nobody has logged in`, { skip }, async () => {
      assert.ok(world !== undefined);
      const { model, home } = world;
      const program = world.program();
      const work = join(home, `${id}-work`);
      await mkdir(work);
      const before = model.requests.length;
      const params = {
        sessionId: `${id}-1`,
        taskPrompt: 'RUN echo made-by-agent >made.txt && echo it-is-made',
        workingDirectory: work,
        routing: { explicitProviderId: id },
      };
      const { result, error } = await callBridge(program.url, 'session.start', params, TOKEN).answer;
      assert.match(String(result?.output), /it-is-made/, JSON.stringify([result, error]));
      assert.equal(await readFile(join(work, 'made.txt'), 'utf8'), 'made-by-agent\n');
      const asked = model.requests.slice(before);
      assert.ok(asked.length >= 2 && asked.every((request) => request.model === 'upstream-model'));
      const message = { sessionId: `${id}-1`, taskPrompt: 'SAY beta', routing: { explicitProviderId: id } };
      const next = await callBridge(program.url, 'session.message', message, TOKEN).answer;
      assert.match(String(next.result?.output), /Here is beta from upstream-model/, JSON.stringify(next));
      await callBridge(program.url, 'session.close', { sessionId: `${id}-1` }, TOKEN).answer;
    });
  }

  test(`what agents used ${where} is charged to the owner of their sessions`, { skip }, async () => {
    assert.ok(world !== undefined);
    const { url } = world.program();
    await until('the calls to be charged', async () =>
      (await (await fetch(`${url}/usage?group_by=owner`)).text()).includes('"main"'),
    );
  });
}
