import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freePort } from '../kit/free-port.ts';
import { printedBlock } from '../kit/printed-blocks.ts';
import { startProgram } from '../kit/running-program.ts';
import { addAuthenticator, PASSWORD } from './logged-in.ts';
import { openPage } from './open-page.ts';

/** Runs in the page, by the cookie of the browser alone. */
const STEPS = `
  globalThis.send = async (path, body) => {
    const response = await fetch('/api/auth/' + path, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
    });
    return { status: response.status, body: response.status === 204 ? null : await response.json() };
  };
  globalThis.addPasskey = async (name) => {
    const { body } = await send('passkeys/options?add=1', {});
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(body.publicKey);
    const credential = await navigator.credentials.create({ publicKey });
    return send('passkeys/verify?add=1', { credential: credential.toJSON(), name });
  };
  globalThis.usePasskey = async (more) => {
    const { body } = await send('passkeys/options', more);
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(body.publicKey);
    const credential = await navigator.credentials.get({ publicKey });
    return send('passkeys/verify', { credential: credential.toJSON(), ...more });
  };
`;

type Sent = { readonly status: number; readonly body: Record<string, never> };

test('in a real browser a passkey is added, logs in by itself, and is the second factor of a password', async (t) => {
  // A passkey is for one origin: the port has to be known to the program from the start.
  const program = await startProgram(t, { args: ['--listen', `127.0.0.1:${await freePort()}`] });
  const link = new URL(String(program.summary.firstAdmin));
  link.hostname = 'localhost';
  const { page } = await openPage(t, link.href);
  await addAuthenticator(page);
  await page.evaluate(STEPS);
  const run = (expression: string) => page.evaluate(expression) as Promise<Sent>;

  const person = { name: 'Ada', email: 'ada@example.com', password: PASSWORD };
  const made = await run(`send('setup', ${JSON.stringify({ ...person, token: link.hash.slice(1) })})`);
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const login = await run(`send('login', ${JSON.stringify({ identifier: person.email, password: PASSWORD })})`);
  assert.equal(login.status, 200, JSON.stringify(login.body));

  const added = await run(`addPasskey('laptop')`);
  assert.equal(added.status, 200, JSON.stringify(added.body));
  await page.context().clearCookies();
  const entered = await run(`usePasskey({})`);
  assert.equal(entered.status, 200, JSON.stringify(entered.body));
  assert.equal((entered.body as { user?: { email: string } }).user?.email, person.email);
  const again = await run(`addPasskey('laptop').catch((error) => ({ status: 0, body: { name: error.name } }))`);
  assert.deepEqual(again, { status: 0, body: { name: 'InvalidStateError' } }, 'this device has one already');

  const provisioned = await run(`send('mfa/totp/provision', {})`);
  const { Secret, TOTP } = await import('otpauth');
  const secret = Secret.fromBase32(String(provisioned.body.secret));
  const enabled = await run(`send('mfa/totp/verify', { code: '${new TOTP({ secret }).generate()}' })`);
  assert.equal(enabled.status, 200, JSON.stringify(enabled.body));
  const half = await run(`send('login', ${JSON.stringify({ identifier: person.email, password: PASSWORD })})`);
  assert.deepEqual(half.body.mfaMethods, ['totp', 'passkey']);
  const whole = await run(`usePasskey({ mfa_ticket: '${String(half.body.mfa_ticket)}' })`);
  assert.equal(whole.status, 200, JSON.stringify(whole.body));
});

test('the page with passkeys of docs/accounts.md adds one and logs in with it, as printed', async (t) => {
  const program = await startProgram(t, { args: ['--listen', `127.0.0.1:${await freePort()}`] });
  const link = new URL(String(program.summary.firstAdmin));
  link.hostname = 'localhost';
  const { page } = await openPage(t, link.href);
  await addAuthenticator(page);
  await page.evaluate(STEPS);
  const person = { name: 'Ada', email: 'ada@example.com', password: PASSWORD };
  await page.evaluate(`send('setup', ${JSON.stringify({ ...person, token: link.hash.slice(1) })})`);
  await page.evaluate(`send('login', ${JSON.stringify({ identifier: person.email, password: PASSWORD })})`);
  const block = await printedBlock('docs/accounts.md', '<script');
  const code = /<script type="module">\n(.*)<\/script>/s.exec(block)?.[1] ?? '';
  const login = (await page.evaluate(`(async () => { ${code}; return login; })()`)) as { user?: { email: string } };
  assert.equal(login.user?.email, person.email, JSON.stringify(login));
});
