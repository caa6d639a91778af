import assert from 'node:assert/strict';
import { test } from 'node:test';
import { maskSettings } from '../../../src/platform/config/setting-declaration.ts';
import { garden, resolveGarden } from './sample-declaration.ts';

const masked = (file: string) => maskSettings(garden.schema, resolveGarden(file).settings) as Record<string, unknown>;

test('P-37: secrets become asterisks when set and stay empty when not', () => {
  const { gate } = masked('gate: { password: hunter2, guest_password: "", width: 2 }');
  assert.deepEqual(gate, { password: '********', guest_password: '', width: 2, mood: 'open', wait: '30s' });
});

test('P-37: secrets inside lists and all values of a private map are masked', () => {
  const { beds, notes } = masked('beds: [{ name: a, key: hunter2 }, { name: b }]\nnotes: { a: hunter2, b: "" }');
  assert.deepEqual(beds, [
    { name: 'a', key: '********', depth: 0.5 },
    { name: 'b', key: '', depth: 0.5 },
  ]);
  assert.deepEqual(notes, { a: '********', b: '' });
});

const URLS: readonly (readonly [url: string, shown: string])[] = [
  ['shed://ann:hunter2@host:1/db?mode=on', 'shed://ann:********@host:1/db?mode=on'],
  ['shed://ann@host/db', 'shed://ann@host/db'],
  ['shed://host/db?password=hunter2&x=1', 'shed://host/db?password=********&x=1'],
  ['shed://host/db?sslkey=hunter2&sslkey=hunter2', 'shed://host/db?sslkey=********'],
  ['shed://ann:a%40hunter2@host', 'shed://ann:********@host'],
  ['shed://ann:p@hunter2@host', 'shed://ann:********@host'],
];

for (const [url, shown] of URLS) {
  test(`P-37: the URL ${url} is shown without its password`, () => {
    const { store } = masked(`store: { url: "${url}" }`);
    assert.deepEqual(store, { url: shown });
  });
}

test('what is printed can be loaded again', () => {
  const file = 'gate: { wait: 90s, width: 2 }\nlisten: 127.0.0.1:1\nbeds: [{ name: a }]';
  assert.deepEqual(resolveGarden(JSON.stringify(masked(file))).settings, resolveGarden(file).settings);
});
