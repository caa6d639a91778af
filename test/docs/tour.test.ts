import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { TOUR, tourPage } from '../kit/tour-page.ts';

const DOCS = join(import.meta.dirname, '..', '..', 'docs');
const MAX_PICTURES = 10;
const MAX_BYTES = 150_000;

test('docs/tour.md is the page that its recording writes', () => {
  assert.equal(readFileSync(join(DOCS, 'tour.md'), 'utf8'), tourPage());
});

test('every picture of the tour is there and small, and none is left over', () => {
  const named = TOUR.map(({ moment }) => `tour-${moment}.png`).sort();
  assert.ok(named.length <= MAX_PICTURES);
  assert.deepEqual(
    readdirSync(join(DOCS, 'images'))
      .filter((name) => name.startsWith('tour-'))
      .sort(),
    named,
  );
  for (const name of named) {
    const file = join(DOCS, 'images', name);
    assert.equal(readFileSync(file).subarray(1, 4).toString(), 'PNG', name);
    assert.ok(statSync(file).size <= MAX_BYTES, `${name}: ${statSync(file).size} bytes`);
  }
});

test('every picture of the tour says what it shows', () => {
  for (const { picture, moment } of TOUR) assert.ok(picture.length >= 20, moment);
});
