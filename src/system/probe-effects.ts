import { join } from 'node:path';
import { createAgentLauncher } from '../bridge/agents/agent-launcher.ts';
import type { ProbeEffects } from '../bridge/agents/agent-probe.ts';
import { resolveApis } from '../completions/apis/resolve-apis.ts';
import { DEMO_API } from '../completions/pipeline/model-plan.ts';
import { findExecutable } from '../platform/child-process/child-environment.ts';
import type { Settings } from './settings.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Looks for agents on this machine: in the folders of PATH, with the few variables that children get. */
export function createProbeEffects(environment: Environment, dataFolder: string, journalFolder: string): ProbeEffects {
  const folder = join(dataFolder, 'agents');
  return {
    findProgram: (command) => findExecutable(command, environment.PATH ?? ''),
    launch: createAgentLauncher({ environment, folder, journalFolder }),
    folder,
  };
}

/** Why the built-in agent cannot use its model, and what to do; undefined when it can, or another API decides. */
export function builtinModelProblem(
  { agents, completions }: Pick<Settings, 'agents' | 'completions'>,
  environment: Environment,
): string | undefined {
  const { model, base_url: baseUrl } = agents.builtin;
  if (baseUrl !== '' || completions.models.some(({ name }) => name === model)) return undefined;
  const [apiId = ''] = model.split('/', 1);
  if (!model.includes('/')) return `"${model}" is not an alias of completions.models, and not a model as <api>/<model>`;
  if (apiId === DEMO_API) return undefined;
  const api = resolveApis({ settings: completions, environment }).get(apiId);
  if (api === undefined) return `there is no model API "${apiId}"; trestle models lists them`;
  return api.usable ? undefined : `set ${api.missing.join(' and ')} to use "${model}"`;
}
