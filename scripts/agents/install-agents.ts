import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packagesOf } from '../../src/bridge/agents/agent-packages.ts';
import { type AgentPackage, agentFolder, agentPackages } from './agent-packages.ts';

/** Installs what is missing; returns one line for each agent that cannot be had on this machine. */
export async function installAgents(root: string, say: (line: string) => void): Promise<readonly string[]> {
  const problems: string[] = [];
  for (const agent of agentPackages) {
    const folder = agentFolder(root, agent);
    const label = `${agent.name}@${agent.version}`;
    if (!existsSync(join(folder, agent.program))) {
      say(`${label}: installing into ${folder}`);
      await installOne(folder, packagesOf(agent));
    }
    const problem = findProblem(folder, agent);
    if (problem === undefined) say(`${label}: ready`);
    else problems.push(`${label}: ${problem}`);
  }
  return problems;
}

function findProblem(folder: string, { platformPackage, program }: AgentPackage): string | undefined {
  if (platformPackage !== undefined && !existsSync(join(folder, 'node_modules', platformPackage))) {
    return `the registry has no ${platformPackage} of this version, so there is no program for this machine`;
  }
  return existsSync(join(folder, program)) ? undefined : `${program} is missing in ${folder}`;
}

/** Without install scripts: nothing of what they do is needed, and nothing else should run here. */
async function installOne(folder: string, packages: readonly string[]): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'package.json'), '{"private":true}\n');
  const args = [
    'install',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--save-exact',
    '--loglevel=error',
    ...packages,
  ];
  const child = spawn('npm', args, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`npm could not install ${packages.join(' ')} (exit code ${code})`);
}
