import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resolveSettings } from '../../src/platform/config/load-configuration.ts';
import { parseYaml } from '../../src/platform/config/parse-yaml.ts';
import { expandReferences } from '../../src/platform/config/read-setting.ts';
import { formatDuration, parseDuration } from '../../src/platform/config/setting.ts';
import { maskSettings } from '../../src/platform/config/setting-declaration.ts';
import { parseListenAddress } from '../../src/platform/network-address/ip-address.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';
import fc from '../kit/properties.ts';
import { anyText, assertNothingPolluted, jsonWith, runs } from './any-input.ts';

const KEYS = ['listen', 'data_dir', 'database', 'url', 'bridge', 'auth_token', 'agents', 'custom', 'id', 'env', 'apis'];
const VALUES = ['127.0.0.1:1', '10s', 'builtin', 'postgres://a:b@c/d', '$' + '{env:A}', '&a', '*a', '!x', '- ', ': '];
const yaml = fc.oneof(
  anyText,
  jsonWith([...KEYS, ...VALUES, 'completions', 'accounts']).map((value) => JSON.stringify(value)),
  fc
    .array(fc.tuple(fc.nat(3), fc.constantFrom(...KEYS), fc.oneof(anyText, fc.constantFrom('', ...VALUES))), {
      maxLength: 8,
    })
    .map((lines) => lines.map(([depth, key, value]) => `${'  '.repeat(depth)}${key}: ${value}`).join('\n')),
);
const variables = fc.dictionary(
  fc.constantFrom('A', 'TRESTLE_LISTEN', 'TRESTLE_DATABASE_URL', 'BRIDGE_AUTH_TOKEN', 'TRESTLE_NONSENSE'),
  anyText,
);
const flags = fc.dictionary(
  fc.constantFrom('listen', 'data_dir', 'database.url', 'insecure'),
  fc.oneof(anyText, fc.boolean()),
);

test('G18: any text is a tree, or told apart with the place of each fault', () => {
  fc.assert(
    fc.property(yaml, (text) => {
      const { faults, readable, value } = parseYaml(text);
      assert.ok(readable || (value === undefined && faults.length > 0));
      for (const { at, wrong, right } of faults)
        assert.ok(at.line >= 1 && at.column >= 1 && wrong !== '' && right !== '');
      assertNothingPolluted();
    }),
    runs(150),
  );
});

test('G18: any file, environment and flags give settings or problems, all of which can be printed', () => {
  fc.assert(
    fc.property(yaml, variables, flags, (text, environment, given) => {
      const { settings, problems } = resolveSettings({
        declaration: settingsDeclaration,
        file: { text, name: 'trestle.yaml', directory: '/etc/trestle', mode: 0o600 },
        environment,
        flags: given as never,
        homeDirectory: '/home/ann',
        workingDirectory: '/work',
      });
      for (const { where, wrong } of problems) assert.ok(where !== '' && wrong !== '');
      JSON.stringify(maskSettings(settingsDeclaration.schema, settings));
      assertNothingPolluted();
    }),
    runs(200),
  );
});

test('G18: a secret is in no problem, whatever is wrong around it', () => {
  const secret = 'hunter2-hunter2-hunter2';
  fc.assert(
    fc.property(fc.constantFrom('auth_token', 'review_auth_token', 'webhook_secret'), anyText, (key, noise) => {
      const text = `bridge: { ${key}: "${secret}${JSON.stringify(noise).slice(1, -1)}", nonsense: 1 }`;
      const { problems } = resolveSettings({
        declaration: settingsDeclaration,
        file: { text, name: 'trestle.yaml', directory: '/', mode: 0o600 },
        environment: {},
        flags: {},
        homeDirectory: '/',
        workingDirectory: '/',
      });
      assert.ok(problems.length > 0 && !JSON.stringify(problems).includes(secret));
    }),
    runs(100),
  );
});

test('G18: durations, addresses and references of any text are read or refused', () => {
  fc.assert(
    fc.property(fc.oneof(anyText, fc.stringMatching(/^\d{1,14}(ms|s|m|h|d|x)$/)), (text) => {
      const milliseconds = parseDuration(text);
      if (milliseconds !== undefined) assert.equal(parseDuration(formatDuration(milliseconds)), milliseconds);
    }),
    runs(150),
  );
  const address = fc.tuple(anyText, fc.oneof(fc.nat(99_999), anyText)).map(([host, port]) => `${host}:${port}`);
  fc.assert(
    fc.property(
      fc.oneof(
        anyText,
        address,
        fc.ipV6().map((ip) => `[${ip}]:80`),
      ),
      (text) => {
        const read = parseListenAddress(text);
        if ('port' in read) assert.ok(read.host !== '' && read.port >= 0 && read.port <= 65_535);
        else assert.notEqual(read.wrong, '');
      },
    ),
    runs(150),
  );
  const reference = fc.array(fc.oneof(anyText, fc.constantFrom('$' + '{env:A}', '$' + '{env:', '}', '$$')));
  fc.assert(
    fc.property(reference, anyText, (parts, value) => {
      expandReferences(parts.join(''), { A: value });
    }),
    runs(150),
  );
});
