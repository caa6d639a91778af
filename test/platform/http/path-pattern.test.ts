import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compilePath } from '../../../src/platform/http/serve-routes.ts';

test('patterns match whole paths, as sent', () => {
  const rows: [pattern: string, matching: string[], other: string[]][] = [
    ['/', ['/'], ['', '//', '/a']],
    ['/a/b', ['/a/b'], ['/a', '/a/b/', '/a//b', '/a/b/c', '/A/b']],
    ['/a/:id', ['/a/b', '/a/b%2Fc'], ['/a', '/a/', '/a/b/c']],
    ['/a/:id/c', ['/a/b/c'], ['/a//c', '/a/b/d']],
    ['/a/*', ['/a/', '/a/b', '/a/b/c'], ['/a', '/b/c']],
  ];
  for (const [pattern, matching, other] of rows) {
    const matches = compilePath(pattern);
    for (const path of matching) assert.ok(matches(path), `${pattern} ${path}`);
    for (const path of other) assert.ok(!matches(path), `${pattern} ${path}`);
  }
});

test('a pattern that says more than that is refused at start', () => {
  for (const pattern of ['a', '/a/:id(\\d+)', '/a/:x-:y', '/*/a', '/a*', '/a::b', '/a/:id?']) {
    assert.throws(() => compilePath(pattern), pattern);
  }
});
