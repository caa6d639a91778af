import { readFile } from 'node:fs/promises';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { AccountsSettings } from '../settings.ts';
import type { Mailer } from './mailer.ts';

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
