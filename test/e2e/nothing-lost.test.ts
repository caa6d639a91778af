import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { findAgent } from '../../examples/whole-story/story-agents.ts';
import { agentFolder, agentPackages } from '../../scripts/agents/agent-packages.ts';
import { NOTHING_LOST, runExample } from '../kit/example-run.ts';
import { temporaryFolder } from '../kit/running-program.ts';

const LIMIT_MS = 110_000;

test('nothing is lost on a machine without agents and keys, and leaves nothing behind', async (t) => {
  const folder = await temporaryFolder(t);
  const args = ['--agent', 'builtin'];
  const { code, output } = await runExample({
    example: 'nothing-lost',
    args,
    limitMs: LIMIT_MS,
    temporaryFolder: folder,
  });
  assert.equal(code, 0, output);
  for (const line of NOTHING_LOST) assert.match(output, line);
  assert.match(output, /\nNothing was lost: 5 steps with builtin, \d+\.\d s\n$/);
  assert.doesNotMatch(output, /tsk_\w{8}/, 'the key is not printed');
  assert.deepEqual(readdirSync(folder), []);
});

test('a step that does not hold ends the story with one line that says which, and leaves nothing behind', async (t) => {
  const folder = await temporaryFolder(t);
  const programs = await temporaryFolder(t);
  writeFileSync(join(programs, 'codex'), '#!/bin/sh\nexit 3\n', { mode: 0o755 });
  const environment = { PATH: `${programs}:${process.env.PATH}` };
  const args = ['--agent', 'codex'];
  const { code, output } = await runExample({
    example: 'nothing-lost',
    args,
    limitMs: LIMIT_MS,
    temporaryFolder: folder,
    environment,
  });
  assert.equal(code, 1, output);
  assert.match(output, /\nIt does not hold: in step 2 it does not hold that the turn is completed by codex: .+\n$/);
  assert.deepEqual(readdirSync(folder), []);
});

test('an agent that is asked for and not installed is named, and nothing is started', async (t) => {
  const folder = await temporaryFolder(t);
  const environment = { PATH: folder, TRESTLE_AGENTS_FOLDER: folder };
  const args = ['--agent', 'opencode'];
  const { code, output } = await runExample({
    example: 'nothing-lost',
    args,
    limitMs: LIMIT_MS,
    temporaryFolder: folder,
    environment,
  });
  assert.equal(code, 1, output);
  assert.match(output, /^\nIt does not hold: there is no "opencode" here; .+\n$/);
});

test('unless one is asked for, the agent is OpenCode, else Codex, else the built-in one', async (t) => {
  const folder = await temporaryFolder(t);
  const environment = { PATH: join(folder, 'bin'), TRESTLE_AGENTS_FOLDER: folder };
  assert.deepEqual(findAgent(undefined, environment), { id: 'builtin', command: '' });
  const codex = agentPackages.find(({ id }) => id === 'codex');
  assert.ok(codex);
  const installed = join(agentFolder(folder, codex), codex.program);
  const onPath = join(folder, 'bin', 'opencode');
  for (const [id, command] of Object.entries({ codex: installed, opencode: onPath })) {
    mkdirSync(dirname(command), { recursive: true });
    writeFileSync(command, '');
    assert.deepEqual(findAgent(undefined, environment), { id, command });
  }
  assert.deepEqual(findAgent('codex', environment), { id: 'codex', command: installed });
  assert.equal(findAgent('gemini', environment), undefined);
});
