import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { NO_FENCE } from '../../../src/bridge/agents/agent-fence.ts';
import { connectAgent, createAgentLauncher, createFindProgram } from '../../../src/bridge/agents/agent-launcher.ts';
import { createAgentLogin } from '../../../src/bridge/agents/agent-probe.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

const never = new AbortController().signal;
const kit = (name: string) => join(import.meta.dirname, '../../kit', name);

/** The login of an agent as the bridge makes it, with the real launcher and a scripted program. */
async function loginOf(t: TestContext, flags: readonly string[], protocol: 'acp' | 'codex' = 'acp') {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-login-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const { PATH = '', HOME = '' } = process.env;
  const environment = { PATH, HOME };
  const args = [kit(`scripted-${protocol}-agent.ts`), ...flags];
  let changes = 0;
  const logIn = createAgentLogin(
    {
      id: 'scripted',
      place: { kind: 'program', protocol, command: process.execPath, args, environment: {} },
      effects: {
        findProgram: createFindProgram(join(folder, 'programs'), environment),
        launch: createAgentLauncher({
          environment,
          folder,
          journalFolder: join(folder, 'processes'),
          programs: join(folder, 'programs'),
          fence: NO_FENCE,
        }),
        folder,
      },
      connect: (process) =>
        connectAgent(process, {
          protocol,
          permissions: 'allow',
          version: '0',
          clock: systemClock,
          logger: silentLogger,
        }),
      clock: systemClock,
    },
    () => {
      changes += 1;
    },
  );
  return { logIn, changes: () => changes };
}

const METHOD = { id: 'login', name: 'Log in', description: 'run agent login', terminal: false };

test('a login by a method that needs no terminal is done by the agent, and what was known of it is forgotten', async (t) => {
  const { logIn, changes } = await loginOf(t, ['--auth', 'missing']);
  assert.deepEqual(await logIn(undefined, never), {
    loggedIn: true,
    methods: [METHOD],
    command: '',
    text: 'Logged in.',
  });
  assert.equal(changes(), 1);
});

test('a login that the agent refuses reports its reason', async (t) => {
  const { logIn, changes } = await loginOf(t, ['--auth', 'refused']);
  const { loggedIn, text, command } = await logIn(undefined, never);
  assert.deepEqual([loggedIn, command, changes()], [false, '', 0]);
  assert.match(text, /^The agent did not log in: .*no login.*log in with the agent's own command/);
});

test('a login in a terminal gives a command for a shell, and is never sent to the agent', async (t) => {
  const { logIn } = await loginOf(t, ['--auth', 'terminal']);
  const { loggedIn, methods, command, text } = await logIn(undefined, never);
  assert.deepEqual([loggedIn, methods], [false, [{ ...METHOD, terminal: true }]]);
  const program = `${process.execPath} ${kit('scripted-acp-agent.ts')}`;
  assert.equal(command, `MODE='it'\\''s' ${program} --auth terminal 'log in'`);
  assert.equal(text, `Run in a terminal, as the user that runs Trestle: ${command}`);
  assert.equal((await logIn('login', never)).command, command);
});

test('of several methods one has to be chosen, by an id that the agent offers', async (t) => {
  const { logIn } = await loginOf(t, ['--auth', 'several']);
  const undecided = await logIn(undefined, never);
  assert.deepEqual([undecided.loggedIn, undecided.methods.map(({ id }) => id)], [false, ['login', 'key']]);
  assert.match(undecided.text, /^Choose one of the methods by its id\./);
  assert.equal((await logIn('key', never)).loggedIn, true);
  await assert.rejects(
    logIn('other', never),
    (error) =>
      error instanceof AppError &&
      error.code === 'LOGIN_METHOD_UNKNOWN' &&
      JSON.stringify(error.details) === '{"method":"other","offered":"login, key"}',
  );
});

test('where somebody has logged in, nothing is done', async (t) => {
  const { logIn, changes } = await loginOf(t, ['--auth', 'done']);
  const { loggedIn, text } = await logIn(undefined, never);
  assert.deepEqual([loggedIn, text, changes()], [true, 'Nobody needs to log in.', 0]);
});

test('codex is logged in to with its own command', async (t) => {
  const { logIn } = await loginOf(t, ['--login', 'missing'], 'codex');
  const { loggedIn, command } = await logIn(undefined, never);
  assert.deepEqual([loggedIn, command], [false, `${process.execPath} login`]);
});

test('an agent that does not answer is given up when the time is over, and its process ended', async (t) => {
  const { logIn } = await loginOf(t, ['--auth', 'missing', '--hang', 'initialize']);
  const limit = new AbortController();
  const report = logIn(undefined, limit.signal);
  limit.abort();
  assert.deepEqual(await report, {
    loggedIn: false,
    methods: [],
    command: '',
    text: 'The agent did not answer in time; log in with its own command.',
  });
});
