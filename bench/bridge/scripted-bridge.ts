import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../test/kit/running-program.ts';

/** The agent that is measured against itself, as a program: it does what its prompt says. */
export const SCRIPTED_AGENT = {
  command: process.execPath,
  args: [fileURLToPath(new URL('../../test/kit/scripted-acp-agent.ts', import.meta.url))],
};

export const AGENT_ID = 'scripted';

/** The program as a user starts it, on SQLite, with the scripted agent in its catalog. */
export async function startScriptedBridge(
  scope: Scope,
  environment: Record<string, string> = {},
  dataDirectory?: string,
): Promise<RunningProgram> {
  const folder = await temporaryFolder(scope);
  const config = join(folder, 'trestle.yaml');
  await writeFile(
    config,
    JSON.stringify({
      // What it is measured against runs without one, too.
      bridge: { sandbox: 'off' },
      agents: { catalog: [AGENT_ID], default: AGENT_ID, custom: [{ id: AGENT_ID, ...SCRIPTED_AGENT }] },
    }),
  );
  const program = await startProgram(scope, {
    args: ['bridge', '--config', config, '--log-level', 'error'],
    environment,
    ...(dataDirectory !== undefined && { dataDirectory }),
  });
  // In good order, so that it ends its agents: what was registered last is ended first.
  scope.after(() => program.stop());
  return program;
}
