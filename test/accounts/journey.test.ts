import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startAccounts } from './start-accounts.ts';

test('someone registers by a mailed code, logs in, enrols, and recovers', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  assert.equal(ann.answer.body.user.email, 'ann@example.org');
  const session = await accounts.get('session', { token: ann.token });
  assert.equal(session.status, 200, session.text);
  const enrolled = await accounts.enrol(ann);
  assert.equal(enrolled.recoveryCodes.length, 10);
  const half = await accounts.login(ann);
  assert.equal(half.body.mfaRequired, true, half.text);
  await accounts.clock.advance(60_000);
  const full = await accounts.post('mfa/verify', { mfa_ticket: half.body.mfa_ticket, code: enrolled.code() });
  assert.equal(full.status, 200, full.text);
  const refreshed = await accounts.post('token/refresh', { refresh_token: full.body.refresh_token });
  assert.equal(refreshed.status, 200, refreshed.text);
});
