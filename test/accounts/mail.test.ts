import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, type TestContext, test } from 'node:test';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { createSmtpMailer, type SmtpSettings } from '../../src/accounts/mail/mail-post.ts';
import { de, en, zh } from '../../src/accounts/mail/message-texts.ts';
import {
  accountClosingMail,
  invitationMail,
  passwordChangedMail,
  registrationCodeMail,
  renderMail,
  securityNoticeMail,
} from '../../src/accounts/mail/messages.ts';
import type { OutgoingMailRow } from '../../src/accounts/storage/accounts-schema.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { createSecretBox } from '../../src/platform/secrets/secret-keys.ts';
import { loggedInAs } from '../kit/accounts/people.ts';
import { accountsSettingsOf, type RunningAccounts, startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { makeSelfSignedCertificate } from '../kit/self-signed-certificate.ts';
import { until } from '../kit/until.ts';

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

const mail = { to: 'ann@example.org', subject: 'Hello', text: 'A line.\n', html: '<p>Hello</p>' };
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
  await clock.advance(60_000);
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

const smtpSettings = (port: number) =>
  `{ smtp: { host: localhost, port: ${port}, from: no-reply@example.org, ca_file: ${JSON.stringify(caFile)} } }`;
const CLOSED_PORT = 1;

for (const engine of engines) {
  describe(`mails that wait on ${engine}`, () => {
    const places = databasePlaces(engine);
    const waiting = async ({ database }: RunningAccounts) =>
      (await database.query.selectFrom('outgoing_mails').selectAll().execute()) as readonly OutgoingMailRow[];

    test('DA-17: a mail that could not be sent is kept over a restart and sent later, once, by one of two instances', async (t) => {
      const { port, received } = await startSmtp(t);
      const location = places.location();
      const folder = await mkdtemp(join(tmpdir(), 'trestle-mail-'));
      t.after(() => rm(folder, { recursive: true, force: true }));
      const clock = createFakeClock();
      const first = await startAccounts(t, { location, clock, folder });
      const ann = await first.register('Ann');
      first.reload(accountsSettingsOf(smtpSettings(CLOSED_PORT)));
      assert.equal((await first.post('password/forgot', { email: ann.email })).status, 202);
      await first.eventually(async () => (await waiting(first))[0]?.attempts === 1);
      assert.doesNotMatch(JSON.stringify(await waiting(first)), /ann@example|token/, 'sealed');
      await first.close();
      // A mail that failed is tried again after half a minute.
      await clock.advance(31_000);

      const settings = smtpSettings(port);
      const second = await startAccounts(t, { location, clock, folder, settings });
      const third = engine === 'postgres' ? await startAccounts(t, { location, clock, folder, settings }) : second;
      // Both instances look for mails that are due.
      await clock.advance(60_000);
      await third.eventually(async () => (await waiting(third)).length === 0);
      await clock.advance(60_000);
      assert.deepEqual(
        received.map(({ to }) => to),
        [[ann.email]],
      );
      const [, token = ''] = /token: ([\w-]{43})/.exec((received[0]?.text ?? '').replaceAll(/=\r?\n/g, '')) ?? [];
      const done = await second.post('password/forgot/confirm', { token, password: 'nine green bottles 12 on a wall' });
      assert.equal(done.status, 200, 'the link of the late mail works');
    });

    test('DA-17: a mail is stored with the change that causes it, or neither is', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: smtpSettings(CLOSED_PORT) });
      const admin = await loggedInAs(accounts, 'admin');
      const make = (name: string) =>
        accounts.post('admin/users', { email: 'ben@example.org', name, role: 'user' }, { token: admin.token });
      assert.equal((await make('Ben')).status, 201);
      assert.equal((await waiting(accounts)).length, 1);
      assert.equal((await make('Ben the second')).body.error, 'email_already_exists');
      assert.equal((await waiting(accounts)).length, 1);
    });

    test('DA-17: a mail whose secret key is gone is given up, and keeps no user from being deleted', async (t) => {
      const clock = createFakeClock();
      const settings = smtpSettings(CLOSED_PORT);
      const accounts = await startAccounts(t, { location: places.location(), clock, settings });
      const admin = await loggedInAs(accounts, 'admin');
      const ben = { email: 'ben@example.org', name: 'Ben', role: 'user' };
      const { body } = await accounts.post('admin/users', ben, { token: admin.token });
      const [mail] = await waiting(accounts);
      const other = createSecretBox([new Uint8Array(32).fill(9)], systemRandomness);
      const data = other.seal('{}', `mail:${mail?.id}`);
      await accounts.database.query.updateTable('outgoing_mails').set({ data }).execute();
      const removed = await accounts.call('DELETE', `admin/users/${body.user.id}`, { token: admin.token });
      assert.equal(removed.status, 204);
      await accounts.eventually(async () => {
        await clock.advance(3_600_000);
        return (await waiting(accounts)).every(({ id }) => id !== mail?.id);
      });
      assert.match(accounts.log(), /a mail was given up/);
    });

    test('DA-17: a mail is given up once what it says has ended', async (t) => {
      const clock = createFakeClock();
      const settings = smtpSettings(CLOSED_PORT);
      const accounts = await startAccounts(t, { location: places.location(), clock, settings });
      const refused = await accounts.post('register/send', { email: 'ann@example.org' });
      assert.equal(refused.body.error, 'smtp_failed');
      assert.equal((await waiting(accounts)).length, 1, 'it is tried again');
      await accounts.eventually(async () => {
        await clock.advance(60_000);
        return (await waiting(accounts)).length === 0;
      });
      assert.match(accounts.log(), /a mail was given up/);
    });
  });
}

const placeholders = (value: unknown): string => (JSON.stringify(value).match(/\{\w+\}/g) ?? []).sort().join(' ');

test('every language has every mail, with the same places to fill in, and none is in English by mistake', () => {
  for (const texts of [de, zh]) {
    for (const [name, text] of Object.entries(texts).filter(([key]) => key !== 'notices')) {
      const english = en[name as 'notice'];
      assert.equal(placeholders(text), placeholders(english), name);
      assert.notEqual(JSON.stringify(text), JSON.stringify(english), name);
    }
    assert.deepEqual(Object.keys(texts.notices).sort(), Object.keys(en.notices).sort());
    for (const [name, text] of Object.entries(texts.notices)) {
      assert.equal(placeholders(text), placeholders(en.notices[name as 'mfaReset']), name);
      assert.notEqual(text, en.notices[name as 'mfaReset']);
    }
  }
});

test('a mail is text and HTML that says the same, with everything escaped and nothing to load', () => {
  const link = 'https://console.example/accept-invitation#token=abc&x="><script>';
  const hostile = '<img src=https://evil.example/x> {token} $& "q"';
  const mails = [
    registrationCodeMail('ann@example.org', '012345'),
    invitationMail('ann@example.org', 'a-token', link),
    accountClosingMail('ann@example.org', 0),
    securityNoticeMail('ann@example.org', 'passkeyRemoved', { name: hostile }),
    passwordChangedMail(
      'ann@example.org',
      [{ id: '1', provider: 'passkey', email: '', name: hostile, createdAt: '' }],
      0,
    ),
  ];
  for (const language of ['en', 'de', 'zh'] as const) {
    for (const mail of mails) {
      const { text, html, subject } = renderMail(mail, language);
      assert.doesNotMatch(html, /<(img|script|link|iframe|style)\b|url\(|@import/i);
      assert.match(html, new RegExp(`lang="${language}"`));
      for (const value of Object.values(mail.values)) assert.ok(text.includes(value), `${subject}: ${value}`);
      assert.doesNotMatch(text.replaceAll(hostile, ''), /\{\w+\}/, 'every place is filled in');
      const shown = html
        .replaceAll(/<head>.*<\/head>|<h1.*<\/h1>|<[^>]*>/gs, '')
        .replaceAll('&lt;', '<')
        .replaceAll('&gt;', '>')
        .replaceAll('&quot;', '"')
        .replaceAll('&#39;', "'")
        .replaceAll('&amp;', '&');
      assert.equal(shown.replaceAll(/\s+/g, ' ').trim(), text.replaceAll(/\s+/g, ' ').trim());
    }
  }
});

test('mail leaves as text and HTML, in the language of the settings as they are when it leaves', async (t) => {
  const smtp = await startSmtp(t, { disabledCommands: ['STARTTLS'] });
  const settings = (language: string) =>
    `{ mail_language: ${language}, smtp: { host: 127.0.0.1, port: ${smtp.port}, from: "a@example.org", tls: none } }`;
  const accounts = await startAccounts(t, { settings: settings('en') });
  await accounts.post('register/send', { email: 'ann@example.org' });
  accounts.reload(accountsSettingsOf(settings('de')));
  await accounts.post('register/send', { email: 'ann@example.org' });
  const [english, german] = smtp.received.map(({ text }) => text);
  for (const mail of [english, german]) {
    assert.match(mail ?? '', /content-type: multipart\/alternative/i);
    assert.match(mail ?? '', /content-type: text\/plain[\s\S]*content-type: text\/html/i, 'text first');
  }
  assert.match(english ?? '', /Your code is \d{6}/);
  assert.match(german ?? '', /Ihr Code lautet \d{6}/);
});
