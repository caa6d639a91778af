import assert from 'node:assert/strict';
import { test } from 'node:test';
import { secretValues } from '../../../src/platform/config/secret-values.ts';
import { garden, resolveGarden } from './sample-declaration.ts';

const secretsIn = (file: string) => secretValues(garden.schema, resolveGarden(file).settings);

test('every secret that is set is listed once, wherever it stands', () => {
  const gate = 'gate: { password: a, guest_password: b, width: 2 }';
  const file = `${gate}\nbeds: [{ name: x, key: a }, { name: y, key: c }]\nnotes: { n: d }`;
  assert.deepEqual(secretsIn(file).toSorted(), ['a', 'b', 'c', 'd']);
  assert.deepEqual(secretsIn(''), []);
});

test('of a URL the password is listed in both spellings, with secrets in its query', () => {
  assert.deepEqual(secretsIn('store: { url: "shed://ann:p%2Fq@h/?sslpassword=r&mode=on" }'), ['p%2Fq', 'p/q', 'r']);
});

test('a password with a wrong percent sign is listed as it stands', () => {
  assert.deepEqual(secretsIn('store: { url: "shed://ann:p%zz@h" }'), ['p%zz']);
});
