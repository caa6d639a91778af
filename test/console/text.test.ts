import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { linesOf } from '../../src/console/parts/diff-lines.ts';
import {
  countOf,
  moneyText,
  pieces,
  safeLink,
  shortPath,
  spanText,
  titleText,
  visible,
} from '../../src/console/parts/text.ts';
import fc from '../kit/properties.ts';

test('what cannot be seen is shown by its code point', () => {
  assert.equal(visible('rm \u202e/etc\u200b'), 'rm ⟨U+202E⟩/etc⟨U+200B⟩');
  assert.equal(visible('a\tb\nc'), 'a\tb\nc');
  // A joiner can be seen between pictures, and only there.
  for (const joined of ['👩‍💻', '🧑🏽‍🚀', '❤️‍🔥', '👨‍👩‍👧']) assert.equal(visible(`${joined} x`), `${joined} x`);
  assert.equal(visible('rm\u200d 💻\u200dx'), 'rm⟨U+200D⟩ 💻⟨U+200D⟩x');
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => !/[\u202a-\u202e\u2066-\u2069\u200b]/.test(visible(text))),
    { endOnFailure: true },
  );
});

test('only web and mail addresses become links, whatever the text', () => {
  for (const bad of [
    'javascript:alert(1)',
    ' javascript:x',
    'data:text/html,x',
    '/console',
    'file:///etc/passwd',
    '',
  ]) {
    assert.equal(safeLink(bad), undefined, bad);
  }
  assert.equal(safeLink('https://example.com/a b'), 'https://example.com/a%20b');
  fc.assert(
    fc.property(fc.string(), (text) => {
      const link = safeLink(text);
      return link === undefined || /^(?:https?|mailto):/.test(link);
    }),
    { endOnFailure: true },
  );
});

test('a long text is cut into pieces that stay the same while it grows, and loses nothing', () => {
  const words = Array.from({ length: 3000 }, (_, index) => `word-${index} `);
  let before: readonly string[] = [];
  for (let count = 100; count <= words.length; count += 100) {
    const text = words.slice(0, count).join('');
    const now = pieces(text, /\s/);
    assert.equal(now.join(''), text);
    assert.ok(now.every((piece) => piece.length <= 4000 && (now.length === 1 || piece.endsWith(' '))));
    assert.deepEqual(now.slice(0, Math.max(0, before.length - 1)), before.slice(0, -1), 'only the last one changes');
    before = now;
  }
  assert.ok(before.length > 5);
  // Without a place to end, also no character is cut in two.
  const faces = '😀'.repeat(5000);
  assert.ok(pieces(`a${faces}`, /\s/).every((piece) => piece.isWellFormed()));
  assert.equal(pieces(`a${faces}`, /\s/).join(''), `a${faces}`);
});

test('times, money and paths are short', () => {
  assert.deepEqual([spanText(5000), spanText(125_000), spanText(7_300_000)], ['5 s', '2 min', '2 h']);
  assert.deepEqual([spanText(59_400), spanText(59_600), spanText(60_000)], ['59 s', '1 min', '1 min']);
  const counted = [countOf(0, 'file'), countOf(1, 'file'), countOf(2000, 'file'), countOf(2, 'search', 'searches')];
  assert.deepEqual(counted, ['0 files', '1 file', '2,000 files', '2 searches']);
  assert.deepEqual([moneyText(0.0012), moneyText(3.5), moneyText(0)], ['$0.0012', '$3.50', '$0.00']);
  assert.deepEqual([moneyText(0.00001), moneyText(0.00005)], ['<$0.0001', '$0.0001'], 'little is not nothing');
  assert.equal(shortPath('/home/ann/code/app'), 'code/app');
});

test('a title has no marks of Markdown, and everything else stays as it is', () => {
  const shown: Readonly<Record<string, string>> = {
    'Make it **complete**': 'Make it complete',
    '**All** of *it*, ~~not~~ `half`.': 'All of it, not half.',
    '***both*** and **a *b* c**': 'both and a b c',
    '## A heading': 'A heading',
    '> - [x] **done**': 'done',
    'see [the page](https://example.com/a_b) and ![a picture](x.png)': 'see the page and a picture',
    '`**kwargs**` and ``a ` b``': '**kwargs** and a ` b',
  };
  for (const [title, text] of Object.entries(shown)) assert.equal(titleText(title), text, title);
  const kept = [
    '2 * 3 * 4',
    'src/*/a/*',
    '*.ts and *.js',
    '__init__.py',
    'snake_case_name',
    '**',
    '#12 is open',
    'a[0](b c)',
  ];
  for (const title of [
    ...kept,
    '2**3**4',
    'x `unclosed',
    '``a`',
    '*a',
    '-5 degrees',
    '',
    `**${'long '.repeat(300)}x**`,
  ])
    assert.equal(titleText(title), title);
  assert.equal(titleText('**rm \u202e**'), 'rm ⟨U+202E⟩');
  fc.assert(
    fc.property(fc.string(), (text) => titleText(text) !== '' || text === ''),
    { endOnFailure: true },
  );
});

test('one place writes times: a screen that wrote its own would show another zone or form', () => {
  const folder = new URL('../../src/console/', import.meta.url).pathname;
  const own = globSync('**/*.{ts,tsx}', { cwd: folder }).filter((file) =>
    /\.toLocale(?:Date|Time)?String\(/.test(readFileSync(folder + file, 'utf8')),
  );
  assert.deepEqual(own, ['parts/text.ts']);
});

test('a diff comes from two texts, or from the diff of the agent', () => {
  const lines = linesOf({ path: 'a.ts', oldText: 'one\ntwo\nthree\n', newText: 'one\n2\nthree\n' });
  assert.deepEqual(
    lines.map(({ sign, text, oldLine, newLine }) => [sign, text, oldLine, newLine]),
    [
      [' ', 'one', 1, 1],
      ['-', 'two', 2, undefined],
      ['+', '2', undefined, 2],
      [' ', 'three', 3, 3],
    ],
  );
  const unified = '--- a.ts\n+++ a.ts\n@@ -5,1 +5,1 @@\n-old\n+new\n';
  assert.deepEqual(
    linesOf({ path: 'a.ts', unified }).map(({ sign, text }) => sign + text),
    ['-old', '+new'],
  );
  assert.deepEqual(linesOf({ path: 'a.ts', unified: 'not a diff' }), []);
});

test('the API page has the colours and fonts of the console', () => {
  const declarations = (path: string) => {
    const source = readFileSync(new URL(path, import.meta.url), 'utf8');
    return new Map([...source.matchAll(/^ {2}(--[\w-]+): (.*);$/gm)].map(([, name = '', value = '']) => [name, value]));
  };
  const tokens = declarations('../../src/console/styles/tokens.css');
  const page = declarations('../../src/platform/http/api-page/browser/page.css');
  const shared = [...tokens].filter(([, value]) => value.startsWith('light-dark(') || /mono|sans/.test(value));
  assert.ok(shared.length > 12);
  for (const [name, value] of shared) assert.equal(page.get(name), value, name);
});
