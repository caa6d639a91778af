import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GOOD_PASSWORD } from '../../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const password = GOOD_PASSWORD;

test('A-01: a new user gets 201; for a known address everything looks the same, and its owner gets a notice', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const answers = [];
  for (const email of [ann.email, 'bob@example.org']) {
    const sent = await accounts.post('register/send', { email }, { from: '10.9.0.1' });
    const refused = await accounts.post('register', { name: 'Other', email, password, code: '000000' });
    const checked = await accounts.post('register/verify', { email, code: '000000' });
    const shapes = [sent, refused, checked].map(({ status, body }) => ({ status, ...body, requestId: '' }));
    answers.push(shapes);
  }
  assert.deepEqual(answers[0], answers[1]);
  assert.match((await accounts.mails(ann.email)).at(-1) ?? '', /You already have an account/);
  assert.doesNotMatch((await accounts.mails(ann.email)).at(-1) ?? '', /\b\d{6}\b/);
  const { body, status } = await accounts.post('register', {
    name: 'Bob',
    email: 'bob@example.org',
    password,
    code: await accounts.mailedCode('bob@example.org'),
  });
  assert.equal(status, 201);
  assert.deepEqual(Object.keys(body).sort(), ['message', 'user']);
  assert.equal((await accounts.get('session')).status, 401, 'nobody is logged in by it');
});

test('A-01: the same work is done for a known and for an unknown address', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  // The registration has woken the posts of mails and webhooks, which read by the same thread: their reads come first.
  const { database } = accounts;
  for (let turn = 0; turn < 5; turn += 1) {
    await database.read(database.query.selectFrom('webhook_deliveries').select('id').compile());
    await new Promise((resolve) => setImmediate(resolve));
  }
  const costs = [];
  for (const email of [ann.email, 'nobody@example.org']) {
    const before = accounts.database.statistics();
    const mails = (await accounts.mails()).length;
    await accounts.post('register/send', { email }, { from: '10.9.0.2' });
    await accounts.post('register', { name: 'Zoe', email, password, code: '000000' });
    const after = accounts.database.statistics();
    costs.push({
      reads: after.reads - before.reads,
      writes: after.batches - before.batches,
      mails: (await accounts.mails()).length - mails,
    });
  }
  assert.deepEqual(costs[0], costs[1]);
});

test('A-02: the answer to a wish for a code says nothing about the address', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const known = await accounts.post('register/send', { email: ann.email });
  const unknown = await accounts.post('register/send', { email: 'eve@example.org' });
  assert.equal(known.status, 200);
  assert.deepEqual(known.body, unknown.body);
  assert.deepEqual([...known.headers.keys()].sort(), [...unknown.headers.keys()].sort());
});

test('A-03: within ten minutes the same code is mailed with the same end; afterwards a new one', async (t) => {
  const accounts = await startAccounts(t);
  const email = 'ann@example.org';
  await accounts.post('register/send', { email });
  const first = await accounts.mailedCode(email);
  await accounts.clock.advance(9 * 60_000);
  await accounts.post('register/send', { email });
  assert.equal(await accounts.mailedCode(email), first);
  assert.equal((await accounts.mails(email)).length, 2);
  // The second mail has not made it live longer.
  await accounts.clock.advance(60_000);
  assert.equal((await accounts.post('register/verify', { email, code: first })).body.error, 'invalid_code');
  const codes = new Set<string>();
  for (let round = 0; round < 3; round += 1) {
    await accounts.post('register/send', { email });
    codes.add(await accounts.mailedCode(email));
    await accounts.clock.advance(20 * 60_000);
  }
  assert.ok(codes.size > 1 && !codes.has(first));
});

test('A-04: a code works once, and five wrong ones end it', async (t) => {
  const accounts = await startAccounts(t);
  const email = 'ann@example.org';
  await accounts.post('register/send', { email });
  const code = await accounts.mailedCode(email);
  for (let tries = 0; tries < 4; tries += 1) {
    assert.equal((await accounts.post('register/verify', { email, code: wrong(code) })).status, 400);
  }
  assert.equal((await accounts.post('register/verify', { email, code })).status, 200, 'the right one is still good');
  assert.equal((await accounts.post('register/verify', { email, code })).status, 200, 'and is not used up by that');
  assert.equal((await accounts.post('register/verify', { email, code: wrong(code) })).status, 400);
  const late = await accounts.post('register/verify', { email, code });
  assert.deepEqual([late.status, late.body.error], [400, 'invalid_code']);
  await accounts.post('register/send', { email });
  const fresh = await accounts.mailedCode(email);
  assert.equal((await accounts.post('register', { name: 'Ann', email, password, code: fresh })).status, 201);
  const again = await accounts.post('register', { name: 'Ann Two', email, password, code: fresh });
  assert.deepEqual([again.status, again.body.error], [400, 'invalid_code']);
});

test('A-04: a burst of parallel guesses gets five tries between them', async (t) => {
  const accounts = await startAccounts(t);
  const email = 'ann@example.org';
  await accounts.post('register/send', { email });
  const code = await accounts.mailedCode(email);
  const guesses = Array.from({ length: 20 }, (_, index) =>
    String((Number(code) + index + 1) % 1_000_000).padStart(6, '0'),
  );
  await Promise.all(guesses.map((guess) => accounts.post('register/verify', { email, code: guess })));
  assert.equal((await accounts.post('register/verify', { email, code })).body.error, 'invalid_code');
  const { attempts } = await accounts.database.query.selectFrom('flows').select('attempts').executeTakeFirstOrThrow();
  assert.equal(attempts, 5);
});

test('A-04, DA-6: guesses are limited by address, mails by requester first and by recipient last', async (t) => {
  const accounts = await startAccounts(t);
  for (let guess = 0; guess < 30; guess += 1) {
    const email = `victim${guess}@example.org`;
    assert.equal((await accounts.post('register/verify', { email, code: '123456' }, { from: '10.0.0.9' })).status, 400);
  }
  const stopped = await accounts.post(
    'register/verify',
    { email: 'x@example.org', code: '123456' },
    { from: '10.0.0.9' },
  );
  assert.deepEqual([stopped.status, stopped.body.error], [429, 'rate_limited']);
  assert.match(stopped.headers.get('retry-after') ?? '', /^\d+$/);

  const statuses = [];
  for (let mail = 0; mail < 4; mail += 1) {
    const from = '10.0.1.1';
    statuses.push((await accounts.post('register/send', { email: 'ann@example.org' }, { from })).status);
  }
  assert.deepEqual(statuses, [200, 200, 200, 429]);
  let sent = 3;
  for (let minute = 0; minute < 5; minute += 1) {
    await accounts.clock.advance(61_000);
    for (let mail = 0; mail < 3; mail += 1) {
      const answer = await accounts.post('register/send', { email: 'ann@example.org' }, { from: `10.0.2.${minute}` });
      if (answer.status === 200) sent += 1;
    }
  }
  assert.equal(sent, 11, 'ten an hour, and then one in ten minutes');
  let fromOne = 0;
  for (let mail = 0; mail < 35; mail += 1) {
    const answer = await accounts.post('register/send', { email: `p${mail}@example.org` }, { from: '10.0.3.1' });
    if (answer.status === 200) fromOne += 1;
  }
  assert.equal(fromOne, 30, 'thirty an hour from one address');
});

test('A-05: codes are six random digits, sealed in the store, and good for nothing but registering that address', async (t) => {
  const accounts = await startAccounts(t);
  const codes = [];
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    await accounts.post('register/send', { email: `${name}@example.org` });
    codes.push(await accounts.mailedCode(`${name}@example.org`));
  }
  for (const code of codes) assert.match(code, /^\d{6}$/);
  assert.ok(new Set(codes).size > 3);
  const rows = await accounts.database.query.selectFrom('flows').selectAll().execute();
  const stored = JSON.stringify(rows);
  for (const code of codes) assert.ok(!stored.includes(code), 'no code stands in clear');
  const other = await accounts.post('register/verify', { email: 'b@example.org', code: codes[0] });
  assert.ok(other.status === 400 || codes[0] === codes[1]);
  const reset = await accounts.post('password/forgot/confirm', { token: codes[0], password });
  assert.deepEqual([reset.status, reset.body.error], [400, 'invalid_token']);
  // Moved to another row, the sealed text does not open: rows cannot be swapped.
  const [first, second] = rows;
  await accounts.database.query
    .updateTable('flows')
    .set({ data: first?.data ?? '' })
    .where('key', '=', second?.key ?? '')
    .execute();
  const swapped = await accounts.post('register/verify', { email: second?.key, code: codes[0] });
  assert.equal(swapped.status, 500);
});

test('A-06: a code is enough without a verify call; with a wrong one there is no user', async (t) => {
  const accounts = await startAccounts(t);
  const email = 'ann@example.org';
  await accounts.post('register/send', { email });
  const code = await accounts.mailedCode(email);
  const refused = await accounts.post('register', { name: 'Ann', email, password, code: wrong(code) });
  assert.deepEqual([refused.status, refused.body.error], [400, 'invalid_code']);
  const bare = await accounts.post('register', { name: 'Ann', email, password });
  assert.deepEqual([bare.status, bare.body.error], [400, 'verification_required']);
  assert.deepEqual(await accounts.database.query.selectFrom('users').selectAll().execute(), []);
  assert.equal((await accounts.post('register', { name: 'Ann', email, password, code })).status, 201);
});

test('the token of a verify call registers as well, from the body or the cookie, once and for that address', async (t) => {
  const accounts = await startAccounts(t);
  const verified = async (email: string) => {
    await accounts.post('register/send', { email });
    const answer = await accounts.post('register/verify', { email, code: await accounts.mailedCode(email) });
    assert.equal(answer.body.verified, true);
    return answer;
  };
  const ann = await verified('ann@example.org');
  const bob = await verified('bob@example.org');
  const { verificationToken } = ann.body;
  const wrongAddress = { name: 'Bob', email: 'bob@example.org', password, verificationToken };
  assert.equal((await accounts.post('register', wrongAddress)).body.error, 'invalid_code');
  const application = { name: 'Ann', email: 'ann@example.org', password, verificationToken };
  assert.equal((await accounts.post('register', application)).status, 201);
  assert.equal((await accounts.post('register', { ...application, name: 'Ann2' })).body.error, 'invalid_code');
  const cookie = (bob.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
  assert.match(bob.headers.get('set-cookie') ?? '', /HttpOnly; SameSite=Lax/);
  const byCookie = await accounts.post('register', { name: 'Bob', email: 'bob@example.org', password }, { cookie });
  assert.equal(byCookie.status, 201);
});

test('two registrations race with one code: one wins, and a taken name leaves the code good', async (t) => {
  const accounts = await startAccounts(t);
  await accounts.register('Ann');
  const email = 'bob@example.org';
  await accounts.post('register/send', { email });
  const code = await accounts.mailedCode(email);
  const taken = await accounts.post('register', { name: 'ANN', email, password, code });
  assert.deepEqual([taken.status, taken.body.error], [409, 'name_already_exists']);
  const race = await Promise.all(
    ['Bob', 'Bobby', 'Robert'].map((name) => accounts.post('register', { name, email, password, code })),
  );
  assert.equal(race.filter(({ status }) => status === 201).length, 1);
  for (const { status, body } of race) {
    assert.ok(status === 201 || ['invalid_code', 'email_already_exists'].includes(body.error));
  }
});

test('without verification no code is asked for, and a registration starts a trial', async (t) => {
  const accounts = await startAccounts(t, { settings: '{ require_verification: false, trial_days: 14 }' });
  const answer = await accounts.post('register', { name: 'Ann', email: 'ann@example.org', password });
  assert.equal(answer.status, 201);
  const [trial] = await accounts.database.query.selectFrom('subscriptions').selectAll().execute();
  assert.deepEqual([trial?.plan_id, trial?.status, trial?.user_id], ['TRIAL-14D', 'trialing', answer.body.user.id]);
  assert.equal((trial?.expires_at ?? 0) - (trial?.created_at ?? 0), 14 * 86_400_000);
});

test('A-08: members that are not the applicant’s to set are ignored', async (t) => {
  const accounts = await startAccounts(t);
  const email = 'ann@example.org';
  await accounts.post('register/send', { email });
  const code = await accounts.mailedCode(email);
  const greedy = {
    role: 'admin',
    id: 'usr_root',
    uuid: 'usr_root',
    emailVerified: true,
    active: false,
    groups: ['wheel'],
    permissions: ['admin.settings.write'],
    proxyUuid: '00000000-0000-4000-8000-000000000000',
    access_epoch: 99,
    __proto__: { role: 'root' },
  };
  const { status, body } = await accounts.post('register', { name: 'Ann', email, password, code, ...greedy });
  assert.equal(status, 201);
  assert.equal(body.user.role, 'user');
  assert.notEqual(body.user.id, 'usr_root');
  assert.equal(body.user.active, true);
  assert.deepEqual([body.user.groups, body.user.permissions], [[], []]);
  assert.notEqual(body.user.proxyUuid, greedy.proxyUuid);
});

function wrong(code: string): string {
  return String((Number(code) + 1) % 1_000_000).padStart(6, '0');
}

test('every way to an account stores the same: a trial, an entry of the audit log, and a mail for those who cannot log in yet', async (t) => {
  const accounts = await startAccounts(t);
  const token = await accounts.offerSetup();
  const root = { name: 'Root', email: 'root@example.org', password };
  assert.equal((await accounts.post('setup', { ...root, token })).status, 201);
  const admin = { ...root, ...(await accounts.login({ ...root, id: '' })).body };
  const ways: Readonly<Record<string, () => Promise<unknown>>> = {
    registration: () => accounts.register('registration'),
    async invitation() {
      const { body } = await accounts.post('admin/invitations', {}, { token: admin.token });
      const given = { name: 'invitation', email: 'invitation@example.org', password };
      await accounts.post('invitations/accept', { ...given, token: body.token });
    },
    administrator: () =>
      accounts.post(
        'admin/users',
        { name: 'administrator', email: 'administrator@example.org', role: 'user' },
        { token: admin.token },
      ),
    command: () =>
      accounts.control('users.create', { name: 'command', email: 'command@example.org', role: 'readonly' }),
  };
  for (const [how, come] of Object.entries(ways)) {
    await come();
    const { body } = await accounts.get(`admin/users?search=${how}@example.org`, { token: admin.token });
    const [{ id, email, role }] = body.users;
    const trials = await accounts.database.query
      .selectFrom('subscriptions')
      .select(['kind', 'status'])
      .where('user_id', '=', id)
      .execute();
    assert.deepEqual(trials, [{ kind: 'trial', status: 'trialing' }], how);
    const [entry, ...more] = await auditOf(accounts, admin, `event=user.created&subject=${id}`);
    assert.deepEqual([entry?.details.how, entry?.details.role, more.length], [how, role, 0]);
    const needsPassword = how === 'administrator' || how === 'command';
    if (needsPassword) assert.match(await accounts.mailedToken(email), /^[\w-]{43}$/);
  }
  const [first] = await auditOf(accounts, admin, `event=user.created&actor=${admin.user.id}`);
  assert.ok(first);
  const operator = await loggedInAs(accounts, 'operator');
  const none = await accounts.get('subscriptions', { token: operator.token });
  assert.deepEqual(none.body.subscriptions, [], 'roles without a plan have no trial of one');
});
