import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { GOOD_PASSWORD } from '../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { until } from '../../kit/until.ts';

const FIRST = { name: 'Ann', email: 'ann@example.org', password: GOOD_PASSWORD };

for (const engine of engines) {
  describe(`the first administrator on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('A-17: there is no account before the set-up link is used, and exactly one root after it, however many try', async (t) => {
      const location = places.location();
      const clock = createFakeClock();
      const first = await startAccounts(t, { location, clock });
      const second = engine === 'postgres' ? await startAccounts(t, { location, clock }) : first;
      const users = first.database.query.selectFrom('users').selectAll().compile();
      assert.deepEqual(await first.database.read(users), []);
      for (const identifier of ['root', 'admin', 'administrator']) {
        const answer = await first.post('login', { identifier, password: 'admin' });
        assert.equal(answer.body.error, 'invalid_credentials');
      }
      const tokens = [await first.offerSetup(), await second.offerSetup()];
      const attempts = tokens.flatMap((token) => [
        first.post('setup', { ...FIRST, token }),
        second.post('setup', { token, name: 'Ben', email: 'ben@example.org', password: GOOD_PASSWORD }),
      ]);
      const answers = await Promise.all(attempts);
      assert.equal(answers.filter(({ status }) => status === 201).length, 1);
      for (const { status, body } of answers) {
        if (status === 201)
          assert.deepEqual([body.user.role, body.user.emailVerified, body.token], ['root', true, undefined]);
        else assert.ok(['setup_done', 'invalid_token'].includes(body.error), body.error);
      }
      assert.equal((await first.database.read(users)).length, 1);
      assert.equal(await first.offerSetup(), undefined);
      const made = answers.find(({ status }) => status === 201)?.body.user;
      const login = await second.post('login', { identifier: made.email, password: GOOD_PASSWORD });
      assert.equal((await first.get('admin/users', { token: login.body.token })).body.total, 1);
    });

    test('the first administrator chooses registration and the default plan, for this and every later start', async (t) => {
      const location = places.location();
      const plans = '{ pro: { models: ["*"], budget: { usd: 5 } }, lab: { models: ["*"], bridge: true } }';
      const clock = createFakeClock();
      const first = await startAccounts(t, { location, clock, plans });
      const token = await first.offerSetup();
      const offer = (await first.post('setup/options', { token })).body;
      assert.deepEqual(offer.registration, { value: 'open', isConfigured: false });
      assert.deepEqual(offer.default_plan, {
        value: 'free',
        isConfigured: false,
        plans: [
          { name: 'free', pays: false, bridge: false },
          { name: 'pro', pays: true, bridge: false },
          { name: 'lab', pays: false, bridge: true },
        ],
      });
      assert.equal((await first.post('setup/options', { token: 'x'.repeat(43) })).body.error, 'invalid_token');
      for (const [wrong, error] of [
        [{ default_plan: 'gold' }, 'invalid_plan'],
        [{ default_plan: 'legacy' }, 'invalid_plan'],
        [{ registration: 'maybe' }, 'invalid_request'],
      ] as const) {
        assert.equal((await first.post('setup', { ...FIRST, token, ...wrong })).body.error, error);
      }
      const chosen = { registration: 'invite', default_plan: 'pro' };
      assert.equal((await first.post('setup', { ...FIRST, token, ...chosen })).status, 201);
      assert.equal((await first.post('setup/options', { token })).body.error, 'invalid_token');

      const stands = async (accounts: typeof first, registration: string, plan: string) => {
        assert.equal((await accounts.get('methods')).body.registration, registration);
        const person = { name: `P ${registration}`, email: `${registration}@example.org` };
        const admin = (await accounts.post('login', { identifier: 'Ann', password: GOOD_PASSWORD })).body.token;
        const made = await accounts.post('admin/users', { ...person, role: 'user' }, { token: admin });
        assert.equal((await accounts.owners.ownerOf(made.body.user.id))?.plan, plan, registration);
      };
      await stands(first, 'invite', 'pro');
      const stranger = await first.post('register', { name: 'Eve', email: 'eve@example.org', password: GOOD_PASSWORD });
      assert.equal(stranger.body.error, 'invitation_required');
      await first.close();
      const configured = '{ registration: open, default_plan: lab }';
      const second = await startAccounts(t, { location, clock, plans, settings: configured });
      await stands(second, 'open', 'lab');
      await second.close();
      const third = await startAccounts(t, { location, clock });
      assert.equal((await third.get('methods')).body.registration, 'invite');
      const [row] = await third.database.read(
        third.database.query.selectFrom('users').select('id').where('role', '=', 'user').compile(),
      );
      assert.equal((await third.owners.ownerOf(row?.id ?? ''))?.plan, 'free', 'the plan is no longer defined');
    });

    test('what the configuration sets is not chosen at set-up', async (t) => {
      const settings = '{ registration: invite, default_plan: free }';
      const accounts = await startAccounts(t, { location: places.location(), settings });
      const token = await accounts.offerSetup();
      const offer = (await accounts.post('setup/options', { token })).body;
      assert.deepEqual([offer.registration.isConfigured, offer.default_plan.isConfigured], [true, true]);
      for (const chosen of [{ registration: 'open' }, { default_plan: 'free' }]) {
        const refused = await accounts.post('setup', { ...FIRST, token, ...chosen });
        assert.deepEqual([refused.status, refused.body.error], [409, 'setting_is_configured']);
        assert.match(refused.body.message, new RegExp(`accounts\\.${Object.keys(chosen)[0]}`));
      }
      assert.equal((await accounts.post('setup', { ...FIRST, token })).status, 201);
    });

    const isShared = engine === 'postgres';
    test('an instance that was not the one that was set up has the choices within a minute', {
      skip: !isShared,
    }, async (t) => {
      const location = places.location();
      const clock = createFakeClock();
      const [first, second] = [
        await startAccounts(t, { location, clock }),
        await startAccounts(t, { location, clock }),
      ];
      const chosen = { ...FIRST, token: await first.offerSetup(), registration: 'closed' };
      assert.equal((await first.post('setup', chosen)).status, 201);
      await until('the other instance to know', async () => {
        await clock.advance(60_000);
        return (await second.get('methods')).body.registration === 'closed';
      });
    });
  });
}

test('A-17: the link ends after 15 minutes, is stored hashed, and says nothing to those who guess', async (t) => {
  const accounts = await startAccounts(t);
  const token = (await accounts.offerSetup()) ?? '';
  assert.match(token, /^[\w-]{43}$/);
  const flows = await accounts.database.read(accounts.database.query.selectFrom('flows').selectAll().compile());
  assert.ok(!JSON.stringify(flows).includes(token) && !accounts.log().includes(token));
  const guess = await accounts.post('setup', { ...FIRST, token: 'x'.repeat(43), password: 'short' });
  assert.deepEqual([guess.status, guess.body.error], [400, 'invalid_token']);
  const attempt = (given: object) => accounts.post('setup', { ...FIRST, token, ...given });
  assert.equal((await attempt({ password: 'short' })).body.error, 'password_too_short');
  assert.equal((await attempt({ email: 'no address' })).body.error, 'invalid_email');
  assert.equal((await attempt({ name: '' })).body.error, 'name_required');
  assert.equal((await attempt({ password: 'password1' })).body.error, 'password_too_common');
  await accounts.clock.advance(15 * 60_000);
  assert.equal((await attempt({})).body.error, 'invalid_token');
});

test('A-17: a link that was printed before someone became administrator another way opens nothing', async (t) => {
  const accounts = await startAccounts(t);
  const token = await accounts.offerSetup();
  const admin = await loggedInAs(accounts, 'admin');
  assert.equal(admin.answer.body.user.role, 'root');
  const late = await accounts.post('setup', { ...FIRST, token });
  assert.deepEqual([late.status, late.body.error], [409, 'setup_done']);
});

test('a set-up that was stored and not confirmed is not said to be that of someone else', async (t) => {
  const accounts = await startAccounts(t);
  const token = await accounts.offerSetup();
  const { write } = accounts.database;
  const unconfirmed: typeof write = async (statements) => {
    await write(statements);
    throw new AppError('STORAGE_UNAVAILABLE');
  };
  Object.assign(accounts.database, { write: unconfirmed });
  const lost = await accounts.post('setup', { ...FIRST, token });
  assert.deepEqual([lost.status, lost.body.error], [503, 'storage_unavailable']);
  Object.assign(accounts.database, { write });
  assert.equal((await accounts.post('login', { identifier: FIRST.email, password: GOOD_PASSWORD })).status, 200);
});
