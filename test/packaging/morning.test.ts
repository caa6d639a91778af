import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { freePort } from '../kit/free-port.ts';
import { cleanEnvironment, installPackage, runCommand } from './run-command.ts';

/** A newcomer's machine: an empty home, an empty folder to work in, and Node 24 as the only program that was installed. */
const machine = mkdtempSync(join(tmpdir(), 'trestle-morning-'));
const [programs, home, work] = ['bin', 'home', 'work'].map((name) => join(machine, name)) as [string, string, string];
const packaged = join(machine, 'package');
const command = join(packaged, 'node_modules/.bin/trestle');
let listen = '';

/** Commands that run next to each other: more would only wait for the processor. */
const SIDE_BY_SIDE = 3;

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What is typed, the exit code, and what is seen: on standard output where it succeeds, else on standard error. */
type Step = readonly [args: readonly string[], code: number, shown: RegExp];

before(async () => {
  for (const folder of [programs, home, work, packaged]) mkdirSync(folder);
  symlinkSync(process.execPath, join(programs, 'node'));
  listen = `127.0.0.1:${await freePort()}`;
  await installPackage(packaged);
});

after(() => rmSync(machine, { recursive: true, force: true, maxRetries: 5 }));

/** Nobody is shown a stack, or an error that nobody has thought of. */
async function trestle(args: readonly string[]): Promise<Outcome> {
  const outcome = await runCommand([command, ...args], work, [programs], { HOME: home });
  const shown = `trestle ${args.join(' ')}\n${outcome.stdout}${outcome.stderr}`;
  assert.doesNotMatch(shown, /unexpected error, please report it|^\s+at .+:\d+:\d+\)?$/m, shown);
  return outcome;
}

async function take([args, code, shown]: Step): Promise<void> {
  const outcome = await trestle(args);
  const all = `trestle ${args.join(' ')}\n${outcome.stdout}\n${outcome.stderr}`;
  assert.equal(outcome.code, code, all);
  assert.match(code === 0 ? outcome.stdout : outcome.stderr, shown, all);
}

async function takeAll(steps: readonly Step[]): Promise<void> {
  const waiting = steps.values();
  const hands = Array.from({ length: SIDE_BY_SIDE }, async () => {
    for (const step of waiting) await take(step);
  });
  await Promise.all(hands);
}

test('every command has its help', async () => {
  const { code, stdout, stderr } = await trestle(['--help']);
  assert.deepEqual([code, stderr], [0, '']);
  const listed = stdout.slice(stdout.indexOf('\nCommands:'), stdout.indexOf('\nExamples:'));
  const names = [...listed.matchAll(/^ {2}([a-z][a-z-]*)/gm)].flatMap(([, name]) => name ?? []);
  assert.ok(names.length > 25, names.join(' '));
  const shown = (name: string) => (name === 'help' ? /^Usage: trestle / : new RegExp(`^Usage: trestle ${name}\\b`));
  await takeAll(names.map((name): Step => [[name, '--help'], 0, shown(name)]));
  assert.deepEqual(readdirSync(work), [], 'help leaves nothing behind');
  assert.deepEqual(readdirSync(home), ['.cache'], 'compiled code is all that it keeps');
});

test('what is typed wrongly is named, with what to type instead', async () => {
  writeFileSync(join(machine, 'wrong.yaml'), 'listne: 127.0.0.1:9000\n');
  const nowhere = join(machine, 'wrong.yaml', 'folder');
  await takeAll([
    [['serv'], 2, /Did you mean serve\?/],
    [['help', 'serv'], 2, /unknown command 'serv'\n\(Did you mean serve\?\)/],
    [['run'], 2, /the task is missing: trestle run "what to do"/],
    [['chat'], 2, /use trestle run/],
    [['login'], 2, /name the server: trestle login https:/],
    [['whoami'], 1, /log in with: trestle login/],
    [['runner'], 2, /^trestle: the address of the server is missing: --url/],
    [['cluster'], 78, /needs PostgreSQL: set database\.url/],
    [['schedules', 'add', 'x', '--every', '6x'], 2, /--every takes a number with m, h or d/],
    [['serve', '--listen', '8787'], 78, /say 127\.0\.0\.1:8787/],
    [['serve', '--data-dir', nowhere], 78, /cannot be used \([^)]+\); choose another with --data-dir/],
    [['config', 'check', '--config', join(machine, 'wrong.yaml')], 78, /wrong\.yaml:1:1: listne: .* "listen"/],
    [
      ['restore', join(machine, 'bin')],
      1,
      /holds no readable manifest\.json; name a folder that "trestle backup" wrote/,
    ],
  ]);
  assert.deepEqual(readdirSync(work), []);
});

test('a morning with a server', { timeout: 480_000 }, async () => {
  await take([['init', '--yes'], 0, /Start the server with: trestle serve/]);
  await take([['config', 'check'], 0, /^ok /]);
  const server = spawn(command, ['serve', '--listen', listen], {
    cwd: work,
    env: { ...cleanEnvironment([programs]), HOME: home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [banner, log] = ['', ''];
  server.stderr.on('data', (part: Buffer) => {
    log += part;
  });
  const exited = once(server, 'exit');
  try {
    for await (const part of server.stdout) {
      banner += part;
      if (banner.includes('Try ')) break;
    }
    assert.match(banner, /^ {2}Try {11}trestle run "Hello"$/m, log);
    assert.match(banner, /^ {2}First admin {3}http:\/\/\S+\/setup#\S+ {2}\(once, 15 min\)$/m);
    await use();
    assert.equal(server.exitCode, null, log);
  } finally {
    server.kill('SIGINT');
  }
  assert.deepEqual(await exited, [0, null], log);
  const faults = log.split('\n').filter((line) => line !== '' && !/^\{"level":"(?:info|warn)",/.test(line));
  assert.deepEqual(faults, [], 'nothing of this is a fault of the server, and every line is JSON');
  assert.deepEqual(readdirSync(work).sort(), ['backup', 'trestle.yaml']);
  assert.deepEqual(readdirSync(home).sort(), ['.cache', '.local', 'project']);
  const left = readdirSync(join(home, '.local/share/trestle')).filter((name) => !/\.db(?:\.lock)?$/.test(name));
  const known = ['artifacts', 'checkpoints', 'outbox', 'processes', 'secret.key'];
  assert.deepEqual(
    left.filter((name) => !known.includes(name)),
    [],
    'no socket, log or half file is left',
  );
});

/** What a newcomer does next to the server, in the order in which one thing needs the other. */
async function use(): Promise<void> {
  const project = join(home, 'project');
  mkdirSync(project);
  const agent = ['--allow', '--model', 'demo/agent', '--folder', project, '--session', 'notes'];
  await take([['run', ...agent, 'Write notes.txt about bridges'], 0, /Made the file/]);
  await take([['run', '--background', '--folder', project, 'Hello'], 0, /^job-/]);
  await takeAll([
    [['serve', '--listen', listen], 1, /already running on the data directory .*: http:\S+ \(pid \d+\)/],
    [['serve', '--listen', listen, '--data-dir', join(machine, 'other')], 1, /is in use by node trestle \(pid \d+\)/],
    [['doctor', '--listen', listen], 0, /ok {6}server {18}runs \(pid \d+\)/],
    [['run', '--agent', 'nobody', 'Hello'], 1, /There is no agent "nobody" here\. Known agents: builtin/],
    [['run', '--folder', '/etc', 'Hello'], 1, /the folder \(--folder\) cannot be used: .*workspace_roots/],
    [['sessions'], 0, / notes +builtin /],
    [['sessions', 'changes', 'notes', '--diff'], 0, /\+About bridges\./],
    [['sessions', 'show', 'nothing'], 1, /no open session "nothing" .*; trestle sessions lists them/],
    [['jobs', 'again', 'nothing'], 1, /there is no job "nothing"; trestle jobs lists them/],
    [['schedules', 'add', 'Hello', '--cron', '0 8 * * *', '--folder', project], 0, /^Added\.\n/],
    [
      ['schedules', 'add', 'Hello', '--cron', '0 8 * *'],
      2,
      /--cron is not a pattern of five fields such as "0 8 \* \* 1-5"/,
    ],
    [['models', 'test', 'demo/echo'], 0, /^ok {2}demo\/echo/],
    [['usage'], 0, /demo\/agent/],
    [['key', 'create', 'laptop'], 0, /^tsk_/],
    [['user', 'list'], 0, /^No users\. Create the first with: trestle user create/],
  ]);
  await take([['sessions', 'undo', 'notes'], 0, /notes\.txt/]);
  const person = ['user', 'create', '--email', 'ann@example.org', '--name', 'Ann', '--role', 'admin'];
  await take([person, 0, new RegExp(`http://${listen}/set-password#token=[\\w-]{43}\\n`)]);
  await takeAll([
    [person, 1, /taken|registered|exists/],
    [['user', 'role', 'ann@example.org', 'king'], 2, /There is no such role; use one of root, admin/],
    [['backup', './backup'], 0, /accounts\.users/],
  ]);
  await take([['restore', './backup'], 1, /is in use by process \d+; stop it first/]);
}
