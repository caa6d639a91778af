import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameKey, normalizeEmail, normalizeName } from '../../src/accounts/registration/new-user.ts';
import fc from '../kit/properties.ts';

test('addresses are compared without regard to case, their domains in ASCII', () => {
  for (const [given, expected] of [
    ['Ann@Example.ORG', 'ann@example.org'],
    ["o'brien+tag@example.org", "o'brien+tag@example.org"],
    ['ann@münchen.example', 'ann@xn--mnchen-3ya.example'],
    ['ann@MÜNCHEN.example', 'ann@xn--mnchen-3ya.example'],
    ['ann@xn--mnchen-3ya.example', 'ann@xn--mnchen-3ya.example'],
    ['ann@straße.example', 'ann@xn--strae-oqa.example'],
    ['ann@例え.jp', 'ann@xn--r8jz45g.jp'],
    ['ann@почта.рф', 'ann@xn--80a1acny.xn--p1ai'],
  ] as const) {
    assert.equal(normalizeEmail(given), expected, given);
  }
});

test('a spelling that software would turn into another address is no address', () => {
  for (const given of [
    'ann@ｅｘａｍｐｌｅ.org',
    'ａnn@example.org',
    'ann@example．org',
    'ann@exa\u00admple.org',
    'ann@\u200bexample.org',
    'ann@exаmple.org',
    'ann@ехаmple.org',
    'ann@xn--xample-2of.org',
    'ann@аррӏе.com',
    'ann@μicrosoft.com',
    'ann@\u212aelvin.org',
    'ann@\u212bngstrom.org',
    'İnn@example.org',
    'ann@İstanbul.org',
    'ſam@example.org',
    'ann@example.org\n',
    ' ann@example.org',
  ]) {
    assert.equal(normalizeEmail(given), undefined, JSON.stringify(given));
  }
});

test('whatever comes out is stable, ASCII, lower case and free of line breaks', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.emailAddress()), (text) => {
      const email = normalizeEmail(text);
      if (email === undefined) return;
      assert.match(email, /^[\x21-\x7e]+@[a-z0-9.-]+$/);
      assert.equal(normalizeEmail(email), email);
      assert.equal(email, email.toLowerCase());
    }),
    { numRuns: 500 },
  );
});

test('names are trimmed, hold no "@" in any width and nothing invisible, and compare without regard to looks', () => {
  assert.equal(normalizeName('  Ann '), 'Ann');
  for (const name of ['', '   ', 'a@b', 'a＠b', 'a\u0000b', 'a\nb', 'a\u200bb', 'a\u202eb', 'x'.repeat(65), '\ud800']) {
    assert.equal(normalizeName(name), undefined, JSON.stringify(name));
  }
  assert.equal(nameKey('ＡＮＮ'), nameKey('ann'));
  assert.equal(nameKey('\u212bngstrom'), nameKey('Ångstrom'));
  assert.notEqual(nameKey('ann'), nameKey('anne'));
});
