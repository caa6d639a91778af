import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { startProgram } from './running-program.ts';

const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const commands = [...readme.matchAll(/^```sh\n(.*?)^```/gms)].flatMap((match) => (match[1] ?? '').trim().split('\n'));
const program = await startProgram({ after });

test('every curl of the README works as printed', () => {
  const curls = commands.filter((line) => line.startsWith('curl '));
  assert.ok(curls.length >= 2);
  for (const line of curls) {
    const command = line.replaceAll('http://127.0.0.1:8787', program.url);
    const answer = JSON.parse(execFileSync('/bin/sh', ['-c', `${command} -s --fail`], { encoding: 'utf8' }));
    assert.ok(answer.choices ?? answer.result, line);
  }
});

test('the WebSocket program of the README runs as printed', () => {
  const [, script = ''] = /^```js\n(.*?)^```/ms.exec(readme) ?? [];
  const source = script.replaceAll('127.0.0.1:8787', new URL(program.url).host);
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', source], { encoding: 'utf8' });
  assert.match(output, /status: 'completed'/);
});

test('every npm command of the README is a script', () => {
  const code = [...readme.replaceAll(/^```.*?^```/gms, '').matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? '');
  const scripts = [...[...commands, ...code].join('\n').matchAll(/npm (?:run )?([a-z][\w:]*)/g)].map(
    (match) => match[1] ?? '',
  );
  assert.ok(scripts.includes('check'));
  const builtIn = ['install', 'pack', 'start', 'test'];
  for (const name of scripts.filter((script) => !builtIn.includes(script))) assert.ok(name in manifest.scripts, name);
  for (const name of ['start', 'test']) assert.ok(name in manifest.scripts);
  assert.ok(commands.includes('npm install && npm start'));
  assert.ok(commands.includes('npm install && npm test'));
});
