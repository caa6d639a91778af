import {
  ATTEMPT_MS,
  type AttemptReport,
  type CallbackNetwork,
  createCallbackPost,
  createCallbackRules,
  postEvent,
} from '../../platform/callbacks/callback-post.ts';
import { repeat, withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SecretBox } from '../../platform/secrets/secret-keys.ts';
import type { Audit } from '../audit.ts';
import type { WebhookEventName } from '../contract/administration.ts';
import type { MailPost } from '../mail/mail-post.ts';
import { webhookDisabledMail } from '../mail/messages.ts';
import { isAdminRole } from '../permissions.ts';
import type { AccountsSchema, WebhookDeliveryRow, WebhookRow } from '../storage/accounts-schema.ts';
import type { WebhookStore } from '../storage/outgoing-stores.ts';
import type { UserStore } from '../storage/user-store.ts';
import { DAY_MS } from '../storage/user-store.ts';
import { timeText } from '../user-object.ts';

/** An event. It has only ids, because names and addresses at a receiver would outlive their person's deletion. */
export interface WebhookEvent {
  readonly event: WebhookEventName;
  readonly data: Readonly<Record<string, string | number | null>>;
}

/** Posts events from a table, so that a restart or a receiver that is down loses none. */
export interface WebhookPost {
  /** For the batch of the change that the event is about: both are stored, or neither is. Call `wake` afterwards. */
  enqueue(event: WebhookEvent): readonly Runnable[];
  /** Stores an event of another service in the background, because its change is in another database. */
  announce(event: WebhookEvent): void;
  /** Starts posting stored events without waiting for it. */
  wake(): void;
  /** Returns the address as it is called, or throws CALLBACK_URL_REFUSED. */
  check(url: string): Promise<string>;
  /** Starts no more attempts. Waiting deliveries stay in the table for the next start, or another instance. */
  stop(): Promise<void>;
}

interface WebhookPostOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<AccountsSchema>;
  readonly store: WebhookStore;
  readonly secretBox: SecretBox;
  readonly network: CallbackNetwork;
  /** Private ranges that the operator lists. */
  readonly allow: readonly string[];
  readonly users: Pick<UserStore, 'byId'>;
  readonly audit: Audit;
  readonly mail: Pick<MailPost, 'enqueue' | 'wake'>;
}

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
/** After the first, second, ... failed attempt; after the last one the delivery is given up. Nearly two days in all. */
export const RETRY_MS: readonly number[] = [
  5 * SECOND_MS,
  30 * SECOND_MS,
  2 * MINUTE_MS,
  10 * MINUTE_MS,
  HOUR_MS,
  4 * HOUR_MS,
  12 * HOUR_MS,
  24 * HOUR_MS,
];
/** A webhook without a success for this long is switched off. */
export const DISABLED_AFTER_MS = 3 * DAY_MS;
/** Longer than an attempt may take: until then no other instance makes the same attempt. */
const CLAIM_MS = ATTEMPT_MS + 15_000;
const LOOK_EVERY_MS = 60_000;
const MAX_UNDER_WAY = 8;
/** A receiver that is slow must not keep the others waiting. */
const MAX_UNDER_WAY_OF_ONE = 2;
const STOP_MS = 2000;

export function createWebhookPost(options: WebhookPostOptions): WebhookPost {
  const { database, store, secretBox, network, allow, users, audit, mail, clock, makeId, logger } = options;
  const { ownAddresses } = network;
  const rules = createCallbackRules({ allow, allowedBy: 'accounts.webhook_allow', isOpen: () => false, ownAddresses });
  const callbacks = createCallbackPost({ rules, network, clock });
  const underWay = new Map<WebhookDeliveryRow, Promise<void>>();
  const announced = new Set<Promise<void>>();
  const stopped = new AbortController();
  let isStopping = false;
  let isWanted = false;
  let round: Promise<void> | undefined;
  let cancelTimer = () => {};

  function enqueue({ event, data }: WebhookEvent): readonly Runnable[] {
    const id = makeId('evt_');
    const now = clock.now();
    return store.enqueue({ id, event, now, body: JSON.stringify({ id, event, createdAt: timeText(now), data }) });
  }

  function wake(): void {
    if (isStopping) return;
    isWanted = true;
    round ??= beginDue()
      .catch((error) => logger.warn({ err: error }, 'the webhooks that wait could not be read'))
      .finally(() => {
        round = undefined;
        // `wake` may have been called after the last read of the round.
        if (isWanted) wake();
      });
  }

  async function beginDue(): Promise<void> {
    while (isWanted && !isStopping) {
      isWanted = false;
      while (underWay.size < MAX_UNDER_WAY && !isStopping) {
        const delivery = await store.claimNext(clock.now(), clock.now() + CLAIM_MS, busyWebhooks());
        if (delivery === undefined) break;
        const work = attempt(delivery)
          .catch((error) => logger.warn({ err: error, delivery: delivery.id }, 'a webhook has to wait'))
          .finally(() => {
            underWay.delete(delivery);
            wake();
          });
        underWay.set(delivery, work);
      }
      await lookWhenDue();
    }
  }

  function busyWebhooks(): readonly string[] {
    const counts = Map.groupBy(underWay.keys(), ({ webhook_id: id }) => id);
    return [...counts].filter(([, { length }]) => length >= MAX_UNDER_WAY_OF_ONE).map(([id]) => id);
  }

  /** Schedules a round for the next due retry, also for one from before a restart. The end of an attempt starts a round by itself. */
  async function lookWhenDue(): Promise<void> {
    const due = await store.nextDue();
    cancelTimer();
    if (due === undefined || isStopping) return;
    if (due > clock.now()) cancelTimer = clock.after(due - clock.now(), wake);
    // It became due since the last read. If attempts are running, the end of the first one starts a round.
    else if (underWay.size === 0) isWanted = true;
  }

  async function attempt(delivery: WebhookDeliveryRow): Promise<void> {
    const webhook = await store.find(delivery.webhook_id);
    if (webhook === undefined) return;
    const { id, event, body, attempts } = delivery;
    // An event that was stored at the same moment as the webhook was switched off.
    if (webhook.disabled_at !== null) {
      return void (await database.write([store.end(id, 'failed', clock.now(), SWITCHED_OFF)]));
    }
    // The last attempt died with its instance.
    if (attempts > RETRY_MS.length + 1) return void (await conclude(webhook, delivery, INTERRUPTED));
    const report = await postEvent(callbacks.post, {
      url: webhook.url,
      event,
      delivery: id,
      body,
      secret: Buffer.from(secretBox.open(webhook.secret, webhookContext(webhook.id))).toString('utf8'),
      now: clock.now(),
      signal: stopped.signal,
    });
    // We are stopping, and the receiver is not to blame.
    if (report.result !== 'sent' && stopped.signal.aborted) {
      await database.write([store.putOff(id, clock.now(), report.detail)]);
    } else await conclude(webhook, delivery, report);
  }

  async function conclude(webhook: WebhookRow, { id, attempts }: WebhookDeliveryRow, report: AttemptReport) {
    const { result, detail } = report;
    const now = clock.now();
    if (result === 'sent') {
      const recovered = webhook.failing_since === null ? [] : [store.noteSuccess(webhook.id)];
      await database.write([store.end(id, 'sent', now, detail), ...recovered]);
      return;
    }
    const pause = result === 'try again' ? RETRY_MS[attempts - 1] : undefined;
    if (pause === undefined) logger.warn({ webhook: webhook.id, delivery: id, attempts }, 'a webhook was given up');
    await database.write([
      pause === undefined ? store.end(id, 'failed', now, detail) : store.putOff(id, now + pause, detail),
      store.noteFailure(webhook.id, now),
    ]);
    const { failing_since: since, disabled_at: off } = webhook;
    if (off === null && since !== null && now - since >= DISABLED_AFTER_MS) await disable(webhook, since, now);
  }

  async function disable({ id, url, created_by: author }: WebhookRow, failingSince: number, now: number) {
    const host = new URL(url).host;
    const user = await users.byId(author);
    const notice =
      user !== undefined && isAdminRole(user.role) ? [mail.enqueue(webhookDisabledMail(user.email, host))] : [];
    const entry = audit.statement({ event: 'webhook.disabled', actor: 'system', subject: id, details: { host } });
    try {
      const disabled = store.disable({ id, failingSince, now, detail: SWITCHED_OFF });
      await database.write([...disabled, entry, ...notice]);
    } catch (error) {
      // Another instance was faster, another delivery has succeeded, or an administrator has removed it.
      if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      return;
    }
    logger.warn({ webhook: id }, 'a webhook was switched off: no delivery has succeeded for three days');
    mail.wake();
  }

  async function storeEvent(event: WebhookEvent): Promise<void> {
    if (!(await store.isWanted(event.event))) return;
    await database.write(enqueue(event));
    wake();
  }

  const looks = repeat({
    clock,
    pauseMs: LOOK_EVERY_MS,
    firstAfterMs: 0,
    async work() {
      wake();
      await round;
    },
    onError: () => undefined,
  });

  return {
    enqueue,
    announce(event) {
      const work = storeEvent(event)
        .catch((error) => logger.warn({ err: error, event: event.event }, 'an event was not stored for webhooks'))
        .finally(() => announced.delete(work));
      announced.add(work);
    },
    wake,
    check: callbacks.check,
    async stop() {
      await Promise.all(announced);
      isStopping = true;
      cancelTimer();
      void looks.stop();
      const ended = async () => {
        await round;
        await Promise.all(underWay.values());
      };
      await withinTime(clock, STOP_MS, ended(), () => undefined);
      stopped.abort(new Error('the program is stopping'));
      await ended();
    },
  };
}

const SWITCHED_OFF = 'the webhook was switched off';
const INTERRUPTED: AttemptReport = { result: 'given up', detail: 'the last attempt was interrupted' };

/** What the secret of a webhook is sealed for. */
export function webhookContext(id: string): string {
  return `webhook:${id}`;
}
