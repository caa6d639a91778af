import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { pino } from 'pino';
import { createAudit } from '../../src/accounts/audit.ts';
import { createLimiter } from '../../src/accounts/limiter/limiter.ts';
import { createPasswordCheck, type PasswordAttempt } from '../../src/accounts/login/password-check.ts';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { createAuditStore } from '../../src/accounts/storage/administration-stores.ts';
import { createCredentialStore } from '../../src/accounts/storage/credential-store.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { errorCode } from '../../src/platform/errors/app-error.ts';
import type { RequestHead } from '../../src/platform/http/surface.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';
import { databasePlaces } from '../kit/database-engines.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { until } from '../kit/until.ts';

const ANN = { id: 'usr_ann' };

function letEnd(comparing: (() => void)[]): void {
  for (const end of comparing.splice(0)) end();
}

describe('the password check', () => {
  const places = databasePlaces('sqlite');

  /** Comparisons wait until the test lets them end, so that a burst is a burst. */
  async function prepare({ held = false } = {}) {
    const clock = createFakeClock();
    const database = await places.open<AccountsSchema>({ name: 'accounts', migrations: accountsMigrations });
    const audit = createAudit({
      store: createAuditStore(database),
      clock,
      makeId: createSortableIds(clock, systemRandomness),
    });
    const comparing: (() => void)[] = [];
    const passwords = {
      hash: () => Promise.reject(new Error('nothing is hashed here')),
      isOutdated: () => false,
      async verify(hash: string | null, password: string) {
        if (held) await new Promise<void>((resolve) => comparing.push(resolve));
        return hash === `the hash of ${password}`;
      },
    };
    const credentials = createCredentialStore(database);
    await database.write([
      credentials.setPassword({ userId: ANN.id, hash: 'the hash of right', confirmed: false, now: clock.now() }),
    ]);
    const limiter = createLimiter(database, clock);
    const logger = pino({ level: 'silent' });
    const { check } = createPasswordCheck({ database, limiter, credentials, passwords, audit, clock, logger });
    const attempt = async (given: Partial<PasswordAttempt> & { readonly from?: string } = {}) => {
      const { from = '10.0.0.1', ...rest } = given;
      const head = { address: from, requestId: 'req_1' } as RequestHead;
      const right = await check({
        user: ANN,
        identifier: 'ann@example.org',
        password: 'wrong',
        known: undefined,
        head,
        ...rest,
      });
      if (right === undefined) return 'no';
      await database.write(right.statements);
      return 'yes';
    };
    const events = async (name: string) => {
      const rows = await database.query.selectFrom('audit').selectAll().where('event', '=', name).execute();
      return rows.map(({ subject, address, details }) => ({ subject, address, details: JSON.parse(details) }));
    };
    return { clock, attempt, events, comparing };
  }

  test('A-14: of a burst on one account from one address, no more are compared at the same time than may still fail', async () => {
    const { attempt, events, comparing } = await prepare({ held: true });
    const burst = Promise.all(Array.from({ length: 20 }, () => attempt()));
    await until('the first comparisons', async () => comparing.length >= 5);
    const other = attempt({ from: '10.0.0.2', password: 'right' });
    await until('the comparison from elsewhere', async () => comparing.length >= 6);
    assert.equal(comparing.length, 6, 'five of the burst, and one that has nothing to do with it');
    const letGo = setInterval(() => letEnd(comparing), 1);
    assert.deepEqual(new Set(await burst), new Set(['no']));
    assert.equal(await other, 'yes');
    clearInterval(letGo);
    assert.equal((await events('login.failed')).length, 5);
    assert.equal((await events('login.refused')).length, 15);
  });

  test('A-15: of a burst on many accounts from one address, no more than thirty are compared', async () => {
    const { attempt, events, comparing } = await prepare({ held: true });
    const burst = Promise.allSettled(
      Array.from({ length: 40 }, (_, index) => attempt({ user: undefined, identifier: `u${index}@example.org` })),
    );
    await until('the first comparisons', async () => comparing.length >= 30);
    assert.equal(comparing.length, 30);
    const letGo = setInterval(() => letEnd(comparing), 1);
    const codes = (await burst).map((one) => (one.status === 'fulfilled' ? one.value : errorCode(one.reason)));
    clearInterval(letGo);
    assert.equal(codes.filter((code) => code === 'no').length, 30);
    assert.equal(codes.filter((code) => code === 'RATE_LIMITED').length, 10);
    assert.equal((await events('login.failed')).length, 30);
  });

  test('A-15: a user who is limited sees when the minute is over', async () => {
    const { clock, attempt } = await prepare();
    for (let index = 0; index < 30; index += 1) {
      await attempt({ user: undefined, identifier: `u${index}@example.org` });
    }
    await clock.advance(20_500);
    await assert.rejects(attempt(), { code: 'RATE_LIMITED', details: { retryAfterSeconds: 40 } });
  });

  test('A-14: failures and locks are in the audit log with whom they are about, and until when', async () => {
    const { clock, attempt, events } = await prepare();
    const started = clock.now();
    for (let failure = 1; failure <= 6; failure += 1) await attempt();
    await attempt({ user: undefined, identifier: 'nobody@example.org' });
    const about = (subject: string) => ({ subject, address: '10.0.0.1', details: {} });
    assert.deepEqual(await events('login.failed'), [...Array(5).fill(about(ANN.id)), about('')]);
    assert.deepEqual(await events('login.refused'), [about(ANN.id)]);
    assert.deepEqual(await events('login.locked'), [
      { subject: ANN.id, address: '10.0.0.1', details: { until: new Date(started + 30_000).toISOString() } },
    ]);
  });

  test('A-14: that only known devices are let in is in the audit log once', async () => {
    const { clock, attempt, events } = await prepare();
    for (let failure = 1; failure < 50; failure += 1) await attempt({ from: `10.7.${failure}.1` });
    assert.deepEqual(await events('account.known_devices_only'), []);
    for (let failure = 50; failure <= 52; failure += 1) await attempt({ from: `10.7.${failure}.1` });
    const details = { until: new Date(clock.now() + 15 * 60_000).toISOString() };
    assert.deepEqual(await events('account.known_devices_only'), [{ subject: ANN.id, address: '10.7.50.1', details }]);
    assert.equal(await attempt({ from: '10.0.0.9', password: 'right' }), 'no');
    assert.equal(await attempt({ from: '10.0.0.9', password: 'right', known: 'a device' }), 'yes');
  });

  test('A-13: tries on somebody who does not exist are counted, however the name is written', async () => {
    const { attempt, events } = await prepare();
    for (const identifier of ['nobody@example.org', 'Nobody@Example.org', 'NOBODY@EXAMPLE.ORG', 'nobody@example.ORG']) {
      await attempt({ user: undefined, identifier });
    }
    await attempt({ user: undefined, identifier: 'somebody.else@example.org' });
    assert.equal((await events('login.locked')).length, 0);
    await attempt({ user: undefined, identifier: 'nobody@example.org' });
    assert.equal((await events('login.locked')).length, 1);
  });
});
