import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settingsTables } from '../../../src/platform/config/describe-settings.ts';
import { garden } from './sample-declaration.ts';

const document = settingsTables(garden);

const ROWS: readonly (readonly [what: string, row: string])[] = [
  ['a plain setting', '| `listen` | address:port | empty | `GARDEN_LISTEN` | Where it listens. |'],
  [
    'a secret with a name of its own that may be reloaded',
    '| `gate.password` | text | empty | `GATE_PASSWORD`, `GARDEN_GATE_PASSWORD` | Opens it. *Secret.* *Reloaded.* |',
  ],
  ['a range', '| `gate.width` | whole number, 1 to 9 | `3` | `GARDEN_GATE_WIDTH` | How wide it is. |'],
  ['choices', '| `gate.mood` | `open`, `closed` | `open` | `GARDEN_GATE_MOOD` | How it stands. |'],
  ['a list', '| `colors` | list of text | `["green"]` | `GARDEN_COLORS` | Its colours. |'],
  ['a member of a list, which no variable reaches', '| `beds[].name` | text | required |  | Its name. |'],
  ['a map of what may be secrets', '| `notes` | map of text | `{}` | `GARDEN_NOTES` | Notes. *Secret.* |'],
];

for (const [what, row] of ROWS) {
  test(`the documentation has a row for ${what}`, () => assert.ok(document.split('\n').includes(row), document));
}

test('each group has a section with its description', () => {
  assert.match(document, /^## Top level\n\nA garden\.\n\n\| key/);
  assert.match(document, /\n## gate\n\nThe gate\.\n\n\| key/);
});
