// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import { parse } from 'yaml';
import { jsonSchema } from '../../../src/platform/config/describe-settings.ts';
import { garden, resolveGarden } from './sample-declaration.ts';

const schema = jsonSchema(garden.schema, 'garden.yaml');
const validator = Compile(JSON.parse(JSON.stringify(schema)));

const GOOD = [
  '{}',
  'listen: 127.0.0.1:1\nfolder: ~/x\nverbose: true',
  'listen: ""\ngate: { password: "", width: 3, mood: closed, wait: 5m }',
  'gate: { password: "${env:P}", width: "${env:W}", mood: "${env:M}", wait: "${env:D}" }',
  'colors: "${env:C}"\nnotes: "${env:N}"\nbeds: "${env:B}"',
  'beds: [{ name: a, depth: 1.5 }]\nnotes: { a: b }',
];

const BAD = [
  'listn: 1',
  'listen: 8787',
  'gate: { width: many }',
  'gate: { width: 10 }',
  'gate: { mood: sad }',
  'gate: { wait: 30 }',
  'beds: [{ depth: 1 }]',
  'beds: [{ name: a, colour: b }]',
  'notes: { A: b }',
  'colors: { a: b }',
];

test('the schema names its dialect and carries descriptions and defaults, and nothing of ours', () => {
  assert.equal(schema.$schema, 'https://json-schema.org/draft/2020-12/schema');
  const text = JSON.stringify(schema);
  assert.doesNotMatch(text, /x-setting|unsafe/);
  assert.match(text, /"How wide it is\."/);
  assert.match(text, /"default":3/);
});

for (const file of GOOD) {
  test(`an editor accepts what is loaded: ${JSON.stringify(file)}`, () => {
    assert.equal(validator.Check(parse(file)), true);
  });
}

for (const file of BAD) {
  test(`an editor refuses what is refused: ${JSON.stringify(file)}`, () => {
    assert.equal(validator.Check(parse(file)), false);
    assert.ok(resolveGarden(file).problems.length > 0);
  });
}
