import { type Clock, repeat, withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SecretBox } from '../../platform/secrets/secret-box.ts';
import type { AccountsSchema, OutgoingMailRow } from '../storage/accounts-schema.ts';
import { createOutgoingMailStore } from '../storage/outgoing-mail-store.ts';
import { createOutboxMailer, createSmtpMailer, type SmtpSettings } from './mailers.ts';
import type { Mail, Mailer } from './messages.ts';

/** How mail leaves: through a table, so that a restart or a mail server that is down loses none. */
export interface MailPost extends Mailer {
  /** For the batch of the change that the mail is about: both are stored, or neither. Call `wake` afterwards. */
  enqueue(mail: Mail): Runnable;
  /** As much work as `enqueue`, and no mail: where the time of an answer must not tell whether there is a recipient. */
  enqueueNothing(): Runnable;
  /** Sends what was stored, soon; the caller goes on. */
  wake(): void;
  /** Removes every mail to an address, or with the address in it: those that wait, and those in the outbox folder. */
  forget(address: string): Promise<void>;
  /** Lets what waits go out, for a while. The rest stays in the table for the next start, or another instance. */
  stop(): Promise<void>;
}

export interface MailPostOptions extends Pick<Runtime, 'makeId' | 'logger'> {
  readonly database: Database<AccountsSchema>;
  readonly secretBox: SecretBox;
  settings(): SmtpSettings;
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

/** Over SMTP; without a mail server, into the outbox folder (contract/accounts, Rules: Mail). */
export function createMailPost(options: MailPostOptions): MailPost {
  const { database, secretBox, settings, outboxFolder, mailer, clock, makeId, logger } = options;
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

  /** Undefined for what was stored only to take the same time. */
  function mailIn({ id, data }: OutgoingMailRow): Mail | undefined {
    const mail = JSON.parse(Buffer.from(secretBox.open(data, contextOf(id))).toString('utf8')) as Partial<Mail>;
    return mail.to === undefined ? undefined : (mail as Mail);
  }

  /** Sends a mail that this instance has claimed. Throws what the mail server said; the mail is tried again then. */
  async function deliver(row: OutgoingMailRow): Promise<void> {
    const mail = mailIn(row);
    try {
      if (mail !== undefined) await hand(mail, row.id);
    } catch (error) {
      const pause = RETRY_MS[row.attempts - 1];
      const endsAt = row.created_at + (mail?.lifetimeMs ?? 0);
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
      // Claimed from the start: the caller waits for this very try, and nobody else makes it.
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
        if (mailIn(row)?.to === address) await database.write([store.remove(row.id)]);
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
