import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { newUserRow } from '../../src/accounts/registration/new-user.ts';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { createSessionStore } from '../../src/accounts/storage/session-store.ts';
import { createUserStore } from '../../src/accounts/storage/user-store.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';

const NOW = Date.UTC(2030, 0, 1);
const makeId = createSortableIds({ now: () => NOW }, systemRandomness);

for (const engine of engines) {
  describe(`sessions on ${engine}`, () => {
    const places = databasePlaces(engine);

    async function prepare() {
      const database = await places.open<AccountsSchema>({ name: 'accounts', migrations: accountsMigrations });
      const user = newUserRow(
        {
          name: 'Ann',
          email: 'ann@example.org',
          emailVerified: true,
          confirmed: true,
          passwordHash: null,
          role: 'user',
          now: NOW,
        },
        makeId,
        systemRandomness,
      );
      const users = createUserStore(database);
      await database.write(users.add(user));
      const sessions = createSessionStore(database);
      const start = (name: string, epoch: number) =>
        database.write(
          sessions.start({
            id: `ses_${name}`,
            user_id: user.id,
            epoch,
            created_at: NOW,
            last_seen_at: NOW,
            access_expires_at: NOW + 1000,
            cookieExpiresAt: NOW + 3000,
            expires_at: NOW + 2000,
            family_expires_at: NOW + 3000,
            address: '10.0.0.1',
            user_agent: 'a test',
            tokenHash: `token ${name}`,
            refreshHash: `refresh ${name}`,
          }),
        );
      return { database, user, users, sessions, start };
    }

    test('a session is opened only for the epoch that its user has at that moment', async () => {
      const { database, user, sessions, start } = await prepare();
      await start('first', user.access_epoch);
      assert.equal((await sessions.byToken('token first'))?.email, 'ann@example.org');
      await database.query
        .updateTable('users')
        .set({ access_epoch: user.access_epoch + 1 })
        .execute();
      await assert.rejects(start('late', user.access_epoch), { code: 'STORAGE_CONFLICT' });
      assert.equal(await sessions.byToken('token late'), undefined);
      const found = await sessions.byToken('token first');
      assert.notEqual(found?.session_epoch, found?.access_epoch, 'and what was opened before does not count');
      await start('next', user.access_epoch + 1);
      assert.deepEqual(
        (await sessions.ofUser(user.id, user.access_epoch + 1, NOW)).map(({ id }) => id),
        ['ses_next'],
      );
    });

    test('none is opened for someone who is paused', async () => {
      const { database, user, start } = await prepare();
      await database.query.updateTable('users').set({ active: 0 }).execute();
      await assert.rejects(start('first', user.access_epoch), { code: 'STORAGE_CONFLICT' });
    });

    test('of two rotations of one generation one is stored, and nothing of the other', async () => {
      const { database, user, sessions, start } = await prepare();
      await start('first', user.access_epoch);
      const rotate = (name: string) =>
        database.write(
          sessions.rotate({
            sessionId: 'ses_first',
            generation: 0,
            usedHash: 'refresh first',
            tokenHash: `token ${name}`,
            refreshHash: `refresh ${name}`,
            accessExpiresAt: NOW + 5000,
            cookieExpiresAt: NOW + 6000,
            refreshExpiresAt: NOW + 6000,
            oldTokensEndAt: NOW + 10,
            replacement: name,
            now: NOW,
          }),
        );
      const outcomes = await Promise.allSettled(['a', 'b', 'c'].map(rotate));
      assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1);
      assert.equal((await database.query.selectFrom('session_tokens').selectAll().execute()).length, 2);
      assert.equal((await database.query.selectFrom('refresh_tokens').selectAll().execute()).length, 2);
      const old = await sessions.byToken('token first');
      assert.equal(old?.token_expires_at, NOW + 10);
      assert.equal((await sessions.byRefreshToken('refresh first'))?.current_generation, 1);
    });

    test('a user cannot end the session of another, and ending others leaves the own one', async () => {
      const { database, user, sessions, start } = await prepare();
      await start('first', user.access_epoch);
      await start('second', user.access_epoch);
      await database.write([sessions.end({ id: 'ses_first', userId: 'usr_other' })]);
      assert.ok(await sessions.byToken('token first'));
      await database.write([sessions.endOthersOf({ id: 'ses_first', userId: user.id })]);
      assert.ok(await sessions.byToken('token first'));
      assert.equal(await sessions.byToken('token second'), undefined);
      assert.equal(await sessions.byRefreshToken('refresh second'), undefined, 'its refresh token ends with it');
    });
  });
}
