import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../e2e/running-program.ts';

export interface ProgramBeforeModel {
  readonly program: RunningProgram;
  /** Of the model API itself, without a path. */
  readonly upstream: string;
}

/** Completions in front of a model API that runs in a process of its own; its models are `fake/...`. */
export async function startBeforeModel(scope: Scope, modelApi: URL): Promise<ProgramBeforeModel> {
  const model = fork(modelApi);
  scope.after(() => model.kill());
  const [upstream] = (await once(model, 'message')) as [string];
  const folder = await temporaryFolder(scope);
  const config = join(folder, 'trestle.yaml');
  const apis = { fake: { dialect: 'openai', base_url: `${upstream}/v1`, api_key: 'none' } };
  await writeFile(config, JSON.stringify({ completions: { apis } }), { mode: 0o600 });
  const args = ['completions', '--config', config, '--log-level', 'silent'];
  return { program: await startProgram(scope, { args, dataDirectory: folder }), upstream };
}
