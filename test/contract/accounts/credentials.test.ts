import assert from 'node:assert/strict';
import { test } from 'node:test';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';

const MINUTE_MS = 60_000;
const NEW_PASSWORD = 'nine green bottles 12 on a wall';
const SETTINGS = '{ oauth: { github: { client_id: iv1, client_secret: shh-nobody-knows } } }';

/** Links an account elsewhere, as a finished login with a provider stores it. */
async function link(accounts: RunningAccounts, userId: string, id = '42'): Promise<void> {
  const row = {
    id: `lnk_${id}`,
    user_id: userId,
    kind: 'oauth',
    subject: `github:https://github.com ${id}`,
    value: '',
  };
  const rest = { state: 'active', label: 'someone@github.test', counter: 0, confirmed_at: null, last_used_at: null };
  await accounts.database.query
    .insertInto('credentials')
    .values({ ...row, ...rest, created_at: accounts.clock.now() })
    .execute();
}

const told = (accounts: RunningAccounts, email: string, words: string) =>
  accounts.eventually(async () =>
    (await accounts.mails(email)).some((mail) => mail.replaceAll(/=\r?\n/g, '').includes(words)),
  );

test('DA-3: owners see every means of login and remove a linked one; other sessions end, and it is mailed and recorded', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await accounts.loggedIn('Ann');
  await link(accounts, ann.id);
  const { token } = await accounts.enrol(ann);
  const other = await accounts.issueExchangeCode(ann.id);
  const { body } = await accounts.get('credentials', { token });
  const kinds = body.credentials.map(({ kind, left }: { kind: string; left?: number }) => [kind, left]);
  assert.deepEqual(kinds.sort(), [
    ['oauth', undefined],
    ['password', undefined],
    ['recovery_codes', 10],
    ['totp', undefined],
  ]);
  assert.doesNotMatch(JSON.stringify(body), /argon2|v1\./, 'nothing secret');
  const linked = body.credentials.find(({ kind }: { kind: string }) => kind === 'oauth');
  assert.deepEqual([linked.provider, linked.email], ['github', 'someone@github.test']);

  const second = (await accounts.login(ann)).body.mfa_ticket;
  assert.equal((await accounts.call('DELETE', `credentials/${linked.id}`, { token })).status, 204);
  assert.equal((await accounts.get('session', { token })).status, 200, 'this session goes on');
  const late = await accounts.post('mfa/verify', { mfa_ticket: second, code: '123456' });
  assert.equal(late.body.error, 'invalid_mfa_ticket', 'logins that were under way have ended');
  assert.equal((await accounts.post('token/exchange', other)).body.error, 'invalid_exchange_code');
  const [entry] = await auditOf(accounts, admin, 'event=credential.removed');
  assert.deepEqual([entry?.subject, entry?.details], [ann.id, { credential: 'oauth', provider: 'github' }]);
  await told(accounts, ann.email, 'The login with github was removed');
  assert.equal((await accounts.call('DELETE', 'credentials/lnk_none', { token })).body.error, 'credential_not_found');
});

test('DA-3: the last means of login stays, also when two are removed at the same moment; others’ are not found', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const ann = await accounts.loggedIn('Ann');
  const ben = await accounts.loggedIn('Ben');
  const remove = (id: string, token = ann.token) => accounts.call('DELETE', `credentials/${id}`, { token });
  const last = await remove(`pwd_${ann.id}`);
  assert.deepEqual([last.status, last.body.error], [409, 'last_credential']);
  await link(accounts, ann.id);
  assert.equal((await remove('lnk_42', ben.token)).body.error, 'credential_not_found');
  const race = await Promise.all([remove('lnk_42'), remove(`pwd_${ann.id}`)]);
  assert.deepEqual(race.map(({ status }) => status).sort(), [204, 409]);
});

test('DA-3: a link whose provider is not configured is no means of login', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  await link(accounts, ann.id);
  const refused = await accounts.call('DELETE', `credentials/pwd_${ann.id}`, { token: ann.token });
  assert.equal(refused.body.error, 'last_credential');
});

test('DA-3: a password reset names the linked logins, and removes them when it is asked to', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const ann = await accounts.register('Ann');
  await link(accounts, ann.id);
  const reset = async (more: object) => {
    await accounts.post('password/forgot', { email: ann.email });
    const token = await accounts.mailedToken(ann.email);
    return accounts.post('password/forgot/confirm', { token, password: NEW_PASSWORD, ...more });
  };
  const kept = await reset({});
  assert.deepEqual(
    kept.body.linkedLogins.map(({ provider, email }: { provider: string; email: string }) => [provider, email]),
    [['github', 'someone@github.test']],
  );
  await told(accounts, ann.email, 'github (someone@github.test)');
  const dropped = await reset({ remove_links: true });
  assert.deepEqual([dropped.status, dropped.body.linkedLogins], [200, []]);
  await told(accounts, ann.email, 'Its 1 linked logins were removed');
  const left = await accounts.database.query.selectFrom('credentials').select('kind').execute();
  assert.deepEqual(left, [{ kind: 'password' }]);
});

test('DA-4: a session alone does not enrol a second factor; the password or a fresh login does', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  await accounts.clock.advance(5 * MINUTE_MS + 1);
  const provision = (body: object) => accounts.post('mfa/totp/provision', body, { token: ann.token });
  for (const body of [{}, { password: '' }, { password: 'not the password' }]) {
    const refused = await provision(body);
    assert.deepEqual([refused.status, refused.body.error], [401, 'reauthentication_required']);
  }
  assert.equal((await accounts.get('mfa/status', { token: ann.token })).body.mfa.totpPending, false);
  assert.equal((await provision({ password: ann.password })).status, 200);
  const fresh = (await accounts.login(ann)).body.token;
  assert.equal((await accounts.post('mfa/totp/provision', {}, { token: fresh })).status, 200);
});

test('DA-4: an administrator or a command removes a second factor that was lost; its owner gets a mail, and sessions end', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const operator = await loggedInAs(accounts, 'operator');
  const ann = await accounts.loggedIn('Ann');
  const { token } = await accounts.enrol(ann);
  const reset = (by: { token: string }) =>
    accounts.post(`admin/users/${ann.id}/reset-mfa`, undefined, { token: by.token });
  assert.equal((await reset(operator)).body.error, 'forbidden');
  const done = await reset(admin);
  assert.deepEqual([done.status, done.body.user.mfaEnabled], [200, false]);
  assert.equal((await accounts.get('session', { token })).status, 401);
  const again = await accounts.login(ann);
  assert.equal(again.body.mfaRequired, false, 'the password is enough');
  await told(accounts, ann.email, 'An administrator has removed the second factor');
  const [entry] = await auditOf(accounts, admin, 'event=mfa.reset');
  assert.deepEqual([entry?.actor, entry?.subject], [admin.id, ann.id]);
  assert.equal((await reset(admin)).body.error, 'mfa_not_enabled');

  await accounts.enrol({ ...ann, token: again.body.token });
  await accounts.control('users.resetMfa', { user: ann.email });
  assert.equal((await accounts.login(ann)).body.mfaRequired, false);
});

test('DA-4: someone without a password switches the second factor off by a fresh login and a code', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const ann = await accounts.loggedIn('Ann');
  await link(accounts, ann.id);
  await accounts.call('DELETE', `credentials/pwd_${ann.id}`, { token: ann.token });
  const { token, recoveryCodes } = await accounts.enrol(ann);
  const off = (recoveryCode: string | undefined) => accounts.post('mfa/disable', { recoveryCode }, { token });
  assert.equal((await off('wrong')).body.error, 'reauthentication_required');
  assert.equal((await off(recoveryCodes[0])).status, 200);
});

/** What a route that changes something asks for besides a session. Every route of this service that does is listed. */
const PROOFS: Readonly<Record<string, 'fresh' | 'proof' | 'nothing'>> = {
  'DELETE /api/auth/session': 'nothing',
  'DELETE /api/auth/sessions': 'nothing',
  'DELETE /api/auth/sessions/:id': 'nothing',
  'POST /api/auth/mfa/totp/provision': 'fresh',
  'POST /api/auth/mfa/totp/verify': 'proof',
  'POST /api/auth/mfa/disable': 'proof',
  'POST /api/auth/mfa/recovery-codes': 'proof',
  'POST /api/auth/password/reset': 'nothing',
  'POST /api/auth/password/reset/confirm': 'proof',
  'POST /api/auth/password/change': 'proof',
  'DELETE /api/auth/credentials/:id': 'fresh',
  // For a login; with add=1 a fresh one is needed (passkeys.test.ts).
  'POST /api/auth/passkeys/options': 'nothing',
  'POST /api/auth/passkeys/verify': 'nothing',
  // A device asks; whoever approves it needs a fresh login (device.test.ts).
  'POST /api/auth/device/code': 'nothing',
  'POST /api/auth/device/token': 'nothing',
  'POST /api/auth/device/approval/:code': 'fresh',
  'POST /api/auth/keys': 'fresh',
  'POST /api/auth/keys/:id/rotate': 'fresh',
  'DELETE /api/auth/keys/:id': 'nothing',
  // The name needs no more than a session; the address is below.
  'PATCH /api/auth/profile': 'nothing',
  'POST /api/auth/delete': 'proof',
  'DELETE /api/auth/delete': 'nothing',
};
/** They concern no credential: of the own subscriptions, and of administrators. */
const OTHER =
  /\/(teams|subscriptions|config|admin|agent-server|billing|setup|register|invitations|login|refresh|token|forgot|mfa\/verify)/;

/** What a body may have of the members that are given. */
function fitting(
  given: Readonly<Record<string, string>>,
  schema: object | undefined,
): Readonly<Record<string, string>> {
  const { additionalProperties, properties } = Object(schema) as {
    additionalProperties?: unknown;
    properties?: object;
  };
  if (additionalProperties !== false) return given;
  return Object.fromEntries(Object.entries(given).filter(([name]) => Object.hasOwn(properties ?? {}, name)));
}

test('DA-4: a session that is older than five minutes changes no credential by itself', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const ann = await accounts.loggedIn('Ann');
  await accounts.clock.advance(5 * MINUTE_MS + 1);
  const changing = accounts.routes.filter(({ method, path }) => method !== 'GET' && !OTHER.test(path));
  for (const { method, path, body, schema } of changing) {
    const proof = PROOFS[`${method} ${path}`];
    assert.ok(proof !== undefined, `${method} ${path} changes something: what does it ask for?`);
    if (proof === 'nothing') continue;
    const given = { name: 'x', code: '123456', token: 'x', password: '', newPassword: NEW_PASSWORD };
    const answer = await accounts.call(method, path.replace(':id', `pwd_${ann.id}`), {
      token: ann.token,
      ...(body !== undefined && { body: fitting(given, schema?.body) }),
    });
    const wanted =
      proof === 'fresh'
        ? ['reauthentication_required']
        : ['reauthentication_required', 'invalid_token', 'invalid_mfa_ticket', 'mfa_not_enabled'];
    assert.ok(wanted.includes(answer.body?.error), `${method} ${path}: ${answer.status} ${answer.text}`);
  }
  const link = await accounts.get('oauth/login/github?link=1', { token: ann.token });
  assert.equal(link.body.error, 'reauthentication_required');
});

test('a clock that was set back does not make an old login fresh', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  accounts.clock.stepWall(-3_600_000);
  await accounts.clock.advance(20 * 60_000);
  const listed = await accounts.get('credentials', { token: ann.token });
  assert.deepEqual([listed.status, listed.body.error], [401, 'reauthentication_required']);
  const provisioned = await accounts.post('mfa/totp/provision', {}, { token: ann.token });
  assert.deepEqual([provisioned.status, provisioned.body.error], [401, 'reauthentication_required']);
});
