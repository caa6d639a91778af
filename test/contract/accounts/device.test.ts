import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { GOOD_PASSWORD } from '../../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const accounts = await startAccounts({ after });
const admin = await loggedInAs(accounts, 'admin');

interface Begun {
  readonly device_code: string;
  readonly user_code: string;
}

let addresses = 0;
async function begin(given: object = {}): Promise<Begun> {
  addresses += 1;
  const { status, body, text } = await accounts.post('device/code', given, { from: `10.9.0.${addresses}` });
  assert.equal(status, 200, text);
  return body;
}
const poll = ({ device_code }: Pick<Begun, 'device_code'>) => accounts.post('device/token', { device_code });
const pollFor = async (begun: Pick<Begun, 'device_code'>) => {
  const { status, body } = await poll(begun);
  return `${status} ${body.error}`;
};
const decide = (code: string, approve: boolean, token: string) =>
  accounts.post(`device/approval/${code}`, { approve }, { token });
/** The first login of the file may be more than five minutes ago, by the clock of the test. */
const fresh = async (name: string) => loggedInAs(accounts, 'user', name);

test('a device gets a token for its person once the person has approved its code, and gets it once', async () => {
  const ann = await fresh('Ann');
  const { status, body } = await accounts.post(
    'device/code',
    { client_id: 'trestle', name: 'trestle on laptop', scope: 'account completions' },
    { from: '203.0.113.9' },
  );
  assert.equal(status, 200);
  assert.match(body.user_code, /^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/);
  assert.deepEqual(
    { ...body, device_code: body.device_code.length, user_code: '' },
    { device_code: 43, user_code: '', verification_uri: `${accounts.url}/device`, expires_in: 600, interval: 5 },
  );
  assert.equal(await pollFor(body), '400 authorization_pending');
  const typed = body.user_code.toLowerCase().replace('-', ' ');
  const shown = await accounts.get(`device/approval/${encodeURIComponent(typed)}`, { token: ann.token });
  const { createdAt, expiresAt, ...request } = shown.body;
  assert.deepEqual(request, {
    client: 'trestle',
    name: 'trestle on laptop',
    address: '203.0.113.9',
    scopes: ['completions', 'account'],
  });
  assert.equal(Date.parse(expiresAt) - Date.parse(createdAt), 600_000);
  assert.equal((await decide(typed, true, ann.token)).status, 204);
  const answer = await poll(body);
  assert.equal(answer.status, 200, answer.text);
  const { access_token: token, id, ...grant } = answer.body;
  assert.match(token, /^tpt_/);
  assert.deepEqual(grant, { token_type: 'Bearer', expires_in: 90 * 86_400, scope: 'completions account' });
  const session = await accounts.get('session', { token });
  assert.equal(session.body.user.id, ann.id);
  assert.equal(await pollFor(body), '400 expired_token', 'used');
  await accounts.eventually(async () =>
    (await accounts.mails(ann.email)).some((mail) => mail.includes('The access token "trestle on laptop" was created')),
  );
  const exported = (await accounts.get('export', { token })).body;
  assert.deepEqual(
    exported.tokens.map((one: { readonly id: string }) => one.id),
    [id],
  );
  assert.ok(!JSON.stringify(exported).includes(token));
  const { tokens } = (await accounts.get('tokens', { token })).body;
  assert.deepEqual([tokens[0].id, tokens[0].name], [id, 'trestle on laptop']);
  const entries = (await auditOf(accounts, admin, `subject=${ann.id}`)).filter(({ event }) =>
    /device|token/.test(event),
  );
  assert.deepEqual(
    entries.map(({ event, details }) => [event, details.client ?? details.how]),
    [
      ['token.created', 'device'],
      ['device.approved', 'trestle'],
    ],
  );
});

test('two polls at the same time give one token', async () => {
  const ann = await fresh('Two polls');
  const begun = await begin();
  assert.equal((await decide(begun.user_code, true, ann.token)).status, 204);
  const statuses = (await Promise.all([poll(begun), poll(begun), poll(begun)])).map(({ status }) => status);
  assert.deepEqual(statuses.sort(), [200, 400, 400]);
  assert.equal((await accounts.get('tokens', { token: ann.token })).body.tokens.length, 1);
});

test('who is denied, paused or too late gets nothing', async () => {
  const ann = await fresh('Denier');
  const denied = await begin();
  assert.equal((await decide(denied.user_code, false, ann.token)).status, 204);
  assert.equal(await pollFor(denied), '400 access_denied');
  assert.equal((await decide(denied.user_code, true, ann.token)).body.error, 'device_code_not_found', 'decided before');

  const paused = await begin();
  assert.equal((await decide(paused.user_code, true, ann.token)).status, 204);
  assert.equal((await accounts.post(`admin/users/${ann.id}/pause`, {}, { token: admin.token })).status, 200);
  assert.equal(await pollFor(paused), '400 access_denied');

  const late = await begin();
  const approvedLate = await begin();
  const ben = await fresh('Late');
  assert.equal((await decide(approvedLate.user_code, true, ben.token)).status, 204);
  await accounts.clock.advance(600_000);
  assert.deepEqual(
    [await pollFor(late), await pollFor(approvedLate), await pollFor({ device_code: 'x'.repeat(43) })],
    Array(3).fill('400 expired_token'),
  );
  const dora = await fresh('Dora');
  assert.equal((await decide(late.user_code, true, dora.token)).body.error, 'device_code_not_found');
});

test('an approval ends with the logins of its time: a new password gives its device nothing', async () => {
  const ann = await fresh('Robbed');
  const begun = await begin();
  assert.equal((await decide(begun.user_code, true, ann.token)).status, 204);
  const change = { currentPassword: GOOD_PASSWORD, newPassword: `${GOOD_PASSWORD} again` };
  assert.equal((await accounts.post('password/change', change, { token: ann.token })).status, 200);
  assert.equal(await pollFor(begun), '400 expired_token');
});

test('requests that come together leave no more tokens than one person may have', async () => {
  const ann = await fresh('Collector');
  const create = () => accounts.post('tokens', { name: 't', scopes: ['account'] }, { token: ann.token });
  const made = await create();
  assert.equal(made.status, 201);
  const [row] = await accounts.database.query
    .selectFrom('access_tokens')
    .selectAll()
    .where('id', '=', made.body.id)
    .execute();
  assert.ok(row !== undefined);
  const others = Array.from({ length: 98 }, (_, index) => ({
    ...row,
    id: `tok_${index}`,
    token_hash: `hash ${index}`,
  }));
  await accounts.database.query.insertInto('access_tokens').values(others).execute();
  const answers = await Promise.all([create(), create(), create(), create(), create()]);
  assert.deepEqual(answers.map(({ status, body }) => `${status} ${body.error ?? ''}`).sort(), [
    '201 ',
    ...Array(4).fill('409 too_many_tokens'),
  ]);
});

test('polling faster than the interval is slow_down, and makes the interval longer', async () => {
  const begun = await begin();
  assert.equal(await pollFor(begun), '400 authorization_pending');
  await accounts.clock.advance(4999);
  assert.equal(await pollFor(begun), '400 slow_down');
  await accounts.clock.advance(5000);
  assert.equal(await pollFor(begun), '400 slow_down', 'ten seconds by now');
  await accounts.clock.advance(15_000);
  assert.equal(await pollFor(begun), '400 authorization_pending');
});

test('approving needs a login from the last five minutes, and an access token is none', async () => {
  const ann = await fresh('Stale');
  const begun = await begin();
  const { token } = (await accounts.post('tokens', { name: 't', scopes: ['account'] }, { token: ann.token })).body;
  assert.equal((await decide(begun.user_code, true, token)).body.error, 'login_required');
  assert.equal((await accounts.post(`device/approval/${begun.user_code}`, { approve: true })).status, 401);
  await accounts.clock.advance(5 * 60_000 + 1);
  const stale = await decide(begun.user_code, true, ann.token);
  assert.deepEqual([stale.status, stale.body.error], [401, 'reauthentication_required']);
  const cookie = ann.answer.headers.getSetCookie().find((one) => one.startsWith('xc_session=')) ?? '';
  const foreign = { cookie: cookie.split(';')[0] ?? '', headers: { origin: 'https://evil.example' } };
  const again = await fresh('Cookie');
  const own = again.answer.headers.getSetCookie().find((one) => one.startsWith('xc_session=')) ?? '';
  const path = `device/approval/${begun.user_code}`;
  const crossSite = await accounts.post(path, { approve: true }, { ...foreign, cookie: own.split(';')[0] ?? '' });
  assert.equal(crossSite.body.error, 'cross_site_request');
  const sameSite = { cookie: own.split(';')[0] ?? '', headers: { 'sec-fetch-site': 'same-origin' } };
  assert.equal((await accounts.post(path, { approve: true }, sameSite)).status, 204);
});

test('a device never gets the scope admin, nor one that is not known, nor a token that lasts too long', async () => {
  for (const scope of ['admin', 'bridge admin', 'everything', ' ']) {
    const { status, body } = await accounts.post('device/code', { scope });
    assert.deepEqual([status, body.error], [400, 'invalid_scope'], scope);
  }
  assert.equal((await accounts.post('device/code', { scopes: ['bridge'] })).body.error, 'invalid_request');
  assert.equal((await accounts.post('device/code', { client_id: 'a\u0007b' })).body.error, 'invalid_request');
  const grant = { grant_type: 'password', device_code: 'x' };
  assert.equal((await accounts.post('device/token', grant)).body.error, 'invalid_request');
  const root = await accounts.login(admin);
  const begun = await begin({ expires_in_days: 3000 });
  assert.equal((await decide(begun.user_code, true, root.body.token)).status, 204);
  assert.equal(await pollFor(begun), '400 token_lifetime_too_long');
  const plain = await begin();
  assert.equal((await decide(plain.user_code, true, root.body.token)).status, 204);
  const { access_token: token } = (await poll(plain)).body;
  assert.equal((await accounts.get('admin/users', { token })).status, 403, 'not even for an administrator');
});

test('guessing codes, and beginning logins, is limited', async () => {
  const ann = await fresh('Guesser');
  const begun = await begin();
  const guesses = Array.from({ length: 25 }, () => accounts.get('device/approval/BBBBBBBB', { token: ann.token }));
  const statuses = (await Promise.all(guesses)).map(({ status }) => status);
  assert.equal(statuses.filter((status) => status === 404).length, 20);
  assert.equal(statuses.filter((status) => status === 429).length, 5);
  assert.equal((await decide(begun.user_code, true, ann.token)).status, 429);
  const starts = Array.from({ length: 35 }, () => accounts.post('device/code', {}, { from: '203.0.113.77' }));
  const begins = (await Promise.all(starts)).map(({ status }) => status);
  assert.equal(begins.filter((status) => status === 200).length, 30);
  const stored = JSON.stringify(await accounts.database.query.selectFrom('device_logins').selectAll().execute());
  assert.ok(!stored.includes(begun.device_code) && !stored.includes(begun.user_code.replace('-', '')));
});

test('a token for the account revokes any token of its person, and none of others', async () => {
  const ann = await fresh('Revoker');
  const ben = await fresh('Other');
  const issue = async (token: string) =>
    (await accounts.post('tokens', { name: 't', scopes: ['account'] }, { token })).body as {
      readonly id: string;
      readonly token: string;
    };
  const [first, second, foreign] = [await issue(ann.token), await issue(ann.token), await issue(ben.token)];
  assert.equal((await accounts.call('DELETE', `tokens/${foreign.id}`, { token: first.token })).status, 404);
  assert.equal((await accounts.call('DELETE', `tokens/${second.id}`, { token: first.token })).status, 204);
  assert.equal((await accounts.get('session', { token: second.token })).status, 401);
  assert.equal((await accounts.get('session', { token: foreign.token })).status, 200);
});
