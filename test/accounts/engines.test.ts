import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';

const NEW_PASSWORD = 'quiet harbour 19 lanterns';

for (const engine of engines) {
  describe(`accounts on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('a whole life: register, log in, enrol, recover, refresh, reset, forget, change, end', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const ann = await accounts.loggedIn('Ann');
      const enrolled = await accounts.enrol(ann);
      await accounts.clock.advance(60_000);
      const byCode = await accounts.login(ann, { totpCode: enrolled.code() });
      assert.equal(byCode.status, 200, byCode.text);
      const { mfa_ticket } = (await accounts.login(ann)).body;
      const recovered = await accounts.post('mfa/verify', { mfa_ticket, recoveryCode: enrolled.recoveryCodes[3] });
      assert.equal(recovered.status, 200, recovered.text);
      const refreshed = await accounts.post('token/refresh', { refresh_token: recovered.body.refresh_token });
      assert.equal(refreshed.status, 200, refreshed.text);
      const token = refreshed.body.access_token;
      assert.equal((await accounts.post('password/reset', {}, { token })).status, 202);
      const reset = await accounts.post(
        'password/reset/confirm',
        { token: await accounts.mailedToken(ann.email), password: NEW_PASSWORD },
        { token },
      );
      assert.equal(reset.status, 200, reset.text);
      await accounts.clock.advance(60_000);
      const disabled = await accounts.post(
        'mfa/disable',
        { password: NEW_PASSWORD, code: enrolled.code() },
        { token: reset.body.token },
      );
      assert.equal(disabled.status, 200, disabled.text);
      const { device_code, user_code } = (await accounts.post('device/code')).body;
      assert.equal((await accounts.post('device/token', { device_code })).body.error, 'authorization_pending');
      const approval = `device/approval/${user_code}`;
      assert.equal((await accounts.post(approval, { approve: true }, { token: reset.body.token })).status, 204);
      assert.equal((await accounts.post('device/token', { device_code })).status, 200);
      const changed = await accounts.post(
        'password/change',
        { currentPassword: NEW_PASSWORD, newPassword: 'third harbour 19' },
        { token: reset.body.token },
      );
      assert.equal(changed.status, 200, changed.text);
      const { sessions } = (await accounts.get('sessions', { token: changed.body.token })).body;
      assert.equal(sessions.length, 1);
      assert.equal(
        (await accounts.call('DELETE', `sessions/${sessions[0].id}`, { token: changed.body.token })).status,
        204,
      );
      assert.equal((await accounts.get('session', { token: changed.body.token })).status, 401);
    });

    test('locks and limits count, lock and open again', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const ann = await accounts.register('Ann');
      const from = '10.0.0.1';
      const wrong = { ...ann, password: 'not the password' };
      for (let failure = 0; failure < 6; failure += 1) await accounts.login(wrong, {}, { from });
      assert.equal((await accounts.login(ann, {}, { from })).status, 401);
      await accounts.clock.advance(31_000);
      assert.equal((await accounts.login(ann, {}, { from })).status, 200);
      const events = await accounts.database.query.selectFrom('audit').select('event').orderBy('id').execute();
      assert.deepEqual(
        new Set(events.map(({ event }) => event)),
        new Set(['user.created', 'login.failed', 'login.locked', 'login.refused', 'login']),
      );
    });

    test('what has ended is swept in small steps, and audit records after their time', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), auditRetentionMs: 40 * 86_400_000 });
      const ann = await accounts.loggedIn('Ann');
      await accounts.login({ ...ann, password: 'not the password' });
      await accounts.post('password/forgot', { email: ann.email });
      await accounts.post('token/refresh', { refresh_token: ann.refreshToken });
      const tables = ['sessions', 'session_tokens', 'refresh_tokens', 'flows', 'limits', 'audit'] as const;
      const counts = async () => {
        const { query } = accounts.database;
        const rows = await Promise.all(tables.map((table) => query.selectFrom(table).selectAll().execute()));
        return rows.map(({ length }) => length);
      };
      for (const count of await counts()) assert.ok(count > 0);
      await accounts.clock.sleep(31 * 86_400_000);
      // Each look lets the sweep's next minute come.
      await accounts.eventually(async () => {
        await accounts.clock.advance(60_000);
        return (await counts()).slice(0, -1).every((count) => count === 0);
      });
      assert.ok(((await counts()).at(-1) ?? 0) > 0, 'audit records are still there');
      await accounts.clock.sleep(10 * 86_400_000);
      await accounts.eventually(async () => {
        await accounts.clock.advance(60_000);
        return (await counts()).every((count) => count === 0);
      });
    });
  });
}
