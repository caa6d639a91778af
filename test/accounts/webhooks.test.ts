import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { after, describe, type TestContext, test } from 'node:test';
import { signedAt } from '../../src/accounts/subscriptions/subscriptions.ts';
import { DISABLED_AFTER_MS, RETRY_MS } from '../../src/accounts/webhooks/webhook-post.ts';
import { systemCallbackNetwork } from '../../src/platform/callbacks/callback-post.ts';
import type { LoggedIn } from '../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../kit/accounts/people.ts';
import { type RunningAccounts, type StartOptions, startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { listenOnLoopback } from '../kit/loopback-server.ts';
import { until } from '../kit/until.ts';

const ALL = [
  'user.created',
  'user.paused',
  'subscription.changed',
  'key.created',
  'session.needs_input',
  'job.started',
];
const ALLOWED = '{ webhook_allow: [127.0.0.0/8] }';

interface Received {
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: events have different members.
  readonly body: any;
}

/** A receiver on a port of its own. `answer` gives the status of the next response. */
async function startReceiver(t: Pick<TestContext, 'after'>, answer: () => number | Promise<number> = () => 204) {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    request.on('end', async () => {
      received.push({ headers: request.headers, text, body: JSON.parse(text) });
      response.writeHead(await answer()).end();
    });
  });
  const { url, close } = await listenOnLoopback(server);
  t.after(close);
  return { url: `${url}/hook`, received };
}

async function addWebhook(accounts: RunningAccounts, admin: LoggedIn, url: string, events: readonly string[] = ALL) {
  const answer = await accounts.post('admin/webhooks', { url, events }, { token: admin.token });
  assert.equal(answer.status, 201, answer.text);
  return answer.body as { webhook: { id: string }; secret: string };
}

const hooksOf = async (accounts: RunningAccounts, { token }: LoggedIn) =>
  (await accounts.get('admin/webhooks', { token })).body.webhooks;
const deliveriesOf = async (accounts: RunningAccounts, { token }: LoggedIn, id: string, query = '') =>
  (await accounts.get(`admin/webhooks/${id}/deliveries${query}`, { token })).body;

for (const engine of engines) {
  describe(`webhooks on ${engine}`, () => {
    const places = databasePlaces(engine);
    const start = (t: TestContext, options: StartOptions = {}) =>
      startAccounts(t, { location: places.location(), settings: ALLOWED, ...options });

    test('every event is posted once, signed with the secret that is shown once', async (t) => {
      const accounts = await start(t);
      const admin = await loggedInAs(accounts, 'admin');
      const { url, received } = await startReceiver(t);
      const { webhook, secret } = await addWebhook(accounts, admin, url);
      assert.match(secret, /^whs_/);
      const ann = await accounts.register('Ann');
      const claim = { externalId: 'sub-1', planId: 'pro' };
      const bob = await accounts.loggedIn('Bob');
      const { subscription } = (await accounts.post('subscriptions', claim, { token: bob.token })).body;
      const status = { status: 'active', planId: 'pro' };
      await accounts.post(`admin/subscriptions/${subscription.id}/status`, status, { token: admin.token });
      await accounts.post('subscriptions/cancel', { externalId: 'sub-1' }, { token: bob.token });
      await accounts.post(`admin/users/${ann.id}/pause`, {}, { token: admin.token });
      await accounts.post(`admin/users/${ann.id}/pause`, {}, { token: admin.token });
      const details = { key: 'key_1', name: 'a name' };
      await accounts.owners.record({ event: 'key.created', subject: `user:${bob.id}`, details });
      await accounts.owners.record({ event: 'key.removed', subject: `user:${bob.id}`, details });
      accounts.announce({ event: 'job.started', data: { jobId: 'job_1', attempt: 1 } });
      accounts.announce({ event: 'session.needs_input', data: { sessionId: 's', permissionId: 'perm_1' } });

      await until('eight events', () => received.length >= 8);
      const told = received.map(({ body }) => `${body.event} ${JSON.stringify(body.data)}`).sort();
      const subscriptionId = subscription.id;
      const changed = { subscriptionId, userId: bob.id, externalId: 'sub-1' };
      assert.deepEqual(
        told,
        [
          `user.created ${JSON.stringify({ userId: ann.id, role: 'user', how: 'registration' })}`,
          `user.created ${JSON.stringify({ userId: bob.id, role: 'user', how: 'registration' })}`,
          `subscription.changed ${JSON.stringify({ ...changed, before: 'pending', status: 'active', plan: 'pro' })}`,
          `subscription.changed ${JSON.stringify({ ...changed, before: 'active', status: 'cancelled', plan: 'pro' })}`,
          `user.paused ${JSON.stringify({ userId: ann.id, by: admin.id })}`,
          `key.created ${JSON.stringify({ keyId: 'key_1', owner: `user:${bob.id}` })}`,
          `job.started ${JSON.stringify({ jobId: 'job_1', attempt: 1 })}`,
          `session.needs_input ${JSON.stringify({ sessionId: 's', permissionId: 'perm_1' })}`,
        ].sort(),
      );
      for (const { headers, text, body } of received) {
        const signature = String(headers['x-app-signature']);
        const now = accounts.clock.now();
        assert.notEqual(signedAt(signature, Buffer.from(text), secret, now), undefined, 'the signature is right');
        assert.equal(signedAt(signature, Buffer.from(`${text} `), secret, now), undefined);
        assert.equal(headers['x-app-event'], body.event);
        assert.equal(headers['x-app-delivery'], `${body.id}.${webhook.id}`);
        assert.doesNotMatch(text, /@example|Ann|Bob|a name/, 'ids, and neither names nor addresses');
      }

      await until('all are stored as sent', async () => (await hooksOf(accounts, admin))[0].waiting === 0);
      const first = await deliveriesOf(accounts, admin, webhook.id, '?limit=5');
      const rest = await deliveriesOf(accounts, admin, webhook.id, `?cursor=${first.nextCursor}`);
      assert.deepEqual([first.deliveries.length, rest.deliveries.length, rest.nextCursor], [5, 3, null]);
      for (const delivery of first.deliveries) {
        assert.deepEqual([delivery.state, delivery.attempts, delivery.detail], ['sent', 1, 'HTTP 204']);
      }
      const stored = await accounts.database.query.selectFrom('webhooks').selectAll().execute();
      assert.ok(
        !JSON.stringify([stored, await hooksOf(accounts, admin)]).includes(secret),
        'sealed, and never shown again',
      );
      const entries = await auditOf(accounts, admin, 'event=webhook.created');
      assert.deepEqual(
        entries.map(({ actor, subject }) => [actor, subject]),
        [[admin.id, webhook.id]],
      );
      assert.ok(!accounts.log().includes(secret));
    });

    test('an event is stored with the change that it tells of, or neither is', async (t) => {
      const accounts = await start(t);
      const admin = await loggedInAs(accounts, 'admin');
      const { url } = await startReceiver(t, () => 503);
      const { webhook } = await addWebhook(accounts, admin, url, ['user.created']);
      const make = (name: string) =>
        accounts.post('admin/users', { email: 'ben@example.org', name, role: 'user' }, { token: admin.token });
      assert.equal((await make('Ben')).status, 201);
      assert.equal((await make('Ben the second')).body.error, 'email_already_exists');
      await accounts.post('admin/users/usr_none/pause', {}, { token: admin.token });
      assert.equal((await deliveriesOf(accounts, admin, webhook.id)).deliveries.length, 1);
    });

    test('a delivery outlives its program, and one of two instances makes it, once', async (t) => {
      let isUp = false;
      const { url, received } = await startReceiver(t, () => (isUp ? 200 : 503));
      const location = places.location();
      const clock = createFakeClock();
      const first = await start(t, { location, clock });
      const admin = await loggedInAs(first, 'admin');
      const { webhook } = await addWebhook(first, admin, url, ['user.created']);
      const created = { name: 'Ann', email: 'ann@example.org', role: 'user' };
      await first.post('admin/users', created, { token: admin.token });
      await until('the first attempt', async () => {
        const [delivery] = (await deliveriesOf(first, admin, webhook.id)).deliveries;
        return delivery.detail === 'HTTP 503';
      });
      await first.close();
      assert.equal(received.length, 1);

      isUp = true;
      const second = await start(t, { location, clock });
      const third = engine === 'postgres' ? await start(t, { location, clock }) : second;
      await clock.advance(RETRY_MS[0] ?? 0);
      await until('the delivery', async () => {
        return (await deliveriesOf(third, admin, webhook.id)).deliveries[0].state === 'sent';
      });
      await clock.advance(120_000);
      assert.equal(received.length, 2);
      assert.equal(received[1]?.headers['x-app-delivery'], received[0]?.headers['x-app-delivery']);
      assert.equal(received[1]?.text, received[0]?.text);
    });

    test('a delivery whose instance died is made by another when its claim has ended', async (t) => {
      const { url, received } = await startReceiver(t);
      const accounts = await start(t);
      const admin = await loggedInAs(accounts, 'admin');
      const { webhook } = await addWebhook(accounts, admin, url, ['user.created']);
      const row = { id: `evt_1.${webhook.id}`, webhook_id: webhook.id, event: 'user.created', body: '{"id":"evt_1"}' };
      const claimed = { state: 'waiting', attempts: 1, detail: '', due_at: accounts.clock.now() + 25_000 } as const;
      const times = { created_at: accounts.clock.now(), ended_at: null };
      await accounts.database.query
        .insertInto('webhook_deliveries')
        .values({ ...row, ...claimed, ...times })
        .execute();
      await accounts.clock.advance(24_000);
      assert.equal(received.length, 0);
      await accounts.clock.advance(1000);
      await until('its end', async () => (await hooksOf(accounts, admin))[0].waiting === 0);
      assert.equal(received.length, 1);
    });

    test('a receiver that fails is tried again with growing pauses, and its webhook is switched off after three days', async (t) => {
      let status = 503;
      const { url, received } = await startReceiver(t, () => status);
      const accounts = await start(t);
      const admin = await loggedInAs(accounts, 'admin');
      const { webhook } = await addWebhook(accounts, admin, url, ['job.started']);
      /** From the database: nobody's login lasts as long as the pauses. */
      const newest = async () =>
        (await accounts.database.query.selectFrom('webhook_deliveries').selectAll().orderBy('id', 'desc').execute())[0];
      const hook = async () => (await accounts.database.query.selectFrom('webhooks').selectAll().execute())[0];
      accounts.announce({ event: 'job.started', data: { jobId: 'job_1' } });
      for (const [index, pause] of RETRY_MS.entries()) {
        const dueAt = accounts.clock.now() + pause;
        await until(`a pause after attempt ${index + 1}`, async () => {
          const found = await newest();
          return found?.attempts === index + 1 && found.due_at === dueAt;
        });
        await accounts.clock.sleep(pause);
      }
      await until('the end', async () => (await newest())?.state === 'failed');
      assert.equal((await newest())?.attempts, RETRY_MS.length + 1);
      assert.deepEqual([(await hook())?.failing_since !== null, (await hook())?.disabled_at], [true, null]);

      // A response that says "never" is not tried again.
      status = 404;
      accounts.announce({ event: 'job.started', data: { jobId: 'job_2' } });
      await until('the refusal', async () => (await newest())?.detail === 'HTTP 404');
      assert.deepEqual([(await newest())?.state, (await newest())?.attempts], ['failed', 1]);

      await accounts.clock.sleep(DISABLED_AFTER_MS);
      const root = { ...admin, ...(await freshLogin(accounts, admin)) };
      accounts.announce({ event: 'job.started', data: { jobId: 'job_3' } });
      await until('the switch', async () => (await hooksOf(accounts, root))[0].disabledAt !== null);
      const count = received.length;
      accounts.announce({ event: 'job.started', data: { jobId: 'job_4' } });
      await accounts.eventually(async () =>
        (await accounts.mails(admin.email)).some((text) => text.includes('webhook')),
      );
      const [entry] = await auditOf(accounts, root, 'event=webhook.disabled');
      assert.deepEqual([entry?.actor, entry?.subject], ['system', webhook.id]);
      assert.deepEqual(
        [(await hooksOf(accounts, root))[0].waiting, received.length],
        [0, count],
        'nothing more is sent',
      );

      status = 204;
      const enable = (id: string) => accounts.post(`admin/webhooks/${id}/enable`, {}, { token: root.token });
      const enabled = await enable(webhook.id);
      assert.deepEqual([enabled.status, enabled.body.webhook.disabledAt], [200, null]);
      assert.equal((await enable(webhook.id)).status, 200, 'one that is on stays on');
      assert.deepEqual(
        [(await enable('whk_none')).status, (await enable('whk_none')).body.error],
        [404, 'webhook_not_found'],
      );
      accounts.announce({ event: 'job.started', data: { jobId: 'job_5' } });
      await until('the next event', () => received.length > count);
      assert.deepEqual(
        received.slice(count).map(({ body }) => body.data.jobId),
        ['job_5'],
      );
      assert.equal((await auditOf(accounts, root, 'event=webhook.enabled')).length, 1);
    });

    test('a delivery that fails does not switch off a webhook that another one has reached since', async (t) => {
      const first = Promise.withResolvers<number>();
      let count = 0;
      const { url } = await startReceiver(t, () => {
        count += 1;
        return count === 1 ? first.promise : 204;
      });
      const accounts = await start(t);
      const admin = await loggedInAs(accounts, 'admin');
      const { webhook } = await addWebhook(accounts, admin, url, ['job.started']);
      const since = accounts.clock.now() - DISABLED_AFTER_MS;
      await accounts.database.query.updateTable('webhooks').set({ failing_since: since }).execute();
      accounts.announce({ event: 'job.started', data: { jobId: 'job_1' } });
      await until('the first attempt', () => count === 1);
      accounts.announce({ event: 'job.started', data: { jobId: 'job_2' } });
      await until('the success', async () => (await hooksOf(accounts, admin))[0].failingSince === null);
      first.resolve(404);
      await until('the failure', async () =>
        (await deliveriesOf(accounts, admin, webhook.id)).deliveries.some(
          ({ state }: { state: string }) => state === 'failed',
        ),
      );
      await accounts.post(
        'admin/users',
        { name: 'Ann', email: 'ann@example.org', role: 'user' },
        { token: admin.token },
      );
      assert.equal((await hooksOf(accounts, admin))[0].disabledAt, null);
    });

    test('a success ends a failure, and events past the limit of the queue are counted as dropped', async (t) => {
      let status = 503;
      const { url } = await startReceiver(t, () => status);
      const accounts = await start(t);
      const admin = await loggedInAs(accounts, 'admin');
      const { webhook } = await addWebhook(accounts, admin, url, ['job.started']);
      accounts.announce({ event: 'job.started', data: { jobId: 'job_1' } });
      await until('the failure', async () => (await hooksOf(accounts, admin))[0].failingSince !== null);
      status = 200;
      await accounts.clock.advance(RETRY_MS[0] ?? 0);
      await until('the success', async () => (await hooksOf(accounts, admin))[0].failingSince === null);

      const later = accounts.clock.now() + 3_600_000;
      const rows = Array.from({ length: 1000 }, (_, index) => ({
        id: `evt_${String(index).padStart(4, '0')}.${webhook.id}`,
        webhook_id: webhook.id,
        event: 'job.started',
        body: '{}',
        state: 'waiting' as const,
        attempts: 1,
        detail: '',
        due_at: later,
        created_at: later,
        ended_at: null,
      }));
      for (let at = 0; at < rows.length; at += 100) {
        await accounts.database.query
          .insertInto('webhook_deliveries')
          .values(rows.slice(at, at + 100))
          .execute();
      }
      accounts.announce({ event: 'job.started', data: { jobId: 'job_2' } });
      await until('the count', async () => (await hooksOf(accounts, admin))[0].dropped === 1);
      assert.equal((await hooksOf(accounts, admin))[0].waiting, 1000);

      assert.equal((await accounts.call('DELETE', `admin/webhooks/${webhook.id}`, { token: admin.token })).status, 204);
      const left = await accounts.database.query.selectFrom('webhook_deliveries').select('id').execute();
      assert.equal(left.length, 0, 'its deliveries went with it');
      const gone = await accounts.call('DELETE', `admin/webhooks/${webhook.id}`, { token: admin.token });
      assert.deepEqual([gone.status, gone.body.error], [404, 'webhook_not_found']);
      const none = await accounts.get(`admin/webhooks/${webhook.id}/deliveries`, { token: admin.token });
      assert.equal(none.status, 404);
    });
  });
}

/** A new login, for someone whose session has ended in the time that passed. */
async function freshLogin(accounts: RunningAccounts, person: LoggedIn) {
  const { body } = await accounts.login(person);
  return { token: body.token as string };
}

describe('where webhooks may go', async () => {
  const network = {
    ...systemCallbackNetwork,
    lookUp: async (name: string) => (name === 'inside.example' ? ['8.8.8.8', '10.0.0.7'] : ['8.8.8.8']),
  };
  const accounts = await startAccounts({ after }, { network });
  const admin = await loggedInAs(accounts, 'admin');
  const make = (url: string, events: readonly string[] = ['user.created']) =>
    accounts.post('admin/webhooks', { url, events }, { token: admin.token });

  test('private addresses, names that lead there, other schemes and credentials are refused', async () => {
    const refused = [
      'http://127.0.0.1:9/hook',
      'http://localhost:9/hook',
      'http://10.1.2.3/hook',
      'http://[::1]/hook',
      'http://169.254.169.254/latest',
      'https://inside.example/hook',
      'ftp://example.org/hook',
      'https://ann:secret@example.org/hook',
      'https://example.org:22/hook',
      'not a url',
    ];
    for (const url of refused) {
      const answer = await make(url);
      assert.deepEqual([answer.status, answer.body.error], [400, 'callback_url_refused'], url);
    }
    assert.match((await make('http://10.1.2.3/')).body.message, /accounts\.webhook_allow/);
    assert.equal((await make('https://outside.example/hook')).status, 201);
  });

  test('unknown events, no events and other members are refused, and there is a limit', async () => {
    for (const body of [
      { url: 'https://outside.example/', events: ['user.deleted'] },
      { url: 'https://outside.example/', events: [] },
      { url: 'https://outside.example/', events: ['user.created'], secret: 'mine' },
      { events: ['user.created'] },
    ]) {
      assert.equal((await accounts.post('admin/webhooks', body, { token: admin.token })).status, 400);
    }
    for (let count = (await hooksOf(accounts, admin)).length; count < 20; count += 1) {
      assert.equal((await make('https://outside.example/hook')).status, 201);
    }
    const full = await make('https://outside.example/hook');
    assert.deepEqual([full.status, full.body.error], [409, 'too_many_webhooks']);
  });

  test('creating one needs a login of the last five minutes', async () => {
    await accounts.clock.advance(6 * 60_000);
    assert.equal((await make('https://outside.example/hook')).status, 401);
  });
});
