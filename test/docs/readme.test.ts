import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const commands = [...readme.matchAll(/^```sh\n(.*?)^```/gms)].flatMap((match) => (match[1] ?? '').trim().split('\n'));

test('every npm command of the README is a script', () => {
  const code = [...readme.replaceAll(/^```.*?^```/gms, '').matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? '');
  const scripts = [...[...commands, ...code].join('\n').matchAll(/npm (?:run (?:-s )?)?([a-z][\w:]*)/g)].map(
    (match) => match[1] ?? '',
  );
  assert.ok(scripts.includes('check'));
  const builtIn = ['install', 'pack', 'start', 'test'];
  for (const name of scripts.filter((script) => !builtIn.includes(script))) assert.ok(name in manifest.scripts, name);
  for (const name of ['start', 'test']) assert.ok(name in manifest.scripts);
  assert.ok(commands.includes('npm install && npm start'));
  assert.ok(commands.includes('npm install && npm test'));
});

test('DU-19: the first screen has a picture, the two commands, what a kill does, and that agents ask', () => {
  const first = readme.slice(0, readme.indexOf('\n## '));
  const picture = /!\[[^\]]{20,}\]\(([^)]+)\)/.exec(first)?.[1] ?? '';
  assert.ok(existsSync(new URL(`../../${picture}`, import.meta.url)) && picture.endsWith('.png'), picture);
  const order = [picture, 'Kill it with -9', 'npm install && npm start', '8787/console', 'bridge.permissions'];
  const places = order.map((words) => first.indexOf(words));
  assert.deepEqual(
    places,
    places.toSorted((one, other) => one - other),
  );
  assert.ok(
    places.every((place) => place >= 0),
    String(places),
  );
});
