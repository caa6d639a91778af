import assert from 'node:assert/strict';
import { test } from 'node:test';
import jsqr from 'jsqr';
import QRCode from 'qrcode';
import { matchTotp } from '../../../src/accounts/mfa/second-factor.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const STEP_MS = 30_000;

test('A-36: the vectors of RFC 6238 for SHA-1 match, in their last six digits', async () => {
  const secret = Buffer.from('12345678901234567890', 'ascii');
  for (const [seconds, code] of [
    [59, '94287082'],
    [1111111109, '07081804'],
    [1111111111, '14050471'],
    [1234567890, '89005924'],
    [2000000000, '69279037'],
    [20000000000, '65353130'],
  ] as const) {
    assert.equal(await matchTotp(secret, code.slice(2), seconds * 1000), Math.floor(seconds / 30), String(seconds));
  }
});

test('A-37: a provision gives a secret of 160 bits and an otpauth address; a second one replaces the unverified one', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const { status, body } = await accounts.post('mfa/totp/provision', {}, { token: ann.token });
  assert.equal(status, 200);
  assert.match(body.secret, /^[A-Z2-7]{32}$/);
  const uri = new URL(body.otpauth_url);
  assert.equal(`${uri.protocol}//${uri.host}`, 'otpauth://totp');
  assert.equal(decodeURIComponent(uri.pathname), '/Trestle:ann@example.org');
  const parameters = Object.fromEntries(uri.searchParams);
  assert.deepEqual(parameters, {
    secret: body.secret,
    issuer: 'Trestle',
    algorithm: 'SHA1',
    digits: '6',
    period: '30',
  });
  assert.deepEqual([body.mfa.totpEnabled, body.mfa.totpPending], [false, true]);
  const named = await accounts.post('mfa/totp/provision', { issuer: 'Acme: x\n', account: 'me' }, { token: ann.token });
  assert.deepEqual([named.body.issuer, named.body.account], ['Acme x', 'me']);
  assert.notEqual(named.body.secret, body.secret);
  const late = await accounts.post('mfa/totp/verify', { token: body.mfaToken, code: '123456' }, { token: ann.token });
  assert.equal(late.body.error, 'invalid_mfa_ticket', 'the first provision is void');
  await accounts.enrol(ann);
});

test('A-37: once it is verified, nothing replaces it', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  const again = await accounts.post('mfa/totp/provision', {}, { token: enrolled.token });
  assert.deepEqual([again.status, again.body.error], [400, 'mfa_already_enabled']);
});

test('A-38: a provision alone changes nothing, and a wrong code neither; a right one does', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  await accounts.post('mfa/totp/provision', {}, { token: ann.token });
  const status = async (token: string) => (await accounts.get('mfa/status', { token })).body;
  assert.equal((await status(ann.token)).enabled, false);
  assert.equal((await accounts.login(ann)).body.mfaRequired, false);
  const wrong = await accounts.post('mfa/totp/verify', { code: '000000' }, { token: ann.token });
  assert.deepEqual([wrong.status, wrong.body.error], [401, 'invalid_mfa_code']);
  assert.equal((await status(ann.token)).enabled, false);
  const enrolled = await accounts.enrol(ann);
  const { enabled, recoveryCodesLeft, user } = await status(enrolled.token);
  assert.deepEqual([enabled, recoveryCodesLeft, user.mfaEnabled], [true, 10, true]);
  assert.equal((await accounts.login(ann)).body.mfaRequired, true);
});

test('A-39: a code works once, also for ten logins at the same moment, and that of the enrolment is used', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code() })).body.error, 'invalid_mfa_code');
  await accounts.clock.advance(STEP_MS);
  const tickets = await Promise.all(Array.from({ length: 4 }, async () => (await accounts.login(ann)).body.mfa_ticket));
  const code = enrolled.code();
  const answers = await Promise.all(tickets.map((mfa_ticket) => accounts.post('mfa/verify', { mfa_ticket, code })));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401, 401, 401]);
  assert.equal((await accounts.login(ann, { totpCode: code })).status, 401);
});

test('A-40: the code of an older step is refused once a newer one was accepted', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(4 * STEP_MS);
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code(1) })).status, 200);
  for (const steps of [1, 0, -1]) {
    assert.equal((await accounts.login(ann, { totpCode: enrolled.code(steps) })).status, 401, String(steps));
  }
  await accounts.clock.advance(STEP_MS);
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code() })).status, 401, 'the same step, now on time');
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code(1) })).status, 200);
});

test('A-41: one step early or late is accepted, two are not', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  for (const [steps, status] of [
    [-2, 401],
    [2, 401],
    [-1, 200],
    [1, 200],
  ] as const) {
    await accounts.clock.advance(10 * STEP_MS);
    assert.equal((await accounts.login(ann, { totpCode: enrolled.code(steps) })).status, status, String(steps));
  }
});

test('A-42: five wrong codes lock the second factor for five minutes, then longer; a search takes years', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  const locks = [];
  for (let round = 0; round < 6; round += 1) {
    await accounts.clock.advance(2 * STEP_MS);
    for (let guess = 0; guess < 5; guess += 1) {
      const answer = await accounts.login(ann, { totpCode: wrong(enrolled.code(), guess) });
      assert.equal(answer.body.error, 'invalid_mfa_code');
    }
    const locked = await accounts.login(ann, { totpCode: enrolled.code() });
    assert.deepEqual([locked.status, locked.body.error], [429, 'mfa_challenge_locked'], 'the right one as well');
    const wait = Date.parse(locked.body.retryAt) - accounts.clock.now();
    locks.push(wait / 60_000);
    await accounts.clock.advance(wait);
  }
  assert.deepEqual(locks, [5, 10, 20, 40, 60, 60]);
  // Three codes are right at any moment; half of all must be tried on average.
  const guessesPerDay = (24 / (60 / 60)) * 5;
  assert.ok(1_000_000 / 3 / 2 / guessesPerDay > 100, 'days until one in two attackers has guessed it');
  const { user } = (await accounts.get('mfa/status', { token: enrolled.token })).body;
  assert.equal(user.mfa.totpLockedUntil, undefined, 'it opens by itself');
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code() })).status, 200);
});

test('A-42: a burst of parallel guesses gets five tries', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(2 * STEP_MS);
  const tickets = [];
  for (let index = 0; index < 5; index += 1) tickets.push((await accounts.login(ann)).body.mfa_ticket);
  const right = enrolled.code();
  const guesses = tickets.flatMap((mfa_ticket) =>
    [1, 2, 3, 4].map((guess) => ({ mfa_ticket, code: wrong(right, guess) })),
  );
  const answers = await Promise.all(guesses.map((guess) => accounts.post('mfa/verify', guess)));
  assert.equal(answers.filter(({ body }) => body.error === 'invalid_mfa_code').length, 5);
  assert.equal(answers.filter(({ body }) => body.error === 'mfa_challenge_locked').length, 15);
});

test('A-43: spaces and full-width digits are read as digits; anything else is 400, and no try', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  const spellings: readonly ((code: string) => string)[] = [
    (code) => `${code.slice(0, 3)} ${code.slice(3)}`,
    (code) => ` ${code}\t`,
    (code) => [...code].map((digit) => String.fromCodePoint(0xff10 + Number(digit))).join(''),
  ];
  for (const spell of spellings) {
    await accounts.clock.advance(2 * STEP_MS);
    assert.equal((await accounts.login(ann, { totpCode: spell(enrolled.code()) })).status, 200);
  }
  await accounts.clock.advance(2 * STEP_MS);
  const right = enrolled.code();
  for (const totpCode of [
    `${right}0`,
    right.slice(1),
    `0${right}`,
    'abcdef',
    '',
    '12345x',
    '1'.repeat(500),
    Number(right),
  ]) {
    const answer = await accounts.login(ann, { totpCode });
    assert.deepEqual([answer.status, answer.body.error], [400, 'invalid_request'], String(totpCode));
  }
  assert.equal((await accounts.login(ann, { totpCode: right })).status, 200, 'none of them was a try');
});

test('A-43: a code with leading zeros is a code of six digits', async () => {
  const secret = Buffer.from('12345678901234567890', 'ascii');
  const { Secret, TOTP } = await import('otpauth');
  const totp = new TOTP({ secret: new Secret({ buffer: Uint8Array.from(secret).buffer }) });
  let step = 0;
  while (!totp.generate({ timestamp: step * STEP_MS }).startsWith('00')) step += 1;
  const code = totp.generate({ timestamp: step * STEP_MS });
  assert.equal(await matchTotp(secret, code, step * STEP_MS), step);
});

test('A-44: a server clock that jumps opens no window: what was used stays used, and codes wait for the clock', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(4 * STEP_MS);
  const used = enrolled.code();
  assert.equal((await accounts.login(ann, { totpCode: used })).status, 200);
  accounts.clock.stepWall(-90_000);
  assert.equal((await accounts.login(ann, { totpCode: used })).status, 401, 'not again after a step back');
  assert.equal(
    (await accounts.login(ann, { totpCode: enrolled.code() })).status,
    401,
    'older than the last one: refused',
  );
  accounts.clock.stepWall(180_000);
  assert.equal(
    (await accounts.login(ann, { totpCode: enrolled.code() })).status,
    200,
    'ahead: the code of then is taken',
  );
  accounts.clock.stepWall(-90_000);
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code(1) })).status, 401);
  await accounts.clock.advance(90_000 + STEP_MS);
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code() })).status, 200, 'once the clock has caught up');
});

test('A-45: switching it off needs password and code, not a session alone, and its owner gets a mail', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  assert.equal((await accounts.post('mfa/disable', {}, { token: ann.token })).body.error, 'mfa_not_enabled');
  const { token, code, recoveryCodes } = await accounts.enrol(ann);
  const password = ann.password;
  await accounts.clock.advance(2 * STEP_MS);
  for (const given of [
    {},
    { password },
    { code: code() },
    { password: 'not the password', code: code() },
    { password, code: wrong(code(), 0) },
    { password, recoveryCode: 'wrong' },
  ]) {
    const answer = await accounts.post('mfa/disable', given, { token });
    assert.deepEqual([answer.status, answer.body.error], [401, 'reauthentication_required'], JSON.stringify(given));
  }
  assert.equal((await accounts.get('mfa/status', { token })).body.enabled, true);
  const off = await accounts.post('mfa/disable', { password, recoveryCode: recoveryCodes[0] }, { token });
  assert.deepEqual([off.status, off.body.message, off.body.user.mfaEnabled], [200, 'mfa_disabled', false]);
  assert.equal((await accounts.login(ann)).body.mfaRequired, false);
  await accounts.eventually(async () =>
    (await accounts.mails(ann.email)).some((mail) => mail.includes('switched off')),
  );
});

test('A-46: the secret is sealed in the store, and shown at provision only', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const { secret, token } = await accounts.enrol(ann);
  const { query } = accounts.database;
  const rows = await query.selectFrom('credentials').selectAll().where('kind', '=', 'totp').execute();
  assert.match(rows[0]?.value ?? '', /^v1\./);
  const hex = Buffer.from(JSON.stringify(rows)).toString('latin1');
  assert.ok(!hex.includes(secret));
  for (const path of ['session', 'mfa/status', 'sessions']) {
    assert.ok(!(await accounts.get(path, { token })).text.includes(secret), path);
  }
  assert.ok(!accounts.log().includes(secret));
});

test('A-47: ten recovery codes, each for one login, stored as digests; new ones end the old', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const { recoveryCodes, token, code } = await accounts.enrol(ann);
  assert.equal(new Set(recoveryCodes).size, 10);
  const stored = JSON.stringify(await accounts.database.query.selectFrom('credentials').selectAll().execute());
  for (const each of recoveryCodes) assert.ok(!stored.includes(each) && !stored.includes(each.replaceAll('-', '')));
  const use = async (recoveryCode: string | undefined) => {
    const { mfa_ticket } = (await accounts.login(ann)).body;
    return accounts.post('mfa/verify', { mfa_ticket, recoveryCode });
  };
  const [first, second, third] = recoveryCodes;
  const used = await use(first);
  assert.equal(used.status, 200);
  assert.equal((await use(first)).status, 401);
  assert.equal((await use(second?.toUpperCase().replaceAll('-', ' '))).status, 200, 'copied from paper');
  const left = async () => (await accounts.get('mfa/status', { token })).body.recoveryCodesLeft;
  assert.equal(await left(), 8);
  const race = await Promise.all([use(third), use(third), use(third)]);
  assert.equal(race.filter(({ status }) => status === 200).length, 1);
  await accounts.clock.advance(2 * STEP_MS);
  const bare = await accounts.post('mfa/recovery-codes', {}, { token });
  assert.equal(bare.body.error, 'reauthentication_required');
  const renewed = await accounts.post('mfa/recovery-codes', { password: ann.password, code: code() }, { token });
  assert.equal(renewed.body.recoveryCodes.length, 10);
  assert.equal((await use(recoveryCodes[5])).status, 401);
  assert.equal((await use(renewed.body.recoveryCodes[5])).status, 200);
});

test('A-47: one code renews the recovery codes once, also for three at the same moment', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const { token, code } = await accounts.enrol(ann);
  await accounts.clock.advance(2 * STEP_MS);
  const given = { password: ann.password, code: code() };
  const race = await Promise.all([1, 2, 3].map(() => accounts.post('mfa/recovery-codes', given, { token })));
  assert.deepEqual(race.map(({ status, body }) => `${status} ${body.error ?? ''}`).sort(), [
    '200 ',
    '401 reauthentication_required',
    '401 reauthentication_required',
  ]);
  const [kept] = race.find(({ status }) => status === 200)?.body.recoveryCodes ?? [];
  const { mfa_ticket } = (await accounts.login(ann)).body;
  assert.equal((await accounts.post('mfa/verify', { mfa_ticket, recoveryCode: kept })).status, 200);
});

test('A-51: the QR code is drawn here, holds the address, and is never stored by a browser', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const answer = await accounts.post('mfa/totp/provision', {}, { token: ann.token });
  assert.equal(answer.headers.get('cache-control'), 'no-store');
  const { qr, otpauth_url: uri } = answer.body;
  assert.match(qr, /^data:image\/svg\+xml;base64,/);
  const svg = Buffer.from(qr.split(',')[1], 'base64').toString('utf8');
  assert.doesNotMatch(svg.replace('http://www.w3.org/2000/svg', ''), /https?:/);
  const expected = await QRCode.toString(uri, { type: 'svg', errorCorrectionLevel: 'M' });
  assert.equal(svg, expected);
  assert.equal(readModules(svg), uri);
});

/** The SVG is one row of strokes per line of modules: painted into pixels, a scanner reads it. */
function readModules(svg: string): string | undefined {
  const size = Number(/viewBox="0 0 (\d+) /.exec(svg)?.[1]);
  const scale = 4;
  const pixels = new Uint8ClampedArray((size * scale) ** 2 * 4).fill(255);
  const [, path = ''] = /<path stroke="#000000" d="([^"]+)"/.exec(svg) ?? [];
  let x = 0;
  let y = 0;
  for (const [, command, numbers = ''] of path.matchAll(/([Mmh])([^Mmh]*)/g)) {
    const [first = 0, second = 0] = numbers
      .trim()
      .split(/[\s,]+/)
      .map(Number);
    if (command === 'M') [x, y] = [first, Math.floor(second)];
    else if (command === 'm') [x, y] = [x + first, y + second];
    else {
      for (let column = x * scale; column < (x + first) * scale; column += 1) {
        for (let row = y * scale; row < (y + 1) * scale; row += 1)
          pixels.fill(0, (row * size * scale + column) * 4, (row * size * scale + column) * 4 + 3);
      }
      x += first;
    }
  }
  const scan = jsqr as unknown as (data: Uint8ClampedArray, width: number, height: number) => { data: string } | null;
  return scan(pixels, size * scale, size * scale)?.data;
}

function wrong(code: string, offset: number): string {
  return String((Number(code) + 1 + offset * 7) % 1_000_000).padStart(6, '0');
}
