import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changedSettings } from '../../../src/platform/config/setting-declaration.ts';
import { garden, resolveGarden } from './sample-declaration.ts';

const changes = (before: string, after: string) =>
  changedSettings(garden.schema, resolveGarden(before).settings, resolveGarden(after).settings);

test('nothing changed when both readings are alike', () => {
  const file = 'gate: { width: 2, password: a }\nbeds: [{ name: a }]';
  assert.deepEqual(changes(file, file), { reloadable: [], restart: [] });
});

test('changes are told apart by whether they may be reloaded', () => {
  const after = 'gate: { password: b, width: 4 }\nlisten: 127.0.0.1:1\ncolors: [red]';
  assert.deepEqual(changes('gate: { password: a }', after), {
    reloadable: ['gate.password'],
    restart: ['listen', 'gate.width', 'colors[0]'],
  });
});

test('inside lists and maps each member answers for itself', () => {
  const before = 'beds: [{ name: a, key: x }, { name: b }]\nnotes: { a: x }';
  const after = 'beds: [{ name: a, key: y }, { name: c }]\nnotes: { a: y }';
  assert.deepEqual(changes(before, after), { reloadable: ['beds[0].key'], restart: ['beds[1].name', 'notes.a'] });
});

test('a list or map that gained or lost a member changed as a whole', () => {
  assert.deepEqual(changes('beds: [{ name: a }]\nnotes: { a: x }', 'beds: []\nnotes: { b: x }'), {
    reloadable: [],
    restart: ['beds', 'notes'],
  });
});
