import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { GOOD_PASSWORD } from '../../kit/accounts/accounts-client.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';
import { startProcessorTime } from '../../kit/time.ts';

const accounts = await startAccounts({ after });
const ann = await accounts.loggedIn('Ann');
let address = 0;
/** Every call from another address, so that no limit hides the answer. */
const from = () => {
  address += 1;
  return `10.${address >> 16}.${(address >> 8) & 255}.${address & 255}`;
};

const STRANGE_ADDRESSES = [
  'a@b.c\r\nBcc: victim@example.org',
  'a@b.c\nBcc: victim@example.org',
  '"a\r\nBcc: x"@example.org',
  'a@example.org, b@example.org',
  'Ann <a@example.org>',
  'a@example.org>',
  'a b@example.org',
  'a@example',
  '@example.org',
  'a@',
  'a..b@example.org',
  '.a@example.org',
  'a@-example.org',
  'a@exa_mple.org',
  'a@[127.0.0.1]',
  'a@127.0.0.1',
  'a@example.org\0',
  `${'a'.repeat(65)}@example.org`,
  `a@${'b'.repeat(64)}.org`,
  `${'a'.repeat(60)}@${'b.'.repeat(150)}org`,
  'ａ@example.org',
  'ann@ｅxample.org',
  'ann@example。org',
  'ann@exa\u00admple.org',
  'ann@exa\u200bmple.org',
  'ann@exаmple.org',
  'ann@ехаmрlе.org',
  'ann@аррӏе.com',
  'ann@xn--80ak6aa92e.com',
  'ann@e\u212aample.org',
  'änn@example.org',
  '',
];

test('A-12: what is no plain address is refused, line breaks above all, and no mail leaves', async () => {
  const before = (await accounts.mails()).length;
  for (const email of STRANGE_ADDRESSES) {
    const answer = await accounts.post('register/send', { email }, { from: from() });
    assert.deepEqual([answer.status, answer.body.error], [400, 'invalid_email'], JSON.stringify(email));
  }
  assert.equal((await accounts.mails()).length, before);
});

test('A-12: addresses made to keep a matcher busy are refused immediately', async () => {
  const processorTime = startProcessorTime();
  for (const email of [`${'a'.repeat(8000)}!`, `${'a.'.repeat(4000)}@`, `a@${'a-'.repeat(4000)}`, '@'.repeat(8000)]) {
    const answer = await accounts.post('register/send', { email }, { from: from() });
    assert.equal(answer.status, 400);
  }
  assert.ok(processorTime() < 2000);
});

const INJECTIONS = [
  "' OR '1'='1",
  "'; DROP TABLE users; --",
  '" OR ""="',
  "admin'--",
  '1); DELETE FROM sessions; --',
  "' UNION SELECT * FROM users --",
  '{"$ne": null}',
  '$where: 1 == 1',
  '%27%20OR%201=1',
  '\\x27 OR 1=1',
  'Robert\u2019); DROP TABLE users;--',
];

test('A-18: statements in any string field are text like any other', async () => {
  const users = await accounts.database.query.selectFrom('users').selectAll().execute();
  for (const text of INJECTIONS) {
    const calls = [
      accounts.post('login', { identifier: text, password: text, totpCode: '123456' }, { from: from() }),
      accounts.post('register/verify', { email: `${text}@example.org`, code: text }, { from: from() }),
      accounts.post('register', { name: text, email: text, password: text, code: text }, { from: from() }),
      accounts.post('mfa/verify', { mfa_ticket: text, recoveryCode: text }, { from: from() }),
      accounts.post('token/refresh', { refresh_token: text }, { from: from() }),
      accounts.post('token/exchange', { exchange_code: text }, { from: from() }),
      accounts.post('password/forgot', { email: text }, { from: from() }),
      accounts.post('password/forgot/confirm', { token: text, password: text }, { from: from() }),
      accounts.call('DELETE', `sessions/${encodeURIComponent(text)}`, { token: ann.token }),
      accounts.get('session', { headers: { authorization: 'Bearer x', 'user-agent': 'x' } }),
    ];
    for (const { status } of await Promise.all(calls)) assert.ok(status >= 200 && status < 500 && status !== 201, text);
  }
  const now = await accounts.database.query.selectFrom('users').selectAll().execute();
  assert.deepEqual(now, users);
  assert.equal((await accounts.get('session', { token: ann.token })).status, 200);
});

test('A-18: a name may hold such text, and is stored as it is', async () => {
  const email = 'bobby.tables@example.org';
  await accounts.post('register/send', { email }, { from: from() });
  const name = "Robert'); DROP TABLE users;--";
  const code = await accounts.mailedCode(email);
  const { body } = await accounts.post('register', { name, email, password: GOOD_PASSWORD, code });
  assert.equal(body.user.name, name);
});

test('A-19: a value of another type is 400 and says where, in every field', async () => {
  const values: readonly unknown[] = [{ $ne: 1 }, ['a'], 1, true, null, { toString: 'x' }];
  const bodies: readonly (readonly [string, Readonly<Record<string, unknown>>])[] = [
    ['register/send', { email: 'x' }],
    ['register/verify', { email: 'x', code: 'x' }],
    ['register', { name: 'x', email: 'x', password: 'x', code: 'x', verificationToken: 'x' }],
    ['login', { identifier: 'x', account: 'x', username: 'x', email: 'x', password: 'x', totpCode: 'x' }],
    ['mfa/verify', { mfa_ticket: 'x', mfaTicket: 'x', mfaToken: 'x', code: 'x', totpCode: 'x', recoveryCode: 'x' }],
    ['token/exchange', { exchange_code: 'x' }],
    ['token/refresh', { refresh_token: 'x' }],
    ['refresh', { refresh_token: 'x' }],
    ['mfa/totp/provision', { issuer: 'x', account: 'x' }],
    ['mfa/totp/verify', { token: 'x', code: 'x' }],
    ['mfa/disable', { password: 'x', code: 'x', recoveryCode: 'x' }],
    ['mfa/recovery-codes', { password: 'x', code: 'x' }],
    ['password/reset', { email: 'x' }],
    ['password/reset/confirm', { token: 'x', password: 'x' }],
    ['password/change', { currentPassword: 'x', newPassword: 'x' }],
    ['password/forgot', { email: 'x' }],
    ['password/forgot/confirm', { token: 'x', password: 'x' }],
  ];
  for (const [path, body] of bodies) {
    for (const field of Object.keys(body)) {
      for (const value of values) {
        const answer = await accounts.post(path, { ...body, [field]: value }, { token: ann.token, from: from() });
        assert.deepEqual([answer.status, answer.body.error], [400, 'invalid_request'], `${path} ${field}`);
        assert.equal(answer.body.details[0].path, `/${field}`);
      }
    }
    for (const text of ['[]', '"x"', '1', 'null', '{', '']) {
      const answer = await accounts.call('POST', path, { text, token: ann.token, from: from() });
      const mayBeEmpty = text === '' && ['mfa/totp/provision', 'password/reset'].includes(path);
      assert.ok(mayBeEmpty ? answer.status < 300 : answer.status === 400, `${path} ${text}: ${answer.text}`);
    }
  }
});

test('a credential in the address is refused on every kind of route, and never echoed', async () => {
  for (const [method, path] of [
    ['POST', 'login?password=hunter2hunter2'],
    ['POST', 'register?code=123456'],
    ['GET', 'session?access_token=abcdefgh'],
    ['GET', `session?xc_session=${ann.token}`],
    ['POST', 'token/refresh?refresh_token=abc'],
  ] as const) {
    const answer = await accounts.call(method, path, { token: ann.token, ...(method === 'POST' ? { body: {} } : {}) });
    assert.deepEqual([answer.status, answer.body.error], [400, 'credentials_in_query'], path);
    assert.ok(!answer.text.includes('hunter2') && !answer.text.includes(ann.token));
  }
});
