import assert from 'node:assert/strict';
import { test } from 'node:test';
import { secretsOfUrl, secretValues } from '../../../src/platform/config/setting-declaration.ts';
import { isSecretParameter } from '../../../src/platform/log/hidden-secrets.ts';
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

test('DP-3: a parameter is secret in a setting exactly when it is secret in the log', () => {
  for (const name of ['password', 'sslkey', 'sslpassword', 'token', 'access_token', 'sig', 'code']) {
    assert.deepEqual(secretsOfUrl(`https://host/?${name}=hunter2&mode=on`), ['hunter2'], name);
    assert.equal(isSecretParameter(name), true, name);
  }
  assert.deepEqual(secretsOfUrl('https://host/?monkey=banana'), []);
});
