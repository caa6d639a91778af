import assert from 'node:assert/strict';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { agentFolder, agentPackages } from '../../scripts/agents/agent-packages.ts';
import { agentsRoot } from '../../scripts/agents/agents-root.ts';
import { installedPrograms } from '../../src/bridge/agents/agent-packages.ts';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { type RunningProgram, type Scope, startProgram } from '../kit/running-program.ts';
import type { ScriptedModel } from '../kit/scripted-model.ts';
import { until } from '../kit/until.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, realFolder } from './real-agent.ts';

const TOKEN = 'main-token-0123456789abcdef';
const { program: BUBBLEWRAP, missing } = await findBubblewrap();

/** The program with installed agents that nobody has configured or logged in to, and one model. */
interface World {
  readonly program: RunningProgram;
  readonly model: ScriptedModel;
  readonly home: string;
}

async function startWorld(scope: Scope, bridge: object): Promise<World> {
  const model = await startObedientModel();
  scope.after(() => model.stop());
  const folder = await realFolder(scope, 'trestle-our-models-');
  const [home, dataDirectory] = [join(folder, 'home'), join(folder, 'data')];
  const bin = installedPrograms(dataDirectory);
  for (const one of [home, bin]) await mkdir(one, { recursive: true });
  for (const agent of agentPackages) {
    await symlink(join(agentFolder(agentsRoot(process.env), agent), agent.program), join(bin, agent.command));
  }
  const settings = {
    bridge: { workspace_roots: [home], ...bridge },
    agents: { catalog: ['builtin', ...agentPackages.map(({ id }) => id)], model: 'fast' },
    completions: {
      apis: { lab: { dialect: 'openai', base_url: `${model.url}/v1`, api_key: 'lab-key-77aa' } },
      models: [{ name: 'fast', targets: [{ model: 'lab/upstream-model' }] }],
    },
  };
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify(settings));
  const environment = { BRIDGE_AUTH_TOKEN: TOKEN, HOME: home };
  return {
    program: await startProgram(scope, { args: ['--config', config], environment, dataDirectory }),
    model,
    home,
  };
}

const EVERY = agentPackages.map(({ id }) => id);

for (const [where, bridge, skip, agents] of [
  ['in the sandbox', { sandbox: 'require', sandbox_program: BUBBLEWRAP }, missing, EVERY],
  // A key of its own for each process, or none at all: what differs is the same for all agents.
  ['without a sandbox', { sandbox: 'off' }, false, ['opencode', 'kimi']],
] as const) {
  const scope = newestFirst({ after });
  let world: World | undefined;
  if (skip === false) {
    before(async () => {
      world = await startWorld(scope, bridge);
    });
  }

  for (const id of agents) {
    test(`${id} works ${where} with our model, and nobody has logged in`, { skip }, async () => {
      assert.ok(world !== undefined);
      const { program, model, home } = world;
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
    const { url } = world.program;
    await until('the calls to be charged', async () =>
      (await (await fetch(`${url}/usage?group_by=owner`)).text()).includes('"main"'),
    );
  });
}
