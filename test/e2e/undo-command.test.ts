import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { call } from '../kit/bridge/session-client.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal } from '../kit/terminal.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const folder = await temporaryFolder({ after });
const config = join(await temporaryFolder({ after }), 'trestle.yaml');
const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
const checkpoints = { timeout: '1m' };
const agents = { catalog: ['scripted'], default: 'scripted', custom };
await writeFile(config, JSON.stringify({ agents, bridge: { checkpoints } }));
const server = await startProgram({ after }, { args: ['--config', config] });
const data = ['--data-dir', server.dataDirectory, '--config', config];
const command = (...args: string[]) => runProgram([...args, ...data], { workingDirectory: folder });

test('a person sees what an agent has changed, and takes it back, turn by turn', async (t) => {
  const file = join(folder, 'notes.txt');
  await writeFile(file, 'one\n');
  const ran = await command('run', '--session', 'work', 'edit notes.txt two');
  assert.deepEqual([ran.code, ran.stdout], [0, 'edited\n'], ran.stderr);
  assert.match(ran.stderr, /> Edit notes\.txt\n.*notes\.txt \+1 -1\n/);
  for (const taskPrompt of ['edit notes.txt three', 'edit more.txt new']) {
    await call(server.url, 'session.message', { sessionId: 'work', taskPrompt });
  }
  const piped = await command('sessions', 'changes', 'work', '--diff');
  const diff = '--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-one\n+three\n';
  assert.ok(piped.stdout.startsWith('A  more.txt   +1 -0\nM  notes.txt  +1 -1\n'), piped.stdout);
  assert.ok(piped.stdout.endsWith(diff), piped.stdout);
  const { files, diffs, base } = JSON.parse((await command('sessions', 'changes', 'work', '--diff', '--json')).stdout);
  assert.deepEqual([files.length, diffs[1].unified, base.source], [2, diff, 'checkpoint']);
  const shown = startInTerminal(t, ['sessions', 'changes', 'work', '--diff', ...data], { workingDirectory: folder });
  assert.equal(await shown.ended, 0, shown.screen());
  assert.ok(shown.screen().includes('\u001b[32m+three'), shown.screen());

  assert.equal((await command('sessions', 'undo', 'work')).stdout, 'removed more.txt\n');
  const { turns } = await fetch(`${server.url}/api/bridge/sessions/work/turns`).then(
    (response) => response.json() as Promise<{ turns: { turnId: string }[] }>,
  );
  const [, second = '', first = ''] = turns.map(({ turnId }) => turnId);
  const early = await command('sessions', 'undo', 'work', first);
  assert.equal(early.code, 1);
  assert.match(early.stderr, /^changed since: notes\.txt\ntrestle: Nothing was undone.*\(FILES_CHANGED\)\n$/);
  assert.equal(await readFile(file, 'utf8'), 'three\n');
  const undone = await command('sessions', 'undo', 'work', second, '--json');
  assert.deepEqual(JSON.parse(undone.stdout), {
    turnId: second,
    restored: ['notes.txt'],
    files: [{ path: 'notes.txt', action: 'restored' }],
  });
  assert.equal(await readFile(file, 'utf8'), 'two\n');
  assert.equal((await command('sessions', 'undo', 'work', second)).stdout, 'There was nothing to undo.\n');
  await call(server.url, 'session.message', { sessionId: 'work', taskPrompt: 'say nothing new' });
  const last = await command('sessions', 'undo', 'work');
  assert.match(last.stdout, /^The last turn changed no files.*trestle sessions undo work <turn>\n.*sessions show work/);
  assert.ok((await command('sessions', 'show', 'work')).stdout.includes(`\n${first}\n> edit notes.txt two\n`));
});

test('a person runs a task in a worktree, and merges it', async () => {
  const place = join(folder, 'repository');
  await mkdir(place);
  await writeFile(join(place, 'notes.txt'), 'one\n');
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], { cwd: place }).toString();
  git('init', '-q', '-b', 'main', '.');
  git('add', '-A');
  git('commit', '-qm', 'first');
  const ran = await command('run', '--worktree', '--folder', place, '--session', 'apart', 'edit notes.txt two');
  assert.deepEqual([ran.code, ran.stdout], [0, 'edited\n'], ran.stderr);
  assert.equal(await readFile(join(place, 'notes.txt'), 'utf8'), 'one\n');
  await writeFile(join(place, 'notes.txt'), 'by hand\n');
  const early = await command('sessions', 'merge', 'apart');
  assert.equal(early.code, 1);
  assert.match(early.stderr, /^in the way: notes\.txt\ntrestle: The worktree cannot be merged.*\(MERGE_REFUSED\)\n$/);
  git('checkout', '-q', '--', 'notes.txt');
  assert.equal((await command('sessions', 'merge', 'apart')).stdout, 'merged notes.txt\n');
  assert.deepEqual([await readFile(join(place, 'notes.txt'), 'utf8'), git('status', '--porcelain')], ['two\n', '']);
  assert.equal((await command('sessions', 'merge', 'apart')).stdout, 'There was nothing to merge.\n');
  const unknown = await command('run', '--worktree=missing', '--folder', place, 'edit notes.txt three');
  assert.match(unknown.stderr, /names no branch, tag or commit of it: missing/);
});
