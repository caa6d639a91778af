import assert from 'node:assert/strict';
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { buildPasswordFilter, readPasswordFilter } from '../../../src/platform/secrets/password-filter.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';
import { startProcessorTime } from '../../kit/time.ts';

const accounts = await startAccounts({ after }, { settings: '{ require_verification: false, trial_days: 0 }' });
let people = 0;

async function registerWith(password: string, name?: string) {
  people += 1;
  const given = name ?? `Somebody ${people}`;
  const email = `p${people}@example.org`;
  const answer = await accounts.post('register', { name: given, email, password });
  return { email, answer, outcome: answer.status === 201 ? 'ok' : (answer.body.error as string) };
}

async function outcomeOf(password: string, name?: string): Promise<string> {
  return (await registerWith(password, name)).outcome;
}

test('A-09: seven characters are too few, 8 to 256 will do, 257 are too many', async () => {
  const alphabet = 'kvmwzrtplbnxgdhc';
  const ofLength = (length: number) => Array.from({ length }, (_, index) => alphabet[(index * 7) % 16]).join('');
  assert.equal(await outcomeOf(ofLength(7)), 'password_too_short');
  for (const length of [8, 64, 128, 256]) assert.equal(await outcomeOf(ofLength(length)), 'ok', String(length));
  assert.equal(await outcomeOf(ofLength(257)), 'password_too_long');
});

test('A-09: characters are counted, not bytes or halves of them', async () => {
  assert.equal(await outcomeOf('🦀🐙🦑🦐🐚🌊🏖'), 'password_too_short');
  assert.equal(await outcomeOf('🦀🐙🦑🦐🐚🌊🏖🐠'), 'ok');
  assert.equal(await outcomeOf('🦀'.repeat(256)), 'ok');
  assert.equal(await outcomeOf('🦀'.repeat(257)), 'password_too_long');
});

test('A-09: every character counts, up to the last: spaces, NUL, and what lies behind byte 72', async () => {
  const loginWith = async (email: string, password: string) =>
    (await accounts.post('login', { email, password }, { from: `10.2.0.${people}` })).status;
  for (const [password, near] of [
    ['          ', '         '],
    ['  kettle over pass  ', 'kettle over pass'],
    ['kettle\0over', 'kettle'],
    [`${'copper kettle '.repeat(10)}end`, 'copper kettle '.repeat(10)],
    ['emoji 🦀🐙 sea', 'emoji 🦀🐚 sea'],
  ] as const) {
    const { email, outcome } = await registerWith(password);
    assert.equal(outcome, 'ok', JSON.stringify(password));
    assert.equal(await loginWith(email, near), 401, 'a part of it is another password');
    assert.equal(await loginWith(email, password), 200);
  }
});

test('A-09: half a character is refused, since two of them would be one password', async () => {
  const text = '{"name":"Half","email":"half@example.org","password":"kettle \\ud800 over"}';
  const answer = await accounts.call('POST', 'register', { text });
  assert.deepEqual([answer.status, answer.body.error], [400, 'invalid_request']);
});

test('A-10: common passwords are refused, also dressed up; nothing is demanded of good ones', async () => {
  for (const password of [
    'password',
    'Password1',
    'P@ssw0rd',
    'passw0rd123!',
    '12345678',
    '123456789',
    '87654321',
    'qwertyuiop',
    'iloveyou',
    'sunshine1',
    'football',
    'baseball',
    'letmein123',
    'trustno1',
    'superman',
    'princess',
    'monkeymonkey',
    'starwars!!',
    'michelle',
    'jennifer',
    'liverpool',
    'chocolate',
    'elizabeth',
    '11111111',
    'aaaaaaaa',
    'abcd1234',
    '1qaz2wsx',
    '1q2w3e4r',
    'asdfghjkl',
    'changeme',
    'welcome1',
    'admin123',
    'Dragon2024!',
    '2023summer',
  ]) {
    assert.equal(await outcomeOf(password), 'password_too_common', password);
  }
  for (const password of ['tall giraffe hat', 'kvmwzrtp', '83015729', 'ÄÖÜßäöüé', 'nineblueowls']) {
    assert.equal(await outcomeOf(password), 'ok', password);
  }
});

test('A-10: one’s own name and address are refused as a part of the password', async () => {
  assert.equal(await outcomeOf('my Bartholomew is great', 'Bartholomew'), 'password_contains_identity');
  assert.equal(await outcomeOf('xx BARTHOLOMEW2 yy', 'Bartholomew2'), 'password_contains_identity');
  people += 1;
  const email = 'wanderlust@example.org';
  const given = { name: 'Wendy Q', email, password: 'wanderlust and more' };
  assert.equal((await accounts.post('register', given)).body.error, 'password_contains_identity');
  assert.equal(await outcomeOf('total of all values', 'Al'), 'ok', 'a short name is in many words');
});

test('A-10: a password of a megabyte is refused before anybody looks at it', async () => {
  const processorTime = startProcessorTime();
  const answer = await accounts.post('login', { identifier: 'p1@example.org', password: 'x'.repeat(1024 * 1024) });
  assert.equal(answer.status, 413);
  assert.equal(answer.body.error, 'body_too_large');
  const just = await accounts.post('register', { name: 'Big', email: 'big@example.org', password: 'x'.repeat(12_000) });
  assert.equal(just.body.error, 'password_too_long');
  assert.ok(processorTime() < 1000);
});

test('a password of the operator’s list of breached ones is refused wherever one is chosen, in any case and width', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-filter-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const [list, filter] = [join(folder, 'list.txt'), join(folder, 'breached.bloom')];
  const lines = Array.from({ length: 5000 }, (_, index) => `Breached-${index * 7919}-phrase`);
  await writeFile(list, `${lines.join('\r\n')}\n\n`);
  assert.equal(await buildPasswordFilter(list, filter), 5000);
  const isBreached = await readPasswordFilter(filter);
  assert.ok(lines.every(isBreached), 'every one is found');
  const others = Array.from({ length: 20_000 }, (_, index) => `something else ${index}`);
  assert.ok(others.filter(isBreached).length < 20, 'hardly any other one is');

  const settings = `{ require_verification: false, breached_passwords: "${filter}" }`;
  const careful = await startAccounts(t, { settings });
  const given = { name: 'Zed', email: 'zed@example.org' };
  for (const password of [lines[42], lines[42]?.toUpperCase(), 'ｂreached-332598-phrase']) {
    const answer = await careful.post('register', { ...given, password });
    assert.deepEqual([answer.status, answer.body.error], [400, 'password_too_common'], password);
  }
  const zed = await careful.loggedIn('Zoe');
  const change = { currentPassword: zed.password, newPassword: lines[7] };
  assert.equal((await careful.post('password/change', change, { token: zed.token })).body.error, 'password_too_common');
  await careful.post('password/forgot', { email: zed.email });
  const token = await careful.mailedToken(zed.email);
  const reset = await careful.post('password/forgot/confirm', { token, password: lines[7] });
  assert.equal(reset.body.error, 'password_too_common');

  await truncate(filter, 100);
  const refused = { code: 'PASSWORD_FILTER_INVALID' };
  await assert.rejects(readPasswordFilter(filter), refused, 'a part of a filter would let passwords through');
  await assert.rejects(readPasswordFilter(join(folder, 'none')), refused);
  await assert.rejects(buildPasswordFilter(join(folder, 'none'), filter), refused);
});
