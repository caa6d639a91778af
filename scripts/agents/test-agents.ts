import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { agentsRoot } from './agents-root.ts';
import { installAgents } from './install-agents.ts';

const PROJECT = join(import.meta.dirname, '..', '..');
const say = (line: string) => process.stdout.write(`${line}\n`);

const problems = await installAgents(agentsRoot(process.env), say);
for (const problem of problems) say(`MISSING  ${problem}`);

const asked = process.argv.slice(2);
const files = globSync('test/agents/*.test.ts', { cwd: PROJECT });
const chosen = asked.length === 0 ? files : files.filter((file) => asked.some((name) => file.includes(name)));
// One file after the other: two agents that start together keep two cores busy for longer than the limits on one turn.
const args = ['--test', '--test-timeout=240000', '--test-concurrency=1', ...chosen];
const child = spawn(process.execPath, args, { cwd: PROJECT, stdio: 'inherit' });
const [code] = (await once(child, 'exit')) as [number | null];
process.exitCode = problems.length > 0 ? 1 : (code ?? 1);
