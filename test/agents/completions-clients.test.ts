import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';
import type { ModelReply, ModelRequest } from '../kit/scripted-model.ts';
import { startScriptedModel } from '../kit/scripted-model.ts';
import { type RealAgent, realFolder, setUpAgent } from './real-agent.ts';

const TURN_LIMIT_MS = 120_000;
const scope = { after };
const PATCH = '*** Begin Patch\n*** Add File: made.txt\n+from a patch\n*** End Patch\n';

/** One call of the tool that the prompt names, then what the tool said. */
function reply({ userTexts, toolResults, toolNames }: ModelRequest): ModelReply {
  const said = userTexts.at(-1) ?? '';
  const command = /RUN ([^\n"]+)/.exec(said)?.[1];
  if (toolResults.length > 0) return { text: ['The tool said: ', toolResults.join(' ')] };
  if (said.includes('PATCH') && toolNames.includes('apply_patch')) {
    return { thinking: 'A patch will do.', toolCall: { name: 'apply_patch', arguments: { input: PATCH } } };
  }
  if (command === undefined || toolNames.length === 0) return { text: ['a title'] };
  return toolNames.includes('exec_command')
    ? { toolCall: { name: 'exec_command', arguments: { cmd: command } } }
    : { toolCall: { name: 'bash', arguments: { command, description: 'as told' } } };
}

const model = await startScriptedModel(reply);
after(() => model.stop());
const program = await startTrestle(model.url);

/** The agents ask for models by these names, which are aliases here. */
async function startTrestle(modelUrl: string): Promise<RunningProgram> {
  const config = join(await realFolder(scope, 'trestle-config-'), 'trestle.yaml');
  const targets = [{ model: 'lab/upstream-model' }];
  const completions = {
    apis: { lab: { dialect: 'openai', base_url: `${modelUrl}/v1`, api_key: 'lab-key-77aa' } },
    models: ['first-model', 'gpt-5.5'].map((name) => ({ name, targets })),
  };
  await writeFile(config, JSON.stringify({ completions }));
  return startProgram(scope, { args: ['completions', '--config', config] });
}

test('P-24: Codex does a whole turn with a tool through /v1/responses', { timeout: TURN_LIMIT_MS }, async () => {
  const { output, work } = await runCodex(['RUN echo from-codex > made.txt && echo it-ran']);
  assert.match(output, /The tool said: .*it-ran/s);
  assert.equal(await readFile(join(work, 'made.txt'), 'utf8'), 'from-codex\n');
  assert.ok(model.requests.every((request) => request.model === 'upstream-model'));
});

test('P-24: Codex applies a patch with its free-text tool', { timeout: TURN_LIMIT_MS }, async () => {
  const { output, work } = await runCodex(['-m', 'gpt-5.5', 'PATCH']);
  assert.match(output, /The tool said: /);
  assert.equal(await readFile(join(work, 'made.txt'), 'utf8'), 'from a patch\n');
});

test('P-24: OpenCode does a whole turn with a tool through /v1/chat/completions', {
  timeout: TURN_LIMIT_MS,
}, async () => {
  const agent = await setUpAgent(scope, 'opencode', program.url);
  const work = await realFolder(scope, 'trestle-opencode-work-');
  await mkdir(join(work, '.git'));
  const environment = { ...agent.environment, OPENCODE_PERMISSION: '{"bash":"allow"}' };
  const before = model.requests.length;
  await runAgent({ ...agent, environment }, ['run', 'RUN echo from-opencode > made.txt && echo it-ran'], work);
  assert.equal(await readFile(join(work, 'made.txt'), 'utf8'), 'from-opencode\n');
  assert.ok(model.requests.slice(before).some(({ toolResults }) => toolResults.join(' ').includes('it-ran')));
});

async function runCodex(args: readonly string[]): Promise<{ output: string; work: string }> {
  const agent = await setUpAgent(scope, 'codex', program.url);
  const work = await realFolder(scope, 'trestle-codex-work-');
  const options = ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '-C', work];
  return { output: await runAgent(agent, [...options, ...args], work), work };
}

/** Runs an agent as a person does, once, and gives what it printed. */
async function runAgent(agent: RealAgent, args: readonly string[], work: string): Promise<string> {
  const { PATH = '', HOME = work } = process.env;
  const child = spawn(agent.command, args, {
    cwd: work,
    env: { PATH, HOME, NO_COLOR: '1', ...agent.environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const output: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => output.push(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => output.push(text));
  const endGroup = () => {
    if (child.pid === undefined) return;
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended, with all that it had started.
    }
  };
  const timer = setTimeout(endGroup, TURN_LIMIT_MS - 10_000);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  endGroup();
  assert.equal(code, 0, output.join(''));
  return output.join('');
}
