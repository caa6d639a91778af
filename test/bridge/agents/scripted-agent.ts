import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type AgentUnderTest, startAgent, type UnderTestOptions } from '../../kit/bridge/agent-under-test.ts';
import type { Scope } from '../../kit/running-program.ts';

const PROGRAMS = {
  acp: fileURLToPath(new URL('../../kit/scripted-acp-agent.ts', import.meta.url)),
  codex: fileURLToPath(new URL('../../kit/scripted-codex-agent.ts', import.meta.url)),
};

export interface ScriptedOptions extends Partial<Omit<UnderTestOptions, 'folder'>> {
  readonly flags?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** Another agent's folder, to be a later process beside the same state. */
  readonly folder?: string;
}

export interface ScriptedAgent extends AgentUnderTest {
  /** Where conversations may work. */
  readonly work: string;
  /** Where the agent keeps its state, and we the journal. */
  readonly folder: string;
}

/** The scripted agent as a real child process, behind the provider that the bridge would make for it. */
export async function startScripted(scope: Scope, options: ScriptedOptions = {}): Promise<ScriptedAgent> {
  const { protocol = 'acp', flags = [], environment = {} } = options;
  const folder = options.folder ?? (await realpath(await mkdtemp(join(tmpdir(), 'trestle-agent-'))));
  const work = join(folder, 'work');
  await mkdir(work, { recursive: true });
  const program = {
    id: 'scripted',
    command: process.execPath,
    args: [PROGRAMS[protocol], ...flags.map((flag) => flag.replace('FOLDER', folder))],
    environment,
  };
  const agent = startAgent(scope, program, { protocol, ...options, folder });
  // After the agent was stopped: it writes into the folder until then.
  if (options.folder === undefined) scope.after(() => rm(folder, { recursive: true, force: true }));
  return { ...agent, work, folder };
}
