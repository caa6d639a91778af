import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext, test } from 'node:test';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { createSmtpMailer, type SmtpSettings } from '../../src/accounts/mail/smtp-mailer.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { createFakeClock } from '../fakes/fake-clock.ts';
import { makeSelfSignedCertificate } from '../fakes/self-signed-certificate.ts';
import { until } from '../fakes/until.ts';
import { accountsSettingsOf, startAccounts } from './start-accounts.ts';

const folder = await mkdtemp(join(tmpdir(), 'trestle-mail-'));
after(() => rm(folder, { recursive: true, force: true }));
const certificate = makeSelfSignedCertificate();
const caFile = join(folder, 'ca.pem');
await writeFile(caFile, certificate.cert);

interface Received {
  readonly secure: boolean;
  readonly user: string | undefined;
  readonly to: readonly string[];
  readonly text: string;
}

/** A real mail server on a free port. */
async function startSmtp(t: TestContext, options: SMTPServerOptions = {}) {
  const received: Received[] = [];
  const server = new SMTPServer({
    ...certificate,
    authOptional: true,
    logger: false,
    onAuth: ({ username, password }, _session, done) =>
      password === 'right' ? done(null, { user: username }) : done(new Error('wrong')),
    onData(stream, session, done) {
      let text = '';
      stream.on('data', (chunk) => {
        text += String(chunk);
      });
      stream.on('end', () => {
        const to = session.envelope.rcptTo.map(({ address }) => address);
        received.push({ secure: session.secure, user: session.user, to, text });
        done();
      });
    },
    ...options,
  });
  server.on('error', () => {});
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  t.after(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return { port: (server.server.address() as AddressInfo).port, received };
}

const settingsFor = (port: number, more: Partial<SmtpSettings> = {}): SmtpSettings => ({
  host: 'localhost',
  port,
  username: '',
  password: '',
  from: 'Trestle <no-reply@example.org>',
  tls: 'starttls',
  ca_file: caFile,
  ...more,
});

const mail = { to: 'ann@example.org', subject: 'Hello', text: 'A line.\n' };
const mailerFor = (settings: SmtpSettings) => createSmtpMailer({ settings: () => settings, clock: systemClock });

test('mail goes out over STARTTLS, to a server whose certificate is trusted, with a login', async (t) => {
  const { port, received } = await startSmtp(t);
  await mailerFor(settingsFor(port, { username: 'me', password: 'right' })).send(mail);
  const [message] = received;
  assert.deepEqual([message?.secure, message?.user, message?.to], [true, 'me', ['ann@example.org']]);
  assert.match(
    message?.text ?? '',
    /^From: Trestle <no-reply@example\.org>\r\nTo: ann@example\.org\r\nSubject: Hello\r\n/,
  );
  assert.doesNotMatch(message?.text ?? '', /^Bcc/m);
});

test('mail goes out over TLS from the first byte', async (t) => {
  const { port, received } = await startSmtp(t, { secure: true });
  await mailerFor(settingsFor(port, { tls: 'tls' })).send(mail);
  assert.equal(received[0]?.secure, true);
});

test('without encryption only where that is asked for', async (t) => {
  const plain = await startSmtp(t, { disabledCommands: ['STARTTLS'] });
  await assert.rejects(mailerFor(settingsFor(plain.port)).send(mail), { code: 'SMTP_FAILED' });
  assert.equal(plain.received.length, 0, 'nothing leaves when the server offers no encryption');
  await mailerFor(settingsFor(plain.port, { tls: 'none' })).send(mail);
  assert.equal(plain.received[0]?.secure, false);
});

test('a certificate that nobody vouches for, a wrong login and a closed port are failures', async (t) => {
  const { port, received } = await startSmtp(t);
  for (const settings of [
    settingsFor(port, { ca_file: '' }),
    settingsFor(port, { username: 'me', password: 'wrong' }),
    settingsFor(port, { ca_file: join(folder, 'missing.pem') }),
    settingsFor(1),
  ]) {
    await assert.rejects(mailerFor(settings).send(mail), { code: 'SMTP_FAILED' });
  }
  assert.deepEqual(received, []);
});

/** Takes connections and never says a word. */
async function startSilent(t: TestContext): Promise<number> {
  const server = createServer(() => {});
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

test('a server that says nothing is given up', async (t) => {
  const port = await startSilent(t);
  const clock = createFakeClock();
  const sent = createSmtpMailer({ settings: () => settingsFor(port), clock }).send(mail);
  const refused = assert.rejects(sent, { code: 'SMTP_TIMEOUT' });
  await until('the deadline of the mail', () => clock.pending() > 0);
  await clock.advance(15_000);
  await refused;
});

test('codes reach people over SMTP; a server that says nothing is 504, and one that refuses 502', async (t) => {
  const { port, received } = await startSmtp(t, {
    onRcptTo: ({ address }, _session, done) => done(address.startsWith('nobody') ? new Error('no such box') : null),
  });
  const smtp = (at: number) =>
    `{ smtp: { host: localhost, port: ${at}, from: no-reply@example.org, ca_file: ${JSON.stringify(caFile)} } }`;
  const accounts = await startAccounts(t, { settings: smtp(port) });
  assert.equal((await accounts.post('register/send', { email: 'ann@example.org' })).status, 200);
  const [, code = ''] = /code is (\d{6})/.exec(received[0]?.text ?? '') ?? [];
  assert.equal((await accounts.post('register/verify', { email: 'ann@example.org', code })).status, 200);
  assert.deepEqual(await accounts.mails(), [], 'nothing in the outbox');
  const refused = await accounts.post('register/send', { email: 'nobody@example.org' });
  assert.deepEqual([refused.status, refused.body.error], [502, 'smtp_failed']);
  accounts.reload(accountsSettingsOf(smtp(await startSilent(t))));
  const sent = accounts.post('register/send', { email: 'bob@example.org' });
  for (let look = 0; look < 100; look += 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    await accounts.clock.advance(1000);
  }
  const late = await sent;
  assert.deepEqual([late.status, late.body.error], [504, 'smtp_timeout']);
  assert.ok(!accounts.log().includes(code));
});

test('without a mail server messages are files for their owner alone, and never a log line', async (t) => {
  const accounts = await startAccounts(t);
  await accounts.post('register/send', { email: 'ann@example.org' });
  const code = await accounts.mailedCode('ann@example.org');
  const outbox = join(accounts.folder, 'outbox');
  assert.equal((await stat(outbox)).mode & 0o777, 0o700);
  const [name = ''] = await readdir(outbox);
  assert.equal((await stat(join(outbox, name))).mode & 0o777, 0o600);
  assert.ok(!accounts.log().includes(code));
});
