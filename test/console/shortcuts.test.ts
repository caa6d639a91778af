import assert from 'node:assert/strict';
import { test } from 'node:test';

/** As text, because the types of the console have a DOM, and those of tests have none. */
const SOURCE = '../../src/console/shell/shortcuts.ts';

interface Action {
  readonly keys: string;
  readonly what: string;
  run(): void;
}
interface Pressed {
  readonly key: string;
  readonly at: number;
}

const { SHORTCUTS, actionFor } = (await import(SOURCE)) as {
  readonly SHORTCUTS: Readonly<Record<string, { readonly keys: string }>>;
  actionFor(layers: readonly (readonly Action[])[], before: Pressed | undefined, now: Pressed): Action | undefined;
};

const action = (keys: string): Action => ({ keys, what: keys, run: () => undefined });
const after = (key: string, at: number) => ({ key, at });

test('no two keys of the table are the same, and none begins the chords of the navigation', () => {
  const all = Object.values(SHORTCUTS).map(({ keys }) => keys);
  assert.equal(new Set(all).size, all.length);
  assert.equal(all.includes('g'), false);
});

test('two keys come before one, within a second; a key that only begins chords takes the next one with it', () => {
  const layers = [
    [action('g b'), action('g a')],
    [action('a'), action('j')],
  ];
  const found = (before: Pressed | undefined, now: Pressed) => actionFor(layers, before, now)?.keys;
  assert.equal(found(undefined, after('a', 0)), 'a');
  assert.equal(found(after('g', 0), after('a', 999)), 'g a');
  assert.equal(found(after('g', 0), after('a', 1000)), 'a', 'too late for a chord');
  assert.equal(found(after('g', 0), after('j', 100)), undefined, 'a wrong chord does nothing');
  assert.equal(found(after('x', 0), after('j', 100)), 'j');
  assert.equal(found(undefined, after('g', 0)), undefined);
});

test('the part of the page that was shown last comes first; Escape alone works beside Escape twice', () => {
  const [page, dialog] = [action('Escape'), action('Escape')];
  assert.equal(actionFor([[page], [dialog]], undefined, after('Escape', 0)), dialog);
  const layers = [[action('Escape Escape'), action('y')]];
  assert.equal(actionFor(layers, after('Escape', 0), after('Escape', 10))?.keys, 'Escape Escape');
  assert.equal(actionFor(layers, after('Escape', 0), after('y', 10))?.keys, 'y');
});
