import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { decodeUtf8, parseJson, parseRequest } from '../../../src/platform/json/parse-json.ts';
import fc from '../../kit/properties.ts';
import { startProcessorTime } from '../../kit/time.ts';

function reasonOf(action: () => unknown): string {
  let reason: unknown;
  assert.throws(action, (error) => {
    assert.ok(error instanceof AppError);
    assert.equal(error.code, 'PARSE_ERROR');
    reason = error.details.reason;
    return typeof reason === 'string' && reason !== '';
  });
  return String(reason);
}

const anyText = fc
  .array(fc.integer({ min: 0, max: 0x10ffff }).filter((point) => point < 0xd800 || point > 0xdfff))
  .map((points) => String.fromCodePoint(...points));

const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);

test('any JSON text up to the depth is read as JSON.parse reads it', () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 20 }), (text) => {
      assert.deepEqual(parseJson(text), JSON.parse(text));
    }),
  );
});

test('any other text is refused exactly where JSON.parse refuses it', () => {
  const pieces = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '"',
    '\\',
    ',',
    ':',
    '1',
    'a',
    'null',
    ' ',
    '"a"',
    '\\"',
    '\ufeff',
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 30 }), fc.integer({ min: 1, max: 40 }), (parts, maxDepth) => {
      const text = parts.join('');
      const expected = outcome(() => JSON.parse(text.startsWith('\ufeff') ? text.slice(1) : text));
      const found = outcome(() => parseJson(text, { maxDepth }));
      if (expected !== undefined && depthOf(expected.value) > maxDepth) assert.equal(found, undefined);
      else assert.deepEqual(found, expected);
    }),
    { numRuns: 1000 },
  );
});

test('B-15: nesting is allowed up to the limit, 128 levels unless said otherwise', () => {
  assert.ok(parseJson(nested(128)));
  assert.equal(
    reasonOf(() => parseJson(nested(129))),
    'it is nested deeper than 128 levels',
  );
  assert.ok(parseJson(nested(3), { maxDepth: 3 }));
  reasonOf(() => parseJson(nested(4), { maxDepth: 3 }));
  reasonOf(() => parseJson('{"a":{"a":[{}]}}', { maxDepth: 3 }));
});

test('B-15: brackets in strings and side by side are no depth', () => {
  const text = JSON.stringify({ text: '[{'.repeat(1000), escaped: `${'\\"[['.repeat(500)}\\`, '{[': nested(300) });
  assert.deepEqual(parseJson(text), JSON.parse(text));
  const wide = JSON.stringify(new Array(5000).fill({ a: [] }));
  assert.deepEqual(parseJson(wide), JSON.parse(wide));
});

test('B-15: text that is all brackets or all backslashes is refused in no time', () => {
  const processorTime = startProcessorTime();
  for (const text of [
    '['.repeat(5_000_000),
    '{"a":'.repeat(1_000_000),
    `${'['.repeat(200)}"${'\\'.repeat(5_000_000)}`,
  ]) {
    reasonOf(() => parseJson(text));
  }
  assert.ok(processorTime() < 3000);
});

test('the reason says where, and never repeats the text', () => {
  assert.equal(
    reasonOf(() => parseJson('')),
    'it is empty',
  );
  assert.equal(
    reasonOf(() => parseJson(' \n')),
    'it is empty',
  );
  assert.equal(
    reasonOf(() => parseJson('{"a":')),
    'it ends too early',
  );
  for (const text of [
    '{"password":hunter2}',
    'hunter2',
    '{"a":1}hunter2',
    '["hunter2\n"]',
    '{hunter2',
    '{"a":"hunter2',
  ]) {
    assert.doesNotMatch(
      reasonOf(() => parseJson(text)),
      /hunter|password/,
    );
  }
  assert.match(
    reasonOf(() => parseJson('{"a":1} x')),
    /position 8/,
  );
});

test('P-22: a member named __proto__ is an own property and changes no prototype', () => {
  const value = parseJson('{"logit_bias":{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}}') as {
    logit_bias: object;
  };
  assert.deepEqual(Object.keys(value.logit_bias), ['__proto__', 'constructor']);
  assert.equal(Object.getPrototypeOf(value.logit_bias), Object.prototype);
  assert.equal(({} as { polluted?: unknown }).polluted, undefined);
  assert.equal((value.logit_bias as { polluted?: unknown }).polluted, undefined);
});

test('one leading byte order mark is skipped, elsewhere it is no JSON', () => {
  assert.equal(parseJson('\ufeff1'), 1);
  reasonOf(() => parseJson('\ufeff\ufeff1'));
  reasonOf(() => parseJson('1\ufeff'));
  assert.equal(parseJson(decodeUtf8(Buffer.from('\ufeff1'))), 1);
});

test('B-17: bytes that are not UTF-8 are refused, all others become their text', () => {
  for (const bytes of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf5, 0x80, 0x80, 0x80]]) {
    assert.equal(
      reasonOf(() => decodeUtf8(Uint8Array.from(bytes))),
      'it is not valid UTF-8',
    );
  }
  fc.assert(
    fc.property(anyText, (text) => {
      const whole = Buffer.from(`xx${text}xx`);
      assert.equal(decodeUtf8(new Uint8Array(whole.buffer, whole.byteOffset + 2, whole.length - 4)), text);
    }),
  );
});

function outcome(action: () => unknown): { value: unknown } | undefined {
  try {
    return { value: action() };
  } catch {
    return undefined;
  }
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

test('DC-1: a request of too many values or members is refused before it is parsed, whatever its strings hold', () => {
  const codeOf = (text: string) => {
    try {
      parseRequest(text, { values: 100, members: 10 });
      return 'taken';
    } catch (error) {
      return error instanceof AppError ? `${error.code} ${error.details.parts ?? ''}` : String(error);
    }
  };
  const members = (count: number) => `{${Array.from({ length: count }, (_, at) => `"a${at}":":,"`).join(', ')}}`;
  const list = (count: number) => `[${Array.from({ length: count }, () => '"\\",[{:"').join(',')}]`;
  assert.equal(codeOf(members(10)), 'taken');
  assert.equal(codeOf(members(11)), 'REQUEST_TOO_COMPLEX members');
  assert.equal(codeOf(list(100)), 'taken');
  assert.equal(codeOf(list(102)), 'REQUEST_TOO_COMPLEX values');
  assert.equal(codeOf(`["${'{,:\\"'.repeat(500)}"]`), 'taken');
  assert.equal(codeOf(`["${'a'.repeat(500)}${'\\\\'.repeat(99)}",${'0,'.repeat(200)}0]`), 'REQUEST_TOO_COMPLEX values');
});
