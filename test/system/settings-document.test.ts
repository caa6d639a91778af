import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import { parse } from 'yaml';
import { jsonSchema } from '../../src/platform/config/describe-settings.ts';
import { settingEntries } from '../../src/platform/config/setting-declaration.ts';
import { configurationDocument } from '../../src/system/configuration-document.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

const document = configurationDocument();
const sample = /```yaml\n(.*?)```/s.exec(document)?.[1] ?? '';

test('docs/configuration.md is what "trestle config docs" prints', async () => {
  const stored = await readFile(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
  assert.equal(stored, document, 'run: trestle config docs > docs/configuration.md');
});

test('every setting is documented', () => {
  for (const { path } of settingEntries(settingsDeclaration.schema)) {
    assert.ok(document.includes(`| \`${path}\` |`), path);
  }
});

test('the sample file loads on a machine where none of its variables is set', () => {
  const { problems, warnings, settings } = resolveTrestle(sample);
  assert.deepEqual(problems, []);
  for (const warning of warnings) assert.match(warning, /is empty: the environment variable \w+ is not set$/);
  assert.equal(settings.bridge.auth_token, '');
  assert.equal(settings.data_dir, '/etc/trestle/data');
});

test('P-37: the sample file takes its secrets from the environment', () => {
  const { settings } = resolveTrestle(sample, { BRIDGE_AUTH_TOKEN: 'a', LAB_KEY: 'b', NODE_1_TOKEN: 'c' });
  assert.equal(settings.bridge.auth_token, 'a');
  assert.equal(settings.completions.apis.lab?.api_key, 'b');
  assert.equal(settings.accounts.agents[0]?.token, 'c');
});

test('the sample file has every top-level key but the rare ones', () => {
  const missing = Object.keys(resolveTrestle('').settings).filter((key) => !Object.hasOwn(parse(sample), key));
  assert.deepEqual(missing, ['insecure', 'metrics_token', 'secret_key', 'cluster', 'log']);
});

test('an editor with the JSON schema accepts the sample file', () => {
  const validator = Compile(JSON.parse(JSON.stringify(jsonSchema(settingsDeclaration.schema, 'trestle.yaml'))));
  assert.equal(validator.Check(parse(sample)), true);
  assert.equal(validator.Check({ ...parse(sample), listn: 1 }), false);
});
