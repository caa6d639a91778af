import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';

export interface ProgramBeforeModel {
  readonly program: RunningProgram;
  /** Of the model API itself, without a path. */
  readonly upstream: string;
}

/** A model API in a process of its own, and the settings of completions that stand in front of it. */
export async function startModel(scope: Scope, modelApi: URL) {
  const model = fork(modelApi);
  scope.after(() => model.kill());
  const [upstream] = (await once(model, 'message')) as [string];
  const apis = { fake: { dialect: 'openai', base_url: `${upstream}/v1`, api_key: 'none' } };
  return { upstream, completions: { apis } };
}

interface ProgramStart {
  /** Which services; none for all. */
  readonly services?: readonly string[];
  readonly settings?: object;
}

/** The program, completions alone unless told otherwise, in front of a model API that runs in a process of its own; its models are `fake/...`. */
export async function startBeforeModel(
  scope: Scope,
  modelApi: URL,
  { services = ['completions'], settings = {} }: ProgramStart = {},
): Promise<ProgramBeforeModel> {
  const { upstream, completions } = await startModel(scope, modelApi);
  const folder = await temporaryFolder(scope);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ ...settings, completions }), { mode: 0o600 });
  const args = [...services, '--config', config, '--log-level', 'silent'];
  return { program: await startProgram(scope, { args, dataDirectory: folder }), upstream };
}
