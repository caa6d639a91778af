import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import type { LoggedIn } from '../../kit/accounts/accounts-client.ts';
import { AT, base64url, createAuthenticator, originOf, UP, UV } from '../../kit/accounts/authenticator.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { accountsSettingsOf, type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';

const MINUTE_MS = 60_000;
async function optionsFor(accounts: RunningAccounts, token?: string, body: object = {}, from?: string) {
  const path = token === undefined ? 'passkeys/options' : 'passkeys/options?add=1';
  const sent = { ...(token !== undefined && { token }), ...(from !== undefined && { from }) };
  const answer = await accounts.post(path, body, sent);
  assert.equal(answer.status, 200, answer.text);
  return answer.body.publicKey;
}

async function addPasskey(accounts: RunningAccounts, { token }: { token: string }, name?: string) {
  const authenticator = createAuthenticator(originOf(accounts));
  const credential = authenticator.create(await optionsFor(accounts, token));
  const added = await accounts.post('passkeys/verify?add=1', { credential, name }, { token });
  assert.equal(added.status, 200, added.text);
  return { authenticator, credential: added.body.credential };
}

/** Every caller from an address of its own: refusals count by address. */
let callers = 0;
const fromElsewhere = () => {
  callers += 1;
  return { from: `10.9.${callers >> 8}.${callers & 255}` };
};
const enter = (accounts: RunningAccounts, credential: object, more: object = {}) =>
  accounts.post('passkeys/verify', { credential, ...more }, fromElsewhere());

const shared = await startAccounts({ after });
const admin = await loggedInAs(shared, 'admin');

test('a passkey logs its owner in without a name or password; adding it was mailed and recorded', async () => {
  const ann = await shared.loggedIn('Ann');
  const { authenticator, credential } = await addPasskey(shared, ann, 'laptop');
  assert.deepEqual([credential.kind, credential.name, credential.lastUsedAt], ['passkey', 'laptop', null]);
  const options = await optionsFor(shared);
  assert.deepEqual([options.allowCredentials ?? [], options.userVerification], [[], 'required'], 'nobody is named');
  const answer = await enter(shared, authenticator.get(options));
  assert.deepEqual([answer.status, answer.body.user?.id, answer.body.mfaRequired], [200, ann.id, false], answer.text);
  const { token } = answer.body;
  const { body } = await shared.get('credentials', { token });
  const listed = body.credentials.find(({ kind }: { kind: string }) => kind === 'passkey');
  assert.equal(listed.id, credential.id);
  assert.notEqual(listed.lastUsedAt, null);
  assert.doesNotMatch(JSON.stringify(body), new RegExp(authenticator.id), 'neither key nor credential id');
  const [entry] = await auditOf(shared, admin, `event=credential.added&actor=${ann.id}`);
  assert.deepEqual(entry?.details, { credential: 'passkey', id: credential.id });
  await shared.eventually(async () =>
    (await shared.mails(ann.email)).some((mail) => mail.includes('passkey was added')),
  );
});

test('a passkey is the second factor of a login by password, for its owner’s ticket alone', async () => {
  const ben = await shared.loggedIn('Ben');
  const eve = await shared.loggedIn('Eve');
  const { token } = await shared.enrol(ben);
  const { authenticator } = await addPasskey(shared, { token });
  const { authenticator: other } = await addPasskey(shared, eve);
  const first = await shared.login(ben);
  assert.deepEqual([first.body.mfaMethod, first.body.mfaMethods], ['totp', ['totp', 'passkey']]);
  const ticket = first.body.mfa_ticket;
  const options = await optionsFor(shared, undefined, { mfa_ticket: ticket });
  assert.deepEqual(
    options.allowCredentials.map(({ id }: { id: string }) => id),
    [authenticator.id],
  );
  const foreign = await enter(shared, other.get(options), { mfa_ticket: ticket });
  assert.deepEqual([foreign.status, foreign.body.error], [401, 'invalid_passkey'], 'someone else’s passkey');
  const answer = await enter(shared, authenticator.get(options), { mfa_ticket: ticket });
  assert.deepEqual([answer.status, answer.body.user?.id], [200, ben.id], answer.text);
  const fresh = await optionsFor(shared);
  const again = await enter(shared, authenticator.get(fresh), { mfa_ticket: ticket });
  assert.equal(again.body.error, 'invalid_mfa_ticket', 'a ticket is used once');
  assert.deepEqual((await shared.post('passkeys/options', { mfa_ticket: 'no such' })).body.error, 'invalid_mfa_ticket');
});

test('nothing but a fresh, verified response for this site logs in, and each counts once', async () => {
  const cat = await shared.loggedIn('Cat');
  const dan = await shared.loggedIn('Dan');
  const { authenticator } = await addPasskey(shared, cat);
  const { authenticator: theirs } = await addPasskey(shared, dan);
  const refused = async (what: string, credential: object) => {
    const answer = await enter(shared, credential);
    assert.deepEqual([answer.status, answer.body.error], [401, 'invalid_passkey'], what);
  };
  const options = () => optionsFor(shared, undefined, {}, fromElsewhere().from);
  await refused('another origin', authenticator.get(await options(), { origin: 'https://evil.example' }));
  await refused('another port', authenticator.get(await options(), { origin: 'http://localhost:1' }));
  await refused('another site', authenticator.get(await options(), { rpId: 'evil.example' }));
  await refused('nobody verified', authenticator.get(await options(), { flags: UP }));
  await refused('nobody present', authenticator.get(await options(), { flags: UV }));
  await refused('a registration', authenticator.get(await options(), { type: 'webauthn.create' }));
  await refused(
    'a made-up challenge',
    authenticator.get({ ...(await options()), challenge: base64url(randomBytes(32)) }),
  );
  const foreign = theirs.get(await options());
  await refused('someone else’s id', { ...foreign, id: authenticator.id, rawId: authenticator.id });
  const signed = authenticator.get(await options());
  await refused('a wrong signature', {
    ...signed,
    response: { ...signed.response, signature: foreign.response.signature },
  });
  await refused('someone else’s handle', {
    ...signed,
    response: { ...signed.response, userHandle: foreign.response.userHandle },
  });
  await refused('no client data', { ...signed, response: { ...signed.response, clientDataJSON: 'bm9uc2Vuc2U' } });
  const adding = await optionsFor(shared, cat.token);
  await refused('a challenge for adding', authenticator.get({ ...adding, rpId: 'localhost' }));

  const once = authenticator.get(await options());
  const both = await Promise.all([enter(shared, once), enter(shared, once)]);
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 401], 'two at the same moment');
  await refused('a replay', once);
  await refused('a copy of the passkey', authenticator.get(await options(), { counter: 1 }));

  const late = authenticator.get(await options(), { counter: 90 });
  await shared.clock.advance(10 * MINUTE_MS + 1);
  await refused('too late', late);
});

test('a passkey is added by a fresh login, for the session that asked, and without certificates', async () => {
  const fay = await shared.loggedIn('Fay');
  const gus = await shared.loggedIn('Gus');
  const authenticator = createAuthenticator(originOf(shared));
  const add = (credential: object, { token }: { token: string } = fay) =>
    shared.post('passkeys/verify?add=1', { credential }, { token });
  const options = await optionsFor(shared, fay.token);
  const refusals: readonly [string, object, { token: string }][] = [
    ['for someone else', authenticator.create(options), gus],
    ['for another session', authenticator.create(options), (await shared.login(fay)).body],
    ['another origin', authenticator.create(options, { origin: 'https://evil.example' }), fay],
    ['another site', authenticator.create(options, { rpId: 'evil.example' }), fay],
    ['nobody verified', authenticator.create(options, { flags: UP | AT }), fay],
    ['a vendor’s format', authenticator.create(options, { fmt: 'apple' }), fay],
    ['certificates', authenticator.create(options, { fmt: 'packed', attStmt: new Map([['x5c', []]]) }), fay],
    ['no attestation', { ...authenticator.create(options), response: { clientDataJSON: 'e30' } }, fay],
    ['a login challenge', authenticator.create({ ...options, challenge: (await optionsFor(shared)).challenge }), fay],
  ];
  for (const [what, credential, by] of refusals) {
    const answer = await add(credential, by);
    assert.deepEqual([answer.status, answer.body.error], [401, 'invalid_passkey'], what);
  }
  const good = authenticator.create(options);
  const both = await Promise.all([add(good), add(good)]);
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 401], 'twice at the same moment');
  const taken = authenticator.create(await optionsFor(shared, gus.token));
  assert.equal((await add(taken, gus)).body.error, 'invalid_passkey', 'a passkey has one owner');

  const waiting = createAuthenticator(originOf(shared)).create(await optionsFor(shared, fay.token));
  await shared.clock.advance(5 * MINUTE_MS + 1);
  for (const path of ['passkeys/options?add=1', 'passkeys/verify?add=1']) {
    const body = path.includes('verify') ? { credential: waiting } : {};
    const stale = await shared.post(path, body, { token: fay.token });
    assert.deepEqual([stale.status, stale.body.error], [401, 'reauthentication_required'], path);
    assert.equal((await shared.post(path, body)).body.error, 'session_token_required', path);
  }
});

test('a paused user’s passkey opens nothing; one person has at most twenty; an address begins thirty logins a minute', async (t) => {
  const accounts = await startAccounts(t);
  const root = await loggedInAs(accounts, 'admin');
  const hal = await accounts.loggedIn('Hal');
  const { authenticator } = await addPasskey(accounts, hal);
  for (let more = 1; more < 20; more += 1) await addPasskey(accounts, hal);
  const tooMany = await accounts.post('passkeys/options?add=1', {}, { token: hal.token });
  assert.deepEqual([tooMany.status, tooMany.body.error], [409, 'too_many_passkeys']);
  await accounts.post(`admin/users/${hal.id}/pause`, undefined, { token: root.token });
  const answer = await enter(accounts, authenticator.get(await optionsFor(accounts)));
  assert.deepEqual([answer.status, answer.body.error], [403, 'account_suspended']);
  for (let more = 1; more < 30; more += 1) await optionsFor(accounts);
  assert.equal((await accounts.post('passkeys/options')).body.error, 'rate_limited');
});

test('DA-3: a passkey may be the last means of login but is never removed as such, also by two removals at the same time', async () => {
  const ida = await shared.loggedIn('Ida');
  const { credential, authenticator } = await addPasskey(shared, ida, 'phone');
  const remove = (id: string, { token }: { token: string } = ida) =>
    shared.call('DELETE', `credentials/${id}`, { token });
  const race = await Promise.all([remove(credential.id), remove(`pwd_${ida.id}`)]);
  assert.deepEqual(race.map(({ status }) => status).sort(), [204, 409]);
  if (race[1]?.status === 204) {
    const by = (await enter(shared, authenticator.get(await optionsFor(shared)))).body as LoggedIn;
    assert.equal((await remove(credential.id, by)).body.error, 'last_credential');
  } else {
    assert.equal((await enter(shared, authenticator.get(await optionsFor(shared)))).body.error, 'invalid_passkey');
    await shared.eventually(async () =>
      (await shared.mails(ida.email)).some((mail) => mail.includes('The passkey "phone" was removed')),
    );
  }
});

test('DA-3: a password reset names passkeys, and removes them when it is asked to', async () => {
  const joy = await shared.loggedIn('Joy');
  const { authenticator } = await addPasskey(shared, joy, 'tablet');
  await shared.post('password/forgot', { email: joy.email });
  const confirm = async (more: object) =>
    shared.post('password/forgot/confirm', {
      token: await shared.mailedToken(joy.email),
      password: 'nine green bottles 12',
      ...more,
    });
  const kept = await confirm({});
  assert.deepEqual([kept.body.linkedLogins[0]?.provider, kept.body.linkedLogins[0]?.name], ['passkey', 'tablet']);
  await shared.post('password/forgot', { email: joy.email });
  assert.deepEqual((await confirm({ remove_links: true })).body.linkedLogins, []);
  assert.equal((await enter(shared, authenticator.get(await optionsFor(shared)))).body.error, 'invalid_passkey');
});

test('a passkey belongs to a host name: not offered on an IP address, and no means of login under another name', async (t) => {
  const accounts = await startAccounts(t, { settings: '{ public_url: "http://10.1.2.3:8787" }' });
  const answer = await accounts.post('passkeys/options');
  assert.deepEqual([answer.status, answer.body.error], [503, 'passkeys_unavailable']);

  const moved = await startAccounts(t, { settings: '{ registration: open, public_url: "https://old.example" }' });
  const kim = await moved.loggedIn('Kim');
  const authenticator = createAuthenticator('https://old.example');
  const credential = authenticator.create(await optionsFor(moved, kim.token));
  assert.equal((await moved.post('passkeys/verify?add=1', { credential }, { token: kim.token })).status, 200);
  moved.reload(accountsSettingsOf('{ public_url: "https://new.example" }'));
  const refused = await moved.call('DELETE', `credentials/pwd_${kim.id}`, { token: kim.token });
  assert.equal(refused.body.error, 'last_credential');
});
