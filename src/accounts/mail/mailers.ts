import { mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { AccountsSettings } from '../settings.ts';
import type { Mailer } from './messages.ts';

export interface OutboxMailerOptions {
  readonly folder: string;
  /** The sender; empty as long as none is configured. */
  from(): string;
  readonly makeId: MakeId;
}

const LOCAL_SENDER = 'Trestle <no-reply@localhost>';
/** Nobody fetches these: beyond this the oldest makes room. */
const KEPT = 1000;

export interface OutboxMailer extends Mailer {
  /** Removes every file with the address in it. */
  forget(address: string): Promise<void>;
}

/** Without a mail server each message becomes a file for the owner of the data directory alone; never a log line. */
export function createOutboxMailer({ folder, from, makeId }: OutboxMailerOptions): OutboxMailer {
  return {
    async send({ to, subject, text }, id = makeId('mail_')) {
      const { createTransport } = await import('nodemailer');
      const transport = createTransport({
        streamTransport: true,
        buffer: true,
        newline: 'unix',
        disableFileAccess: true,
        disableUrlAccess: true,
      });
      const sender = from() === '' ? LOCAL_SENDER : from();
      const { message } = await transport.sendMail({ from: sender, to: { name: '', address: to }, subject, text });
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

export interface SmtpMailerOptions {
  /** Asked for each message: the password may change while the program runs. */
  settings(): SmtpSettings;
  readonly clock: Pick<Clock, 'after'>;
}

const CONNECT_TIMEOUT_MS = 5_000;
const ANSWER_TIMEOUT_MS = 10_000;
const WHOLE_TIMEOUT_MS = 15_000;

/** One connection per message, encrypted as the settings say and never less. */
export function createSmtpMailer({ settings, clock }: SmtpMailerOptions): Mailer {
  return {
    async send({ to, subject, text }) {
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
        const sent = transport.sendMail({ from: smtp.from, to: { name: '', address: to }, subject, text });
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
