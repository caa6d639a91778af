import { mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, repeat, withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import type { AccountsSettings } from '../settings.ts';
import type { AccountsSchema, OutgoingMailRow } from '../storage/accounts-schema.ts';
import { createOutgoingMailStore } from '../storage/outgoing-stores.ts';
import { type Mail, type Mailer, type MailLanguage, renderMail } from './messages.ts';

/** How mail leaves: through a table, so that a restart or a mail server that is down loses none. */
export interface MailPost {
  /** Stores a mail and waits until it has left, or until the first try has failed: then it is tried again later. */
  send(mail: Mail): Promise<void>;
  /** For the batch of the change that the mail is about: both are stored, or neither. Call `wake` afterwards. */
  enqueue(mail: Mail): Runnable;
  /** Causes as much work as `enqueue` without a mail, so that response times do not show whether there is a recipient. */
  enqueueNothing(): Runnable;
  /** Starts sending stored mails without waiting for it. */
  wake(): void;
  /** Removes every mail to an address, or with the address in it: those that wait, and those in the outbox folder. */
  forget(address: string): Promise<void>;
  /** Sends waiting mails for a limited time. The rest stays in the table for the next start, or another instance. */
  stop(): Promise<void>;
}

interface MailPostOptions extends Pick<Runtime, 'makeId' | 'logger'> {
  readonly database: Database<AccountsSchema>;
  readonly secretBox: SecretBox;
  settings(): SmtpSettings;
  /** What mails are written in, as of the moment when they leave. */
  language(): MailLanguage;
  readonly outboxFolder: string;
  /** Hands mails over instead of SMTP and the outbox folder: a simulation must not touch the disk. */
  readonly mailer?: Mailer | undefined;
  readonly clock: Pick<Clock, 'now' | 'after'>;
}

const STOP_MS = 10_000;
/** Longer than a mail server may take to answer: until then no other instance sends the same mail. */
const CLAIM_MS = 60_000;
const LOOK_EVERY_MS = 60_000;
/** After the first, second, ... failed try; after the last one the mail is given up. About a day in all. */
const RETRY_MS: readonly number[] = [0.5, 1, 2, 5, 15, 60, 240, 720].map((minutes) => minutes * 60_000);

/** Over SMTP; without a mail server, into the outbox folder. */
export function createMailPost(options: MailPostOptions): MailPost {
  const { database, secretBox, settings, language, outboxFolder, mailer, clock, makeId, logger } = options;
  const store = createOutgoingMailStore(database);
  const smtp = createSmtpMailer({ settings, clock });
  const outbox = createOutboxMailer({ folder: outboxFolder, from: () => settings().from, makeId });
  const hand: Mailer['send'] = (mail, id) => (mailer ?? (settings().host === '' ? outbox : smtp)).send(mail, id);
  let isWanted = false;
  let round: Promise<void> | undefined;

  function rowOf(mail: Mail | undefined): OutgoingMailRow {
    const id = makeId('mail_');
    const now = clock.now();
    const data = secretBox.seal(JSON.stringify(mail ?? {}), contextOf(id));
    return { id, data, attempts: 0, due_at: now, created_at: now };
  }

  /** Returns undefined for a row of `enqueueNothing`. */
  function mailIn({ id, data }: OutgoingMailRow): Mail | undefined {
    const mail = JSON.parse(Buffer.from(secretBox.open(data, contextOf(id))).toString('utf8')) as Partial<Mail>;
    return mail.to === undefined ? undefined : (mail as Mail);
  }

  /** Nobody can read a mail whose secret key is gone. It stays for its tries, about a day, and keeps no user from being deleted. */
  function isFor(row: OutgoingMailRow, address: string): boolean {
    try {
      return mailIn(row)?.to === address;
    } catch (error) {
      logger.warn({ err: error, mail: row.id }, 'a mail that waits cannot be read');
      return false;
    }
  }

  /** Sends a mail that this instance has claimed. Throws the mail server's error after it has scheduled the next try. */
  async function deliver(row: OutgoingMailRow): Promise<void> {
    // Unknown for a mail that cannot be opened: its secret key may come back within the tries.
    let lifetimeMs = Number.POSITIVE_INFINITY;
    try {
      const mail = mailIn(row);
      lifetimeMs = mail?.lifetimeMs ?? 0;
      if (mail !== undefined) await hand(renderMail(mail, language()), row.id);
    } catch (error) {
      const pause = RETRY_MS[row.attempts - 1];
      const endsAt = row.created_at + lifetimeMs;
      if (pause === undefined || clock.now() + pause >= endsAt) {
        logger.error({ err: error, mail: row.id, tries: row.attempts }, 'a mail was given up');
        await database.write([store.remove(row.id)]);
      } else await database.write([store.putOff(row.id, clock.now() + pause)]);
      throw error;
    }
    await database.write([store.remove(row.id)]);
  }

  async function deliverAll(): Promise<void> {
    while (isWanted) {
      isWanted = false;
      for (let row = await claim(); row !== undefined; row = await claim()) {
        await deliver(row).catch((error) => logger.warn({ err: error }, 'a mail was not sent; it is tried again'));
      }
    }
  }
  const claim = () => store.claimNext(clock.now(), clock.now() + CLAIM_MS);

  function wake(): void {
    isWanted = true;
    round ??= deliverAll()
      .catch((error) => logger.warn({ err: error }, 'the mails that wait could not be read'))
      .finally(() => {
        round = undefined;
        // A mail was stored after the last claim of this round; without another round it would wait a minute.
        if (isWanted) wake();
      });
  }

  const looks = repeat({
    clock,
    pauseMs: LOOK_EVERY_MS,
    async work() {
      wake();
      await round;
    },
    onError: () => undefined,
  });

  return {
    async send(mail) {
      // Claimed from the start, because the caller waits for this try and no other instance may make it.
      const row = { ...rowOf(mail), attempts: 1, due_at: clock.now() + CLAIM_MS };
      const [{ changes }] = await database.write([store.add(row)]);
      if (changes === 0) throw new AppError('OVERLOADED');
      await deliver(row);
    },
    enqueue: (mail) => store.add(rowOf(mail)),
    enqueueNothing: () => store.add(rowOf(undefined)),
    wake,
    async forget(address) {
      for (const row of await store.list()) {
        if (isFor(row, address)) await database.write([store.remove(row.id)]);
      }
      if (mailer === undefined) await outbox.forget(address);
    },
    async stop() {
      void looks.stop();
      await withinTime(clock, STOP_MS, Promise.resolve(round), () => {
        isWanted = false;
      });
    },
  };
}

function contextOf(id: string): string {
  return `mail:${id}`;
}

interface OutboxMailerOptions {
  readonly folder: string;
  /** The sender; empty as long as none is configured. */
  from(): string;
  readonly makeId: MakeId;
}

const LOCAL_SENDER = 'Trestle <no-reply@localhost>';
/** Beyond this number the oldest file is removed, because nobody fetches these mails. */
const KEPT = 1000;

interface OutboxMailer extends Mailer {
  /** Removes every file with the address in it. */
  forget(address: string): Promise<void>;
}

/** Without a mail server each message becomes a file for the owner of the data directory alone; never a log line. */
function createOutboxMailer({ folder, from, makeId }: OutboxMailerOptions): OutboxMailer {
  return {
    async send({ to, subject, text, html }, id = makeId('mail_')) {
      const { createTransport } = await import('nodemailer');
      const transport = createTransport({
        streamTransport: true,
        buffer: true,
        newline: 'unix',
        disableFileAccess: true,
        disableUrlAccess: true,
      });
      const sender = from() === '' ? LOCAL_SENDER : from();
      const { message } = await transport.sendMail({
        from: sender,
        to: { name: '', address: to },
        subject,
        text,
        html,
      });
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const draft = join(folder, `.${makeId('draft_')}`);
      await writeDurably(draft, message as Buffer);
      await rename(draft, join(folder, `${id}.eml`));
      await removeOldest(folder);
    },
    async forget(address) {
      for (const name of await readdir(folder).catch(() => [])) {
        const file = join(folder, name);
        // Another message may have made room for a newer one since.
        const text = await readFile(file, 'utf8').catch(() => '');
        if (unfolded(text).includes(address)) await unlink(file).catch(() => undefined);
      }
    },
  };
}

/** Undoes the line breaks of quoted-printable text and of long headers. */
function unfolded(mail: string): string {
  return mail.replaceAll(/=\r?\n|\r?\n(?=[ \t])/g, '').toLowerCase();
}

/** Names sort by time. Another message may be doing the same. */
async function removeOldest(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.eml')).sort();
  const old = names.slice(0, Math.max(0, names.length - KEPT));
  await Promise.all(old.map((name) => unlink(join(folder, name)).catch(() => undefined)));
}

async function writeDurably(file: string, bytes: Buffer): Promise<void> {
  await using handle = await open(file, 'wx', 0o600);
  await handle.writeFile(bytes);
  await handle.sync();
}

export type SmtpSettings = AccountsSettings['smtp'];

interface SmtpMailerOptions {
  /** Asked for each message: the password may change while the program runs. */
  settings(): SmtpSettings;
  readonly clock: Pick<Clock, 'after'>;
}

const CONNECT_TIMEOUT_MS = 5_000;
const ANSWER_TIMEOUT_MS = 10_000;
const WHOLE_TIMEOUT_MS = 15_000;

/** Opens one connection per message, with at least the encryption of the settings. */
export function createSmtpMailer({ settings, clock }: SmtpMailerOptions): Mailer {
  return {
    async send({ to, subject, text, html }) {
      const smtp = settings();
      const { createTransport } = await import('nodemailer');
      const transport = createTransport({
        host: smtp.host,
        port: smtp.port,
        secure: smtp.tls === 'tls',
        requireTLS: smtp.tls === 'starttls',
        ignoreTLS: smtp.tls === 'none',
        tls: {
          minVersion: 'TLSv1.2',
          rejectUnauthorized: true,
          ...(smtp.ca_file === '' ? {} : { ca: await authorities(smtp.ca_file) }),
        },
        ...(smtp.username === '' ? {} : { auth: { user: smtp.username, pass: smtp.password } }),
        connectionTimeout: CONNECT_TIMEOUT_MS,
        greetingTimeout: CONNECT_TIMEOUT_MS,
        dnsTimeout: CONNECT_TIMEOUT_MS,
        socketTimeout: ANSWER_TIMEOUT_MS,
        disableFileAccess: true,
        disableUrlAccess: true,
      });
      try {
        const sent = transport.sendMail({ from: smtp.from, to: { name: '', address: to }, subject, text, html });
        sent.catch(() => undefined);
        await withinTime(clock, WHOLE_TIMEOUT_MS, sent, () => {
          throw new AppError('SMTP_TIMEOUT');
        });
      } catch (error) {
        throw translate(error);
      } finally {
        transport.close();
      }
    },
  };
}

async function authorities(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    throw new AppError('SMTP_FAILED', {}, { cause: error });
  }
}

function translate(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return new AppError(errorCode(error) === 'ETIMEDOUT' ? 'SMTP_TIMEOUT' : 'SMTP_FAILED', {}, { cause: error });
}
