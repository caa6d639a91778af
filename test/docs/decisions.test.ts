import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';

const decision = (name: string): string =>
  readFileSync(`${projectRoot}docs/decisions/${name}.md`, 'utf8').replaceAll(/\s+/g, ' ');

/** A number in the sources, by the name of its constant. */
function constant(file: string, name: string): number {
  const [, digits] = new RegExp(`const ${name} = ([0-9_]+);`).exec(readFileSync(`${projectRoot}${file}`, 'utf8')) ?? [];
  return Number(digits?.replaceAll('_', ''));
}

test('DP-8: decision 7 names the time after which an instance counts as dead', () => {
  const seconds = constant('src/bridge/instances/instance-registry.ts', 'DEAD_AFTER_MS') / 1000;
  assert.ok(seconds > 0);
  assert.ok(decision('0007-numbered-updates-in-chunks').includes(`heartbeat is ${seconds} seconds old`));
});

test('DP-8: decisions 1 and 9 agree that the published program is a bundle', () => {
  assert.doesNotMatch(decision('0001-runtime-pinned-by-npm'), /nothing is bundled/);
  assert.match(decision('0001-runtime-pinned-by-npm'), /0009-bundled-program\.md/);
});
