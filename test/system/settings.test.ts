import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Setting, settingEntries, variablesOf } from '../../src/platform/config/setting-declaration.ts';
import { dataDirectory, listenAddress, settingsDeclaration } from '../../src/system/settings.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

const entries = settingEntries(settingsDeclaration.schema);
const DAY = 86_400_000;

test('without a file everything has the defaults of the documentation', () => {
  const { settings, problems } = resolveTrestle('');
  const { bridge, agents, distributed, accounts } = settings;
  assert.deepEqual(problems, []);
  assert.equal(settings.listen, '');
  assert.deepEqual(settings.retention, {
    events: 30 * DAY,
    jobs: 90 * DAY,
    usage: 400 * DAY,
    content: 400 * DAY,
    audit: 400 * DAY,
  });
  assert.deepEqual(bridge.limits, {
    message_bytes: 8_388_608,
    calls_per_connection: 1024,
    connections_per_address: 20_000,
    turns: 1024,
    turns_per_principal: 256,
    turns_per_agent: 512,
    waiting_turns: 4096,
    waiting_turns_per_principal: 1024,
    stalled_after: 30_000,
    scratch_bytes: 100 * 1024 ** 3,
    scratch_bytes_per_owner: 20 * 1024 ** 3,
    artifact_bytes: 20 * 1024 ** 3,
    artifact_bytes_per_owner: 5 * 1024 ** 3,
    sandbox_processes: 1024,
    sandbox_memory_bytes: 8 * 1024 ** 3,
    sandbox_cpu_percent: 0,
    sandbox_temporary_bytes: 1024 ** 3,
    attachment_bytes_per_owner: 209_715_200,
  });
  assert.equal(bridge.permissions, 'allow');
  assert.deepEqual(agents.catalog, ['builtin', 'codex', 'opencode', 'gemini']);
  assert.deepEqual(agents.codex, { command: 'codex', args: ['app-server'], env: {} });
  assert.deepEqual(agents.gemini, { command: 'gemini', args: ['--acp'], env: {}, url: '', token: '' });
  assert.equal(settings.jobs.max_running, 4);
  assert.deepEqual(settings.jobs.callback_allow, []);
  assert.equal(settings.gateway.provider_id, 'openclaw');
  assert.deepEqual(settings.gateway.tools_allow, ['*']);
  assert.equal(distributed.forwarding.hop_limit, 3);
  assert.equal(distributed.forwarding.default_action, 'execute_local');
  assert.equal(accounts.trial_days, 7);
  assert.equal(accounts.require_verification, true);
  assert.equal(accounts.smtp.tls, 'starttls');
});

test('a model alias gets the default retries and timeouts', () => {
  const { settings } = resolveTrestle('completions: { models: [{ name: fast, targets: [{ model: lab/small }] }] }');
  const [model] = settings.completions.models;
  assert.equal(model?.retries, 2);
  assert.deepEqual(model?.timeouts, { connect: 0, first_byte: 0, idle: 0, total: 0 }, 'as for the API');
  const { timeouts } = settings.completions;
  assert.deepEqual(timeouts, { connect: 5000, first_byte: 600_000, idle: 300_000, total: 3_600_000 });
  const limits = { requests_per_minute: 0, tokens_per_minute: 0 };
  assert.deepEqual(model?.targets[0], { model: 'lab/small', weight: 1, priority: 1, ...limits });
});

const KEY = Buffer.alloc(32).toString('base64');

/** A price of which nothing is given: -1 stands for "as the input" or "as the output". */
const PRICE = {
  input: 0,
  output: 0,
  cache_read: -1,
  cache_write: -1,
  cache_write_1h: -1,
  audio_input: -1,
  image_input: -1,
  audio_output: -1,
  reasoning: -1,
  per_image: 0,
  per_second: 0,
  per_character: 0,
  per_search: -1,
  batch_input: -1,
  batch_output: -1,
  tiers: [],
};

const VARIABLES: readonly (readonly [variable: string, value: string, path: string, expected: unknown])[] = [
  ['BRIDGE_AUTH_TOKEN', 'abc', 'bridge.auth_token', 'abc'],
  ['BRIDGE_REVIEW_AUTH_TOKEN', 'abc', 'bridge.review_auth_token', 'abc'],
  [
    'ACP_ALLOWED_ORIGINS',
    'https://a.example, http://b:*',
    'bridge.allowed_origins',
    ['https://a.example', 'http://b:*'],
  ],
  ['BRIDGE_WEBHOOK_SECRET', 'a b', 'bridge.webhook_secret', 'a b'],
  ['GATEWAY_TOOLS_INVOKE_URL', 'http://127.0.0.1:1/invoke', 'gateway.tools_url', 'http://127.0.0.1:1/invoke'],
  ['GATEWAY_TOOLS_TOKEN', 'abc', 'gateway.tools_token', 'abc'],
  ['COMPLETIONS_MASTER_KEY', 'abc', 'completions.master_key', 'abc'],
  ['TRESTLE_SECRET_KEY', KEY, 'secret_key', KEY],
  ['TRESTLE_DATABASE_URL', 'postgres://a@b/c', 'database.url', 'postgres://a@b/c'],
  ['TRESTLE_DATA_DIR', 'data', 'data_dir', '/work/data'],
  ['TRESTLE_LISTEN', '[::1]:0', 'listen', '[::1]:0'],
  ['TRESTLE_BRIDGE_PERMISSIONS', 'deny', 'bridge.permissions', 'deny'],
  ['TRESTLE_RETENTION_EVENTS', '1d', 'retention.events', DAY],
  ['TRESTLE_INSECURE', '1', 'insecure', true],
  ['TRESTLE_LOG_LEVEL', 'debug', 'log.level', 'debug'],
  ['TRESTLE_COMPLETIONS_PRICES', '{"a/b": {"input": 0.1}}', 'completions.prices', { 'a/b': { ...PRICE, input: 0.1 } }],
];

for (const [variable, value, path, expected] of VARIABLES) {
  test(`${variable} sets ${path}`, () => {
    const { settings, problems, sources } = resolveTrestle('', { [variable]: value });
    assert.deepEqual(problems, []);
    const found = path.split('.').reduce<unknown>((part, key) => (part as Record<string, unknown>)[key], settings);
    assert.deepEqual(found, expected);
    assert.equal(sources[path], `env ${variable}`);
  });
}

test('an empty BRIDGE_REVIEW_AUTH_TOKEN clears the review token, an empty BRIDGE_AUTH_TOKEN never opens the bridge', () => {
  const file = 'bridge: { auth_token: a, review_auth_token: b }';
  const { settings } = resolveTrestle(file, { BRIDGE_AUTH_TOKEN: '', BRIDGE_REVIEW_AUTH_TOKEN: '' });
  assert.equal(settings.bridge.auth_token, 'a');
  assert.equal(settings.bridge.review_auth_token, '');
});

test('no two settings share a variable or a flag', () => {
  const variables = entries.flatMap((entry) => variablesOf(entry, settingsDeclaration.environmentPrefix));
  assert.equal(new Set(variables).size, variables.length);
  const flags = entries.flatMap(({ setting }) => setting.flag ?? []);
  assert.deepEqual(flags.toSorted(), ['--data-dir', '--database', '--insecure', '--listen', '--log-level']);
});

test('every setting has a sentence that says what it does, and a key in snake_case', () => {
  const seen: string[] = [];
  function walk(schema: Setting<unknown>, path: string): void {
    if (schema.shape === 'list') walk(schema.member, path);
    if (schema.shape === 'record') walk(schema.member, path);
    if (schema.shape !== 'group') return;
    for (const [key, member] of Object.entries(schema.members)) {
      assert.match(key, /^[a-z][a-z0-9_]*$/);
      assert.match(member.description, /^\p{Lu}.*\.$/su, `${path}.${key}`);
      seen.push(`${path}.${key}`);
      walk(member, `${path}.${key}`);
    }
  }
  walk(settingsDeclaration.schema, '');
  assert.ok(seen.length > 100);
});

test('every token, key, password and secret is declared as one', () => {
  const named = entries.filter(({ path }) => /(token|secret|password|_key)$/.test(path));
  assert.ok(named.length > 10);
  for (const { path, setting } of named) assert.ok(setting.shape === 'leaf' && setting.secrecy === 'secret', path);
});

test('where nothing is configured the address is loopback with the port of what is served', () => {
  const { settings } = resolveTrestle('');
  assert.deepEqual(listenAddress(settings), { host: '127.0.0.1', port: 8787 });
  assert.deepEqual(listenAddress(settings, 'bridge'), { host: '127.0.0.1', port: 8787 });
  assert.deepEqual(listenAddress(settings, 'completions'), { host: '127.0.0.1', port: 4000 });
  assert.deepEqual(listenAddress(settings, 'accounts'), { host: '127.0.0.1', port: 8080 });
  assert.deepEqual(listenAddress(resolveTrestle('listen: "[::1]:0"').settings, 'accounts'), { host: '::1', port: 0 });
});

test('where nothing is configured the data lies in the XDG data home', () => {
  const { settings } = resolveTrestle('');
  assert.equal(dataDirectory(settings, '/home/ann', undefined), '/home/ann/.local/share/trestle');
  assert.equal(dataDirectory(settings, '/home/ann', '/xdg'), '/xdg/trestle');
  assert.equal(dataDirectory(settings, '/home/ann', 'relative'), '/home/ann/.local/share/trestle');
  assert.equal(dataDirectory(resolveTrestle('data_dir: ./d').settings, '/home/ann', '/xdg'), '/etc/trestle/d');
});

test('DP-6: the listener has limits of its own, whatever the bridge may use', () => {
  const { settings } = resolveTrestle('listener: { connections_per_address: 7 }');
  assert.equal(settings.listener.connections_per_address, 7);
  assert.equal(settings.bridge.limits.connections_per_address, 20_000);
});
