import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasNestedRepetition } from '../../../src/completions/content-settings.ts';
import {
  findPatterns,
  findPersonalData,
  mapArguments,
  mapTexts,
  PERSONAL_DATA,
  type PersonalData,
} from '../../../src/completions/guardrails/find-content.ts';
import {
  createTextScreen,
  HELD_CHARACTERS,
  type LocalRail,
  screenText,
} from '../../../src/completions/guardrails/text-screen.ts';

function masking(...kinds: readonly PersonalData[]): LocalRail {
  return { name: 'pii', action: 'mask', find: findPersonalData(kinds.length === 0 ? PERSONAL_DATA : kinds) };
}

const mask = (text: string, ...rails: readonly LocalRail[]) =>
  screenText(
    createTextScreen(rails.length === 0 ? [masking()] : rails, () => undefined),
    text,
  );

const CASES: readonly (readonly [given: string, expected: string])[] = [
  ['write to ada.l+x@mail.example.org, please', 'write to [email], please'],
  ['call +49 (30) 1234-5678 now', 'call [phone] now'],
  ['call (555) 123-4567 or 555-123-4567', 'call [phone] or [phone]'],
  ['card 4111 1111 1111 1111, 12/29', 'card [card], 12/29'],
  ['card 4111-1111-1111-1111 123', 'card [card] 123'],
  ['5500000000000004', '[card]'],
  ['no card: 4111 1111 1111 1112', 'no card: 4111 1111 1111 1112'],
  ['a long number 94111111111111111234567 is none', 'a long number 94111111111111111234567 is none'],
  ['to DE89 3704 0044 0532 0130 00 today', 'to [iban] today'],
  ['to GB82WEST12345698765432', 'to [iban]'],
  ['not GB82WEST12345698765431', 'not GB82WEST12345698765431'],
  ['sk-proj-abcdefghijklmnop1234 and AKIAIOSFODNN7EXAMPLE', '[key] and [key]'],
  ...['tsk_', 'tpt_', 'trk_', 'agt_', 'whs_'].map(
    (prefix) => [`x ${prefix}abcdefghijklmnop1234 y`, 'x [key] y'] as const,
  ),
  ['x -----BEGIN RSA PRIVATE KEY-----\nMIIB\nAAAA==\n-----END RSA PRIVATE KEY----- y', 'x [key] y'],
  ['version 1.2.3 of 2026-11-17 at 10:30, id 123456', 'version 1.2.3 of 2026-11-17 at 10:30, id 123456'],
  ['', ''],
];

for (const [given, expected] of CASES) {
  test(`personal data: ${JSON.stringify(given)}`, async () => {
    assert.equal(await mask(given), expected);
  });
}

test('only the kinds that were asked for are found', async () => {
  const text = 'ada@example.org 4111111111111111';
  assert.equal(await mask(text, masking('card')), 'ada@example.org [card]');
});

test('a text is masked the same however it is cut into pieces, and at most 200 characters are held back', () => {
  const filler = 'Lorem ipsum dolor sit amet. '.repeat(20);
  const text = `${filler}ada@example.org ${filler}4111 1111 1111 1111 ${filler}DE89 3704 0044 0532 0130 00.${'🙂'.repeat(150)}`;
  const expected = `${filler}[email] ${filler}[card] ${filler}[iban].${'🙂'.repeat(150)}`;
  for (const size of [1, 2, 3, 7, 19, 64, 200, 201, 5000]) {
    const screen = createTextScreen([masking()], () => undefined);
    let sent = '';
    for (let at = 0; at < text.length; at += size) {
      const piece = screen.feed(text.slice(at, at + size));
      assert.doesNotMatch(piece, /[\ud800-\udbff]$/, 'no half of a character is sent');
      sent += piece;
      // Masks are shorter than what they stand for, so the difference is an upper bound.
      assert.ok(at + size - sent.length <= HELD_CHARACTERS + size + 60, `${size}: ${at - sent.length} are held`);
    }
    assert.equal(sent + screen.end(), expected, `pieces of ${size}`);
    assert.equal(screen.hasChanged(), true);
  }
});

test('a match that has no end is not sent, and blocked when it gets too long', () => {
  const screen = createTextScreen([masking()], () => undefined);
  assert.equal(screen.feed(`${'a '.repeat(200)}-----BEGIN PRIVATE KEY-----\n`).includes('BEGIN'), false);
  assert.throws(
    () => {
      for (let at = 0; at < 100; at += 1) assert.doesNotMatch(screen.feed('QUJD'.repeat(250)), /QUJD/);
    },
    { code: 'CONTENT_BLOCKED' },
  );
});

test('rails are counted and one that blocks ends the text', () => {
  const counted: string[] = [];
  const rails: LocalRail[] = [
    { name: 'words', action: 'log', find: findPatterns(['x+'], false, '') },
    { name: 'secret', action: 'block', find: findPatterns(['project orion'], true, '') },
  ];
  const screen = createTextScreen(rails, ({ name }) => counted.push(name));
  assert.equal(screen.feed('xx and xxx') + screen.end(), 'xx and xxx');
  assert.deepEqual(counted, ['words', 'words']);
  screen.feed('about Project Orion');
  assert.throws(() => screen.end(), { code: 'CONTENT_BLOCKED', details: { guardrail: 'secret' } });
});

test('masks that overlap become one', async () => {
  const rails: LocalRail[] = [
    { name: 'a', action: 'mask', find: findPatterns(['abcd'], false, '[a]') },
    { name: 'b', action: 'mask', find: findPatterns(['cdef', 'x*'], false, '[b]') },
  ];
  assert.equal(await mask('-abcdef-', ...rails), '-[a]-');
});

test('all words of a request are visited, and nothing else', () => {
  const seen: string[] = [];
  const request = {
    model: 'm@x',
    messages: [
      { role: 'user', name: 'n', content: 'one' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'two' },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${'QUJD'.repeat(50)}` } },
          { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'three words here' } },
        ],
      },
      {
        role: 'assistant',
        reasoning_signature: 's',
        tool_calls: [
          {
            id: 'c',
            type: 'function',
            function: { name: 'f', arguments: '{"name":"four","n":4111111111111111,"k":5}' },
          },
        ],
      },
    ],
    metadata: { name: 'five' },
    user: 'six',
  };
  const same = mapTexts(request, (text) => {
    seen.push(text);
    return text;
  });
  assert.equal(same, request, 'what does not change stays the same value');
  assert.deepEqual(seen, ['one', 'two', 'three words here', 'four', '4111111111111111', 'five', 'six']);
  const changed = mapTexts(request, (text) => (text.startsWith('4') ? '[card]' : text));
  assert.deepEqual(JSON.parse(changed.messages[2]?.tool_calls?.[0]?.function.arguments ?? ''), {
    name: 'four',
    n: '[card]',
    k: 5,
  });
  assert.equal(changed.messages[1], request.messages[1]);
});

test('time grows with the length of a text, whatever it is made of', async () => {
  /** The fastest of three: other work on the machine makes one of them slow, and none fast. */
  const took = async (text: string) => {
    const times: number[] = [];
    for (let count = 0; count < 3; count += 1) {
      const start = performance.now();
      await mask(text);
      times.push(performance.now() - start);
    }
    return Math.min(...times);
  };
  for (const unit of ['a', '1', '1 ', 'a@', 'a.', 'DE89 ', '-----BEGIN PRIVATE KEY-----', '+1', 'eyJ', 'sk-', '(5']) {
    const [short, long] = [unit.repeat(20_000 / unit.length), unit.repeat(160_000 / unit.length)];
    await took(short).catch(() => undefined);
    const before = Math.max(2, await took(short).catch(() => 2));
    const after = await took(long).catch(() => 0);
    assert.ok(after < before * 40, `${JSON.stringify(unit)}: ${before} ms for an eighth of what took ${after} ms`);
  }
});

test('patterns that may take very long are recognised', () => {
  for (const slow of [
    '(a+)+',
    '(a|b)*c',
    '(?:x*y)+',
    '(a{1,3})*',
    '((ab?)c)+',
    '(a)\\1',
    '(?<n>a)\\k<n>',
    '([a-z]+\\d){2,}',
  ]) {
    assert.equal(hasNestedRepetition(slow), true, slow);
  }
  for (const fine of [
    'a+b*',
    '(?:\\d{3}-)+',
    '(abc)+',
    '(a|b)',
    '[(+*)]+',
    '\\(a+\\)',
    '(?:a|b)?c',
    'ORION-\\d{4,8}',
  ]) {
    assert.equal(hasNestedRepetition(fine), false, fine);
  }
});

test('arguments of any depth are checked, escapes included, and stay JSON', () => {
  const replace = (text: string) => (text.includes('secret') || text === '41111111' ? '[out]' : text);
  for (const depth of [1, 1000, 100_000]) {
    const nested = (inside: string) => `${'['.repeat(depth)}${inside}${']'.repeat(depth)}`;
    const given = nested('{"a \\"b":"a s\\u0065cret","n":41111111,"f":41111111.5,"e":1e41111111,"k":"kept\\u0041"}');
    const mapped = mapArguments(given, replace);
    JSON.parse(mapped);
    assert.match(mapped, /"a \\"b":"\[out\]","n":"\[out\]","f":41111111\.5,"e":/);
    assert.equal(mapArguments(nested('"plain"'), replace), nested('"plain"'), 'what does not change stays as it is');
  }
  assert.equal(mapArguments('{"a": "secret', replace), '[out]', 'no JSON');
});
