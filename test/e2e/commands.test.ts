import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';

const MAIN = join(import.meta.dirname, '../../src/main.ts');

test('--version prints the version, --help the commands with examples', async () => {
  const version = await runProgram(['--version']);
  assert.equal(version.code, 0);
  assert.match(version.stdout, /^\d+\.\d+\.\d+\n$/);
  const help = await runProgram(['--help']);
  assert.equal(help.code, 0);
  for (const word of ['serve', 'doctor', 'config', 'backup', 'restore', 'copy', 'completion', 'Examples:']) {
    assert.ok(help.stdout.includes(word), word);
  }
  const serve = await runProgram(['serve', '--help']);
  assert.match(serve.stdout, /Examples:/);
});

test('wrong usage ends with 2, says what is wrong and which help to read', async () => {
  for (const [args, help] of [
    [['serv'], 'trestle'],
    [['serve', 'nothing'], 'trestle serve'],
    [['--nope'], 'trestle'],
    [['backup'], 'trestle backup'],
    [['key', 'create'], 'trestle key create'],
  ] as const) {
    const { code, stderr } = await runProgram(args);
    assert.equal(code, 2, args.join(' '));
    assert.match(stderr, /^error: /);
    assert.ok(stderr.endsWith(`(see: ${help} --help)\n`), stderr);
  }
});

test('a wrong subcommand is an unknown command with the nearest name, and not an argument too many', async () => {
  for (const [args, nearest] of [
    [['sessions', 'lst'], 'list'],
    [['schedules', 'ad'], 'add'],
    [['jobs', 'shw', 'x'], 'show'],
    [['agents', 'instal', 'codex'], 'install'],
  ] as const) {
    const { code, stderr } = await runProgram(args);
    assert.equal(code, 2, args.join(' '));
    assert.match(stderr, new RegExp(`^error: unknown command '${args[1]}'\n\\(Did you mean ${nearest}\\?\\)\n`));
  }
});

test('on a narrow terminal no line of the help is wider than it', { skip: !existsSync('/usr/bin/script') }, () => {
  for (const [width, command] of [
    [40, 'run'],
    [40, 'sessions'],
    [60, 'sessions'],
    [60, 'schedules add'],
  ] as const) {
    const shown = `stty cols ${width}; ${process.execPath} ${MAIN} ${command} --help`;
    const env = { PATH: process.env.PATH, HOME: '/', TERM: 'xterm' };
    const text = execFileSync('/usr/bin/script', ['-qec', shown, '/dev/null'], {
      encoding: 'utf8',
      env,
      stdio: 'pipe',
    });
    // Examples are lines to copy, and stay whole.
    const [help = ''] = text.replaceAll('\r', '').split('\nExamples:');
    const wide = help.split('\n').filter((line) => line.length > width && !/^(?:Usage:| {2}\S+(?: \S+)*$)/.test(line));
    assert.deepEqual(wide, [], `${command} at ${width}`);
    assert.match(help, /Options:[\s\S]*\n {2}--help/);
  }
});

test('every exit code is in the help, and wrong values end with 2, from services too', async (t) => {
  const { stdout } = await runProgram(['--help']);
  const [, list = ''] = /\nExit codes:\n((?: {2}\d.*\n)+)$/.exec(stdout) ?? [];
  const codes = list.split('\n').flatMap((line) => (line === '' ? [] : Number.parseInt(line, 10)));
  assert.deepEqual(codes, [0, 1, 2, 78, 130, 141]);
  const place = ['--data-dir', await temporaryFolder(t)];
  for (const [exit, said, ...command] of [
    [78, /^trestle: There is no Trestle data/, 'sessions', 'show', 'x'],
    [2, /^trestle: --expires is not a time such as/, 'key', 'create', 'x', '--expires', 'never'],
    [0, /^$/, 'key', 'create', 'x', '--expires', '30d'],
    [1, /^trestle: There is no open session "x"/, 'sessions', 'show', 'x'],
    [2, /^trestle: --from is not a day/, 'usage', '--from', 'yesterday'],
    [2, /^trestle: --to takes a URL/, 'copy', '--to', 'nowhere'],
    [2, /^trestle: --cron is not a pattern/, 'schedules', 'add', 'x', '--cron', 'daily'],
  ] as const) {
    const { code, stderr } = await runProgram([...command, ...place]);
    assert.match(stderr, said, command.join(' '));
    assert.equal(code, exit, command.join(' '));
  }
  const listed = await runProgram(['key', 'list', ...place]);
  assert.match(listed.stdout, /\(expires in 30 d\)\n$/);
});

test('O-07: a wrong configuration ends with 78 and shows all problems with their lines and the nearest names', async (t) => {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, 'listen: nowhere\nbrigde:\n  auth_token: x\njobs:\n  max_runing: 4\n', { mode: 0o600 });
  for (const args of [['serve'], ['config', 'check'], ['doctor']]) {
    const { code, stderr } = await runProgram([...args, '--config', config, '--data-dir', folder]);
    assert.equal(code, 78, args.join(' '));
    assert.match(stderr, /trestle\.yaml:1:\d+/);
    assert.match(stderr, /trestle\.yaml:2:\d+.*bridge/s);
    assert.match(stderr, /trestle\.yaml:5:\d+.*max_running/s);
  }
});

test('doctor says what is there, in words and as JSON, and ends with 0 when nothing is broken', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const args = ['doctor', '--data-dir', dataDirectory, '--listen', '127.0.0.1:0'];
  const words = await runProgram(args);
  assert.equal(words.code, 0, words.stdout + words.stderr);
  for (const name of ['node', 'data directory', 'database bridge', 'port', 'disk', 'clock', 'agent codex']) {
    assert.match(words.stdout, new RegExp(`(ok|note) +${name} `), name);
  }
  const json = JSON.parse((await runProgram([...args, '--json'])).stdout);
  assert.equal(json.ok, true);
  assert.equal(json.findings[0].name, 'node');
});

test('doctor finds agents on the path, asks them for their version, and says what to do about the others', async (t) => {
  const folder = await temporaryFolder(t);
  const agent = join(import.meta.dirname, '..', 'kit', 'scripted-codex-agent.ts');
  const script = `#!/bin/sh\nif [ -n "$BRIDGE_AUTH_TOKEN" ]; then exit 9; fi\nexec ${process.execPath} ${agent}\n`;
  await writeFile(join(folder, 'codex'), script, { mode: 0o755 });
  await writeFile(join(folder, 'gemini'), '#!/bin/sh\nexit 3\n', { mode: 0o755 });
  const environment = { PATH: `${folder}:/usr/bin:/bin`, BRIDGE_AUTH_TOKEN: 'a-rather-good-token-71' };
  const args = ['doctor', '--json', '--data-dir', join(folder, 'data'), '--listen', '127.0.0.1:0'];
  const { stdout } = await runProgram(args, { environment });
  const findings = new Map(
    JSON.parse(stdout).findings.map(({ name, ...rest }: { name: string }) => [name, rest] as const),
  );
  assert.deepEqual(findings.get('agent codex'), { state: 'ok', text: '0.166.0' });
  assert.deepEqual(findings.get('agent gemini'), { state: 'note', text: 'failed: "gemini" ended with exit code 3' });
  const install = 'not installed: trestle agents install opencode';
  assert.deepEqual(findings.get('agent opencode'), { state: 'note', text: install });
  assert.match(String((findings.get('agent builtin') as { text: string }).text), /, model demo\/echo$/);
});

test('doctor ends with 1 when the port is taken or an open address lacks a token', async (t) => {
  const other = await startProgram(t);
  const folder = await temporaryFolder(t);
  const taken = await runProgram(['doctor', '--data-dir', folder, '--listen', `127.0.0.1:${other.port}`]);
  assert.equal(taken.code, 1);
  assert.match(taken.stdout, /broken +port .*in use/);
  const exposed = await runProgram(['doctor', '--data-dir', folder, '--listen', '0.0.0.0:0']);
  assert.equal(exposed.code, 1);
  assert.match(exposed.stdout, /broken +BRIDGE_AUTH_TOKEN/);
  const environment = { BRIDGE_AUTH_TOKEN: 'changeme', COMPLETIONS_MASTER_KEY: 'k7PqXw2vBn5RtY8mZs3d' };
  const weak = await runProgram(['doctor', '--data-dir', folder, '--listen', '0.0.0.0:0'], { environment });
  assert.equal(weak.code, 0, weak.stdout);
  assert.match(weak.stdout, /note +BRIDGE_AUTH_TOKEN +weak/);
  assert.equal(weak.stdout.includes('changeme'), false);
});

test('doctor recognises the running server, also as the owner of the port', async (t) => {
  const program = await startProgram(t);
  const args = ['doctor', '--data-dir', program.dataDirectory, '--listen', `127.0.0.1:${program.port}`];
  const { code, stdout } = await runProgram(args);
  assert.equal(code, 0, stdout);
  assert.match(stdout, new RegExp(`ok +server +runs \\(pid ${program.pid}\\)`));
  assert.match(stdout, new RegExp(`port .*pid ${program.pid}`));
});

test('doctor leaves a fresh data directory without databases, and names one of a newer version as broken', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const args = ['doctor', '--data-dir', dataDirectory, '--listen', '127.0.0.1:0'];
  assert.match((await runProgram(args)).stdout, /ok +database bridge .*will be created/);
  assert.deepEqual(await readdir(dataDirectory), []);
  await (await startProgram(t, { dataDirectory })).stop();
  const database = new DatabaseSync(join(dataDirectory, 'bridge.db'));
  database.exec("insert into schema_migrations values ('9999-from-the-future', 0, 'x', null)");
  database.close();
  const { code, stdout } = await runProgram(args);
  assert.equal(code, 1);
  assert.match(stdout, /broken +database bridge .*9999-from-the-future/);
  const serve = await runProgram(['serve', '--data-dir', dataDirectory, '--listen', '127.0.0.1:0']);
  assert.equal(serve.code, 1);
  assert.match(serve.stderr, /9999-from-the-future/);
});

test('the completion script of bash completes commands, services and options', async (t) => {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'bin'));
  await writeFile(join(folder, 'bin/trestle'), `#!/bin/sh\nexec ${process.execPath} ${MAIN} "$@"\n`, { mode: 0o755 });
  const complete = (...words: string[]): string => {
    const script = `source <(trestle completion bash); COMP_WORDS=(trestle ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}; _trestle; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const env = { PATH: `${folder}/bin:${process.env.PATH}`, HOME: folder };
    return execFileSync('bash', ['-c', script], { encoding: 'utf8', env });
  };
  assert.equal(complete('ser'), 'serve\n');
  assert.equal(complete('serve', 'b'), 'bridge\n');
  assert.equal(complete('config', 'sch'), 'schema\n');
  assert.equal(complete('serve', '--data-'), '--data-dir\n');
});

test('a terminal gets colours, but not with NO_COLOR', { skip: !existsSync('/usr/bin/script') }, async (t) => {
  const folder = await temporaryFolder(t);
  const onTerminal = (environment: Record<string, string>): string => {
    const command = `${process.execPath} ${MAIN} doctor --data-dir ${folder} --listen 127.0.0.1:0`;
    const env = { PATH: process.env.PATH, HOME: folder, TERM: 'xterm', ...environment };
    return execFileSync('/usr/bin/script', ['-qec', command, '/dev/null'], { encoding: 'utf8', env, stdio: 'pipe' });
  };
  assert.ok(onTerminal({}).includes('\u001b[32mok'));
  assert.equal(onTerminal({ NO_COLOR: '1' }).includes('\u001b'), false);
  assert.equal(onTerminal({ TERM: 'dumb' }).includes('\u001b'), false);
});

test('DB-1: doctor warns of a workspace root that contains the data directory', async (t) => {
  const folder = await temporaryFolder(t);
  const args = ['doctor', '--data-dir', join(folder, 'a', 'data'), '--listen', '127.0.0.1:0'];
  const environment = (root: string) => ({ environment: { TRESTLE_BRIDGE_WORKSPACE_ROOTS: root } });
  const warned = await runProgram(args, environment(folder));
  assert.match(warned.stdout, /bridge\.workspace_roots .* contains the data directory/);
  const fine = await runProgram(args, environment(join(folder, 'b')));
  assert.doesNotMatch(fine.stdout, /contains the data directory/);
});

test('commands that need data refuse a folder without any, and create nothing there', async (t) => {
  const folder = join(await temporaryFolder(t), 'mistyped');
  const target = join(await temporaryFolder(t), 'copy');
  for (const command of [
    ['key', 'list'],
    ['user', 'list'],
    ['key', 'revoke', 'x'],
    ['backup', target],
    ['secret-key', 'adopt'],
    ['sessions', 'list'],
    ['sessions', 'close', 'x'],
    ['jobs', 'show', 'x'],
    ['schedules'],
    ['usage'],
  ]) {
    const { code, stdout, stderr } = await runProgram([...command, '--data-dir', folder]);
    assert.deepEqual([code, stdout], [78, ''], command.join(' '));
    assert.match(stderr, new RegExp(`There is no Trestle data in ${folder}; check --data-dir`), command.join(' '));
  }
  assert.deepEqual([existsSync(folder), existsSync(target)], [false, false]);
});

test('a data directory that is a file is named as such', async (t) => {
  const file = join(await temporaryFolder(t), 'notes.txt');
  await writeFile(file, '');
  for (const command of [['sessions'], ['run', 'x'], ['key', 'list'], ['key', 'create', 'x'], ['models'], ['agents']]) {
    const { code, stderr } = await runProgram([...command, '--data-dir', file]);
    const said =
      command[0] === 'agents' || command[0] === 'models'
        ? ''
        : `trestle: The data directory ${file} cannot be used (it is a file, or below one); choose another with --data-dir.\n`;
    assert.deepEqual([code, stderr], [said === '' ? 0 : 78, said], command.join(' '));
  }
});

test('commands that only look leave nothing behind where there is no data', async (t) => {
  const parent = await temporaryFolder(t);
  const environment = { TMPDIR: await temporaryFolder(t) };
  const folder = join(parent, 'not', 'there');
  for (const [exit, ...command] of [
    [0, 'agents'],
    [0, 'agents', 'remove', 'codex'],
    [0, 'models'],
    [0, 'models', 'test', 'demo/echo'],
    [0, 'nodes'],
    [0, 'doctor'],
    [0, 'secret-key', 'show'],
    [1, 'restore', join(parent, 'no-backup')],
  ] as const) {
    const { code, stderr } = await runProgram([...command, '--data-dir', folder, '--listen', '127.0.0.1:0'], {
      environment,
    });
    assert.equal(code, exit, `${command.join(' ')}: ${stderr}`);
    assert.deepEqual([await readdir(parent), await readdir(environment.TMPDIR)], [[], []], command.join(' '));
  }
});
