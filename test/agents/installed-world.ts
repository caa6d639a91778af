import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { agentFolder, agentPackages } from '../../scripts/agents/agent-packages.ts';
import { agentsRoot } from '../../scripts/agents/agents-root.ts';
import { installedPrograms } from '../../src/bridge/agents/agent-packages.ts';
import { type RunningProgram, type Scope, startProgram } from '../kit/running-program.ts';
import type { ScriptedModel } from '../kit/scripted-model.ts';
import { startObedientModel } from './obedient-model.ts';
import { realFolder } from './real-agent.ts';

export const TOKEN = 'main-token-0123456789abcdef';

/** The program with installed agents that nobody has configured or logged in to, and one model. */
export interface InstalledWorld {
  /** The program that runs now. */
  program(): RunningProgram;
  restart(): Promise<void>;
  readonly model: ScriptedModel;
  readonly home: string;
}

export async function startInstalledWorld(scope: Scope, bridge: object): Promise<InstalledWorld> {
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
    agents: {
      catalog: ['builtin', ...agentPackages.map(({ id }) => id)],
      model: 'gpt-5-fast',
      builtin: { model: 'gpt-5-fast' },
    },
    completions: {
      apis: { lab: { dialect: 'openai', base_url: `${model.url}/v1`, api_key: 'lab-key-77aa' } },
      models: [{ name: 'gpt-5-fast', targets: [{ model: 'lab/upstream-model' }] }],
    },
  };
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify(settings));
  const environment = { BRIDGE_AUTH_TOKEN: TOKEN, HOME: home };
  const start = () => startProgram(scope, { args: ['--config', config], environment, dataDirectory });
  let program = await start();
  return {
    program: () => program,
    async restart() {
      await program.stop();
      program = await start();
    },
    model,
    home,
  };
}
