import type { Clock } from '../../platform/clock/clock.ts';
import { withinTime } from '../../platform/clock/within-time.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { createSerialQueue } from '../../platform/queue/serial-queue.ts';
import type { Mail, Mailer } from './mailer.ts';
import { createOutboxMailer } from './outbox-mailer.ts';
import { createSmtpMailer, type SmtpSettings } from './smtp-mailer.ts';

/** How mail leaves: while the caller waits for it, or afterwards. */
export interface MailPost extends Mailer {
  /** For notices, and where the time that mail takes would tell something: the caller goes on at once. */
  post(mail: Mail): void;
  /** Lets what waits go out, for a while. */
  stop(): Promise<void>;
}

export interface MailPostOptions {
  settings(): SmtpSettings;
  readonly outboxFolder: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly makeId: MakeId;
  readonly logger: Logger;
}

const WAITING = 1000;
const STOP_MS = 10_000;

/** Over SMTP; without a mail server, into the outbox folder (contract/accounts, Rules: Mail). */
export function createMailPost({ settings, outboxFolder, clock, makeId, logger }: MailPostOptions): MailPost {
  const smtp = createSmtpMailer({ settings, clock });
  const outbox = createOutboxMailer({ folder: outboxFolder, from: () => settings().from, makeId });
  const queue = createSerialQueue({ capacity: WAITING });
  const underWay = new Set<Promise<void>>();
  const send: Mailer['send'] = (mail) => (settings().host === '' ? outbox : smtp).send(mail);
  return {
    send,
    post(mail) {
      const sent = queue
        .run(() => send(mail))
        .catch((error) => logger.warn({ err: error }, 'a mail was not sent'))
        .finally(() => underWay.delete(sent));
      underWay.add(sent);
    },
    async stop() {
      await withinTime(clock, STOP_MS, Promise.all(underWay), () => undefined);
      await queue.close();
    },
  };
}
