import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLogger, type LogFields } from '../../../src/platform/log/logger.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

function loggerOf(secrets: () => readonly string[], format: 'json' | 'pretty' = 'json') {
  const lines: string[] = [];
  const output = { write: (line: string) => void lines.push(line), flush: () => undefined };
  return { lines, logger: createLogger({ level: 'info', format, output, clock: createFakeClock(), secrets }) };
}

function logged(secrets: readonly string[], fields: LogFields, message = 'm', format: 'json' | 'pretty' = 'json') {
  const { lines, logger } = loggerOf(() => secrets, format);
  logger.info(fields, message);
  return lines.join('');
}

const alphanumeric = fc.string({ unit: fc.constantFrom(...'abcXYZ0189_-'), minLength: 8, maxLength: 40 });
const punctuated = fc.string({ unit: fc.constantFrom(...'aZ7 "\\/%+&=?#@:;,.\'\n\t'), minLength: 8, maxLength: 24 });
const unicode = fc.string({ unit: fc.constantFrom(...'aéß漢😀ü9', '\u2028', '\u0085'), minLength: 8, maxLength: 24 });
/** Starts and ends with a letter that stands nowhere else, so that no line has it by accident. */
const secretText = fc.oneof(alphanumeric, punctuated, unicode).map((text) => `Q${text}Q`);

const lowerPercent = (secret: string): string =>
  encodeURIComponent(secret).replaceAll(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());

/** The ways in which a secret gets into what somebody logs. */
const carriers: readonly ((secret: string) => unknown)[] = [
  (secret) => secret,
  (secret) => `before${secret}after`,
  (secret) => `x`.repeat(8180) + secret,
  (secret) => secret.repeat(700),
  (secret) => `${encodeURIComponent(secret)} and ${JSON.stringify(secret)}`.repeat(200),
  (secret) => JSON.stringify({ deep: { value: secret } }),
  (secret) => JSON.stringify(JSON.stringify([secret])),
  (secret) => encodeURIComponent(secret),
  lowerPercent,
  (secret) => `https://example.com/?${new URLSearchParams({ q: secret })}`,
  (secret) => new URLSearchParams({ q: secret }),
  (secret) => new URL(`https://example.com/a?q=${encodeURIComponent(secret)}`),
  (secret) => encodeURIComponent(JSON.stringify(secret)),
  (secret) => Buffer.from(secret).toString('base64'),
  (secret) => Buffer.from(`user:${secret}`).toString('base64'),
  (secret) => Buffer.from(`me:${secret}!`).toString('base64url'),
  (secret) => Buffer.from(secret).toString('hex'),
  (secret) => Buffer.from(secret),
  (secret) => new Error(`failed with ${secret}`),
  (secret) => new Error('outer', { cause: new Error(secret) }),
  (secret) => Object.assign(new Error('x'), { query: secret, nested: { secret } }),
  (secret) => new AggregateError([new Error(secret)], 'many'),
  (secret) => ({ [secret]: 1 }),
  (secret) => [[['a', { b: secret }]]],
  (secret) => ({ toJSON: () => ({ inner: secret }) }),
  (secret) => new Map([['k', secret]]),
  (secret) => ['x-header', secret],
  (secret) => Object.create({}, { shown: { enumerable: true, get: () => secret } }),
];

function* stringsIn(value: unknown): Generator<string> {
  if (typeof value === 'string') yield value;
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    yield name;
    yield* stringsIn(member);
  }
}

function assertAbsent(secret: string, text: string): void {
  const encodings = [
    secret,
    JSON.stringify(secret).slice(1, -1),
    encodeURIComponent(secret),
    lowerPercent(secret),
    Buffer.from(secret).toString('hex'),
    String(new URLSearchParams([['', secret]])).slice(1),
  ];
  for (const encoded of encodings) {
    assert.ok(!text.includes(encoded), `${JSON.stringify(secret)} as ${encoded} in ${text.slice(0, 2000)}`);
  }
  for (const [run] of text.matchAll(/[A-Za-z0-9+/_-]{8,}/g)) {
    for (const skipped of [0, 1, 2, 3]) {
      assert.ok(!Buffer.from(run.slice(skipped), 'base64').includes(secret), `${JSON.stringify(secret)} in ${run}`);
    }
  }
}

test('a secret that the program was given is found wherever it stands and however it is encoded', () => {
  const place = fc.record({
    secret: secretText,
    carry: fc.constantFrom(...carriers),
    around: fc.anything({ withDate: true, withMap: true, withSet: true, withTypedArray: true, maxDepth: 3 }),
    path: fc.array(fc.constantFrom('a', 'b', 'list'), { maxLength: 4 }),
  });
  fc.assert(
    fc.property(place, ({ secret, carry, around, path }) => {
      let value = carry(secret);
      for (const step of path) value = step === 'list' ? [1, value, around] : { around, [step]: value };
      const line = logged([secret, 'other-secret'], { value, around }, `message`);
      assertAbsent(secret, line);
      assert.equal(line.indexOf('\n'), line.length - 1);
      for (const text of stringsIn(JSON.parse(line))) assertAbsent(secret, text);
    }),
    { numRuns: 1500 },
  );
});

test('a secret is found in the message and in the format for people', () => {
  fc.assert(
    fc.property(secretText, fc.constantFrom(...carriers), (secret, carry) => {
      const carried = carry(secret);
      const message = typeof carried === 'string' ? carried : 'm';
      assertAbsent(secret, logged([secret], {}, message));
      assertAbsent(secret, logged([secret], { carried }, `m ${message}`, 'pretty'));
    }),
    { numRuns: 500 },
  );
});

test('a secret is found in the fields of a child', () => {
  const { lines, logger } = loggerOf(() => ['s3cret-value']);
  logger.child({ id: 'x s3cret-value' }).child({ n: 1 }).info({ m: 2 }, 'hello');
  assert.match(lines.join(''), /"id":"x \[redacted\]","n":1,"m":2,"msg":"hello"/);
});

test('secrets that overlap in a text leave no half behind, and a numeric one is found in a number', () => {
  assert.ok(!/abcdef|ghijkl|mnopqr/.test(logged(['abcdefghijkl', 'ghijklmnopqr'], { v: '-abcdefghijklmnopqr-' })));
  assert.deepEqual(JSON.parse(logged(['84736251'], { v: 84736251, w: 84736250 })).v, '[redacted]');
  assert.deepEqual(JSON.parse(logged(['84736251'], { v: 84736251, w: 84736250 })).w, 84736250);
});

test('where a long text is cut, no part of a secret is left standing', () => {
  const secret = 'Q0123456789abcdefghijklmnopqrstuvwxyzQ';
  for (let offset = 0; offset <= 100; offset += 1) {
    const straddling = 'x'.repeat(8110 + offset) + secret + 'y'.repeat(9000);
    assert.ok(!logged([secret], { straddling }).includes('Q01'), `at ${offset}`);
    const many = 'x'.repeat(offset) + `${secret} `.repeat(1000);
    assert.ok(!logged([secret], { many }).includes('Q01'), `many at ${offset}`);
    const address = `${'x'.repeat(8110 + offset)} http://user:Q0123456789012345678901234567890@host/`;
    assert.ok(!logged([], { address }).includes('Q01'), `in a URL at ${offset}`);
  }
});

test('after a reload the new secrets are hidden', () => {
  let secrets: readonly string[] = ['first-secret'];
  const { lines, logger } = loggerOf(() => secrets);
  logger.info({}, 'first-secret');
  secrets = ['second-secret'];
  logger.info({}, 'second-secret');
  assert.equal(lines.length, 2);
  assert.ok(!lines.join('').includes('-secret'));
});

test('values are hidden by the names of their members at any depth, however the names are written', () => {
  const names = ['authorization', 'Proxy-Authorization', 'cookie', 'Set-Cookie', 'password', 'newPassword', 'token'];
  names.push(
    'access_token',
    'refreshToken',
    'API_KEY',
    'x-api-key',
    'apiKey',
    'client_secret',
    'webhook-secret',
    'pwd',
  );
  names.push('privateKey', 'credentials', 'mfaTicket', 'recoveryCodes', 'master_key', 'otpauth_url', 'exchange_code');
  for (const name of names) {
    const line = logged([], { a: [{ b: { [name]: 'zq-hidden', c: 1 } }], [name]: { deep: ['zq-hidden'] } });
    assert.ok(!line.includes('zq-hidden'), name);
    assert.equal(JSON.parse(line).a[0].b.c, 1);
  }
});

test('counts, types and flags that only sound like secrets stay readable', () => {
  const fields = { max_tokens: 100, usage: { prompt_tokens: 5 }, tokenType: 'Bearer', passwordSet: true, token: null };
  const { max_tokens, usage, tokenType, passwordSet, token } = JSON.parse(logged([], fields));
  assert.deepEqual({ max_tokens, usage, tokenType, passwordSet, token }, fields);
  const text = 'used total_tokens=5 of max_tokens: 10 at 10:30, code=ENOENT';
  assert.ok(logged([], {}, text).includes(text));
});

test('B-29: credentials in free text, URLs and query strings are hidden though nobody registered them', () => {
  const texts = [
    'Authorization: Bearer zqHidden123',
    'sent bearer   zqHidden123 to upstream',
    'Authorization: Basic enFIaWRkZW4xMjM6eA==  zqHidden123',
    'Cookie: a=zqHidden123; b=zqHidden123',
    '{"password":"zqHidden123 zqHidden123"}',
    String.raw`{\"password\": \"zqHidden123 zqHidden123\"}`,
    "api_key='zqHidden123'",
    'client_secret=zqHidden123&x=1',
    'GET /acp?token=zqHidden123&sessionId=1',
    '/cb?code=zqHidden123&state=1',
    '/cb?access%5Ftoken=zqHidden123',
    'postgres://user:zqHidden123@db.example/x',
    'https://zqHidden123@example.com/',
    'redis://:zqHidden123@127.0.0.1',
    'key tsk_zqHidden123456 used',
    'token tpt_zqHidden123456 used',
    '/api/bridge/runners/trk_zqHidden123456',
    'agt_zqHidden123456',
    'signed with whs_zqHidden123456',
    'sk-zqHidden123456789',
    'body="{password=zqHidden123}"',
    `eyJhbGciOiJIUzI1NiJ9.${Buffer.from('zqHidden123').toString('base64url')}.zqHidden123`,
  ];
  for (const text of texts) {
    assert.ok(!logged([], {}, text).includes('zqHidden123'), text);
    assert.ok(!logged([], { nested: [new Error(text)] }).includes('zqHidden123'), text);
  }
  assert.match(logged([], {}, 'GET /acp?token=zq&sessionId=s1'), /GET \/acp\?token=\[redacted\]&sessionId=s1/);
  assert.match(logged([], {}, 'postgres://u:p@db.example/x'), /postgres:\/\/\[redacted\]@db\.example\/x/);
});

test('raw header lists are understood as names and values', () => {
  const line = logged([], { rawHeaders: ['Host', 'example.com', 'Cookie', 'zqHidden', 'X-Api-Key', 'zqHidden'] });
  assert.ok(!line.includes('zqHidden'));
  assert.ok(line.includes('example.com'));
});
