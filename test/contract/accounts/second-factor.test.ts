import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { createRecoveryCodes, recoveryCodeHash } from '../../../src/accounts/mfa/second-factor.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';

const STEP_MS = 30_000;

const codeOf = (accounts: RunningAccounts, secret: string) =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: accounts.clock.now() });

/** Six digits that are right neither now nor a step early or late. */
function wrong(...right: readonly string[]): string {
  return ['111111', '222222', '333333', '444444'].find((code) => !right.includes(code)) ?? '';
}

test('what happens to a second factor is in the audit log, under the name of its owner', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await accounts.loggedIn('Ann');
  const { token, code, recoveryCodes } = await accounts.enrol(ann);
  const { password } = ann;
  const bad = () => wrong(code(-1), code(), code(1));

  await accounts.clock.advance(2 * STEP_MS);
  await accounts.post('mfa/recovery-codes', { password, code: code() }, { token });
  const { mfa_ticket } = (await accounts.login(ann)).body;
  await accounts.post('mfa/verify', { mfa_ticket, recoveryCode: recoveryCodes[0] });
  for (let guess = 0; guess < 4; guess += 1) await accounts.login(ann, { totpCode: bad() });
  await accounts.login(ann, { totpCode: code() });
  await accounts.clock.advance(5 * 60_000);
  await accounts.clock.advance(2 * STEP_MS);
  assert.equal((await accounts.post('mfa/disable', { password, code: code() }, { token })).status, 200);

  const entries = (await auditOf(accounts, admin)).filter(({ event }) => event.startsWith('mfa.'));
  assert.deepEqual(entries.map(({ event }) => event).reverse(), [
    'mfa.enabled',
    'mfa.recovery_codes_renewed',
    // The old recovery code, and four wrong codes: that makes five.
    'mfa.failed',
    'mfa.failed',
    'mfa.failed',
    'mfa.failed',
    'mfa.failed',
    'mfa.locked',
    'mfa.refused',
    'mfa.disabled',
  ]);
  for (const { event, actor, subject } of entries) assert.deepEqual([actor, subject], [ann.id, ann.id], event);
  const locked = entries.find(({ event }) => event === 'mfa.locked')?.details ?? {};
  assert.deepEqual(Object.keys(locked), ['until']);
});

test('a recovery code that was used is in the audit log', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await accounts.loggedIn('Ann');
  const { recoveryCodes } = await accounts.enrol(ann);
  const { mfa_ticket } = (await accounts.login(ann)).body;
  assert.equal((await accounts.post('mfa/verify', { mfa_ticket, recoveryCode: recoveryCodes[0] })).status, 200);
  const [entry] = await auditOf(accounts, admin, 'event=mfa.recovery_code_used');
  assert.deepEqual([entry?.actor, entry?.subject], [ann.id, ann.id]);
});

test('A-42: a user who is locked out sees for how many seconds', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const { code } = await accounts.enrol(ann);
  await accounts.clock.advance(2 * STEP_MS);
  for (let guess = 0; guess < 5; guess += 1) {
    await accounts.login(ann, { totpCode: wrong(code(-1), code(), code(1)) });
  }
  const locked = await accounts.login(ann, { totpCode: code() });
  assert.deepEqual([locked.status, locked.headers.get('retry-after')], [429, '300']);
  await accounts.clock.advance(299_001);
  assert.equal((await accounts.login(ann, { totpCode: code() })).headers.get('retry-after'), '1');
});

test('A-46: a sealed secret opens for its owner alone: moved to somebody else it lets nobody in', async (t) => {
  const accounts = await startAccounts(t);
  const [ann, ben] = [await accounts.loggedIn('Ann'), await accounts.loggedIn('Ben')];
  const { code } = await accounts.enrol(ann);
  await accounts.enrol(ben);
  const { query } = accounts.database;
  const { value } = await query
    .selectFrom('credentials')
    .select('value')
    .where('id', '=', `totp_${ann.id}`)
    .executeTakeFirstOrThrow();
  await query.updateTable('credentials').set({ value }).where('id', '=', `totp_${ben.id}`).execute();
  await accounts.clock.advance(2 * STEP_MS);
  const answer = await accounts.login(ben, { totpCode: code() });
  assert.ok(answer.status >= 400 && answer.body.token === undefined, String(answer.status));
  assert.equal((await accounts.login(ann, { totpCode: code() })).status, 200);
});

test('A-38: the token of a provision is good for whom it was made, and for nobody else', async (t) => {
  const accounts = await startAccounts(t);
  const [ann, ben] = [await accounts.loggedIn('Ann'), await accounts.loggedIn('Ben')];
  const provision = async ({ token }: { readonly token: string }) =>
    (await accounts.post('mfa/totp/provision', {}, { token })).body;
  const [ofAnn, ofBen] = [await provision(ann), await provision(ben)];
  const code = codeOf(accounts, ofAnn.secret);
  const verify = (token: string) => accounts.post('mfa/totp/verify', { token, code }, { token: ann.token });
  assert.equal((await verify(ofBen.mfaToken)).body.error, 'invalid_mfa_ticket');
  assert.equal((await verify('nothing')).body.error, 'invalid_mfa_ticket');
  assert.equal((await verify(ofAnn.mfaToken)).status, 200);
});

test('a code without a provision switches nothing on', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const answer = await accounts.post('mfa/totp/verify', { code: '123456' }, { token: ann.token });
  assert.deepEqual([answer.status, answer.body.error], [401, 'invalid_mfa_code']);
});

test('recovery codes are renewed only where there is a second factor', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const given = { password: ann.password, code: '123456' };
  const answer = await accounts.post('mfa/recovery-codes', given, { token: ann.token });
  assert.equal(answer.body.error, 'mfa_not_enabled');
});

test('A-37: a label is trimmed, cut at 100 characters, and never empty', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const label = async (given: object) => {
    const { issuer, account } = (await accounts.post('mfa/totp/provision', given, { token: ann.token })).body;
    return [issuer, account];
  };
  assert.deepEqual(await label({ issuer: '  Acme  ', account: '\u0000:' }), ['Acme', ann.email]);
  assert.deepEqual(await label({ issuer: '😀'.repeat(101), account: 'me' }), ['😀'.repeat(100), 'me']);
});

test('the owner of a second factor gets a mail when it is switched on, and when its recovery codes are new', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const { token, code } = await accounts.enrol(ann);
  const told = (words: string) => async () => (await accounts.mails(ann.email)).some((mail) => mail.includes(words));
  await accounts.eventually(told('switched on'));
  await accounts.clock.advance(2 * STEP_MS);
  await accounts.post('mfa/recovery-codes', { password: ann.password, code: code() }, { token });
  await accounts.eventually(told('New recovery codes'));
});

test('A-47: recovery codes are ten times six groups of four, without letters that look like others', () => {
  const codes = createRecoveryCodes(systemRandomness);
  assert.equal(codes.length, 10);
  for (const code of codes) assert.match(code, /^[0-9a-hjkmnp-tv-z]{4}(-[0-9a-hjkmnp-tv-z]{4}){5}$/);
});

test('A-47: a recovery code is read as it is copied from paper, and belongs to one user', () => {
  const hash = recoveryCodeHash('usr_1', 'a0b1-c1d2');
  for (const spelling of ['A0B1-C1D2', 'a0b1c1d2', ' a0 b1 c1 d2 ', 'aOBi-cLd2', 'aobl-cId2']) {
    assert.equal(recoveryCodeHash('usr_1', spelling), hash, spelling);
  }
  assert.notEqual(recoveryCodeHash('usr_2', 'a0b1-c1d2'), hash);
  assert.notEqual(recoveryCodeHash('usr_1', 'a0b1-c1d3'), hash);
});
