// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Command } from 'commander';
import { parse } from 'yaml';
import { CommandExit } from '../../src/commands/command-context.ts';
import { registerConfig } from '../../src/commands/config.ts';
import { addGlobalFlags, createCommandLogger, flagsFromOptions } from '../../src/commands/load-settings.ts';
import type { Settings } from '../../src/system/settings.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

interface Outcome {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function run(
  t: TestContext,
  args: readonly string[],
  file?: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const workingDirectory = await mkdtemp(join(tmpdir(), 'trestle-config-'));
  t.after(() => rm(workingDirectory, { recursive: true, force: true }));
  if (file !== undefined) await writeFile(join(workingDirectory, 'trestle.yaml'), file, { mode: 0o644 });
  let out = '';
  let err = '';
  const program = new Command('trestle').exitOverride();
  addGlobalFlags(program);
  registerConfig(program, {
    environment,
    workingDirectory,
    homeDirectory: '/home/ann',
    stdout: (text) => {
      out += text;
    },
    stderr: (text) => {
      err += text;
    },
    color: false,
  });
  const code = await program.parseAsync(['config', ...args], { from: 'user' }).then(
    () => 0,
    (error: unknown) => {
      if (error instanceof CommandExit) return error.code;
      throw error;
    },
  );
  return { code, out, err };
}

test('config check says ok, and warns about secrets that others may read', async (t) => {
  assert.deepEqual(await run(t, ['check']), {
    code: 0,
    out: 'ok (no file; only defaults and the environment)\n',
    err: '',
  });
  const { code, out, err } = await run(t, ['check'], 'bridge: { auth_token: hunter2 }\n');
  assert.equal(code, 0);
  assert.match(out, /^ok .*trestle\.yaml\n$/);
  assert.match(err, /^warning: trestle\.yaml holds secrets \(bridge\.auth_token\).*chmod 600/);
  assert.doesNotMatch(out + err, /hunter2/);
});

test('O-07: config check prints one line for each problem and exits with 78', async (t) => {
  const file = 'listn: 1\njobs: { max_running: many }\n';
  const { code, out, err } = await run(t, ['check', '--log-level', 'loud'], file, { TRESTLE_LISTN: 'x' });
  assert.equal(code, 78);
  assert.equal(out, '');
  assert.deepEqual(err.trimEnd().split('\n'), [
    'trestle.yaml:1:1: listn: there is no such setting; did you mean "listen"?',
    'trestle.yaml:2:22: jobs.max_running: "many" is not a whole number; expected a whole number from 1 to 1000',
    'flag --log-level: log.level: "loud" is not a possible value; expected one of debug, info, warn, error, silent',
    'environment variable TRESTLE_LISTN: there is no such setting; did you mean TRESTLE_LISTEN?',
  ]);
});

test('O-07: with --json the outcome of config check is one object', async (t) => {
  const { code, out } = await run(t, ['check', '--json', '--config', 'none.yaml']);
  const problem = {
    where: 'flag --config',
    path: '',
    wrong: 'the file none.yaml does not exist',
    right: 'check the path',
  };
  assert.equal(code, 78);
  assert.deepEqual(JSON.parse(out), { ok: false, problems: [problem], warnings: [] });
  const good = await run(t, ['check', '--json']);
  assert.deepEqual(JSON.parse(good.out), { ok: true, file: null, problems: [], warnings: [] });
});

const SECRETS = `
bridge: { auth_token: hunter2, webhook_secret: hunter2 }
database: { url: "postgres://ann:hunter2@db/x" }
agents: { codex: { env: { KEY: hunter2 } }, custom: [{ id: a, command: b, env: { KEY: hunter2 } }] }
completions: { master_key: hunter2, apis: { lab: { api_key: hunter2 } } }
accounts:
  smtp: { password: hunter2 }
  agents: [{ id: n, token: hunter2 }]
  oauth: { oidc: [{ id: o, issuer: "https://i.example", client_id: c, client_secret: hunter2 }] }
`;

test('P-37: config print masks every secret, in YAML and in JSON', async (t) => {
  for (const args of [['print'], ['print', '--json'], ['print', '--sources'], ['print', '--json', '--sources']]) {
    const { code, out, err } = await run(t, args, SECRETS, { GATEWAY_TOOLS_TOKEN: 'hunter2' });
    assert.equal(code, 0);
    assert.doesNotMatch(out + err, /hunter2/);
    assert.match(out, /postgres:\/\/ann:\*{8}@db\/x/);
    assert.match(out, /"?KEY"?: "\*{8}"/);
  }
});

test('config print shows what is in force, in a form that loads again', async (t) => {
  const file = 'jobs: { max_running: 7 }\nretention: { events: 48h }\n';
  const { out } = await run(t, ['print', '--data-dir', '/d', '--insecure'], file);
  const printed = parse(out);
  assert.equal(printed.data_dir, '/d');
  assert.equal(printed.insecure, true);
  assert.equal(printed.jobs.max_running, 7);
  assert.equal(printed.retention.events, '2d');
  const again = await run(t, ['print'], out);
  assert.equal(again.out, out);
});

test('config print --sources says where each value comes from', async (t) => {
  const args = ['print', '--sources', '--listen', '127.0.0.1:1'];
  const { out } = await run(t, args, 'jobs: { max_running: 7 }\n', { BRIDGE_AUTH_TOKEN: 'a' });
  assert.match(out, /^listen: 127\.0\.0\.1:1 # flag --listen$/m);
  assert.match(out, /^ {2}max_running: 7 # trestle\.yaml:1$/m);
  assert.match(out, /^ {2}auth_token: "\*{8}" # env BRIDGE_AUTH_TOKEN$/m);
  assert.match(out, /^ {2}# default\n {2}callback_allow: \[\]$/m);
});

test('config schema prints a JSON schema, config docs the documentation', async (t) => {
  const { out } = await run(t, ['schema']);
  assert.equal(JSON.parse(out).properties.bridge.additionalProperties, false);
  assert.match((await run(t, ['docs'])).out, /^# Configuration\n/);
});

test('the flags of the declaration are taken from a command’s options', () => {
  const options = { listen: 'a', dataDir: 'b', database: 'c', insecure: true, logLevel: 'd', json: true };
  assert.deepEqual(flagsFromOptions(options), {
    '--listen': 'a',
    '--data-dir': 'b',
    '--database': 'c',
    '--insecure': true,
    '--log-level': 'd',
  });
});

test('DU-4: an unset variable in ${env:...} is named, instead of the setting that it leaves empty', async (t) => {
  const file = 'accounts: { oauth: { github: { client_id: abc, client_secret: "${env:GITHUB_SECRET}" } } }';
  const { code, err } = await run(t, ['check'], file);
  assert.equal(code, 78);
  assert.match(err, /client_secret: the environment variable GITHUB_SECRET is not set; set GITHUB_SECRET/);
});

test('DU-4: a setting that is empty because its variable is not set is a warning', async (t) => {
  const file = 'completions: { master_key: "${env:NO_SUCH_KEY}" }';
  const { code, out, err } = await run(t, ['check'], file);
  assert.equal(code, 0, err);
  assert.match(`${out}${err}`, /completions\.master_key is empty: the environment variable NO_SUCH_KEY is not set/);
  const set = await run(t, ['check'], file, { COMPLETIONS_MASTER_KEY: 'k'.repeat(40) });
  assert.doesNotMatch(`${set.out}${set.err}`, /NO_SUCH_KEY/);
});

test('DP-4: variables of the development scripts do not stop the program', async (t) => {
  const { code, err } = await run(t, ['check'], undefined, { TRESTLE_AGENTS_FOLDER: '/tmp/agents' });
  assert.equal(code, 0, err);
});

test('DP-1: the log of a command collects the secrets of the settings once, not for every line', () => {
  let reads = 0;
  const settings = structuredClone(resolveTrestle('').settings) as Settings;
  const token = 'a-secret-token-that-must-not-be-shown';
  Object.defineProperty(settings.bridge, 'auth_token', {
    get: () => {
      reads += 1;
      return token;
    },
  });
  const lines: string[] = [];
  const stderr = (text: string) => void lines.push(text);
  const logger = createCommandLogger(settings, { stderr }, { level: 'info', format: 'json' });
  const before = reads;
  for (let line = 0; line < 10; line += 1) logger.info({ line, token }, `with ${token}`);
  assert.equal(reads, before);
  assert.equal(lines.length, 10);
  assert.ok(!lines.join('').includes(token));
});
