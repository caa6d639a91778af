import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, OutgoingMailRow, WebhookDeliveryRow, WebhookRow } from './accounts-schema.ts';
import { insertWithin } from './guarded-writes.ts';

/** An event, as it is stored for each webhook that wants it. */
interface StoredEvent {
  readonly id: string;
  readonly event: string;
  readonly body: string;
  readonly now: number;
}

/** Webhooks and their deliveries. Several instances share the tables: the instance that claims a delivery makes it. */
export interface WebhookStore {
  /** Undoes the batch when there are `most` webhooks. */
  add(webhook: WebhookRow, most: number): readonly Runnable[];
  find(id: string): Promise<WebhookRow | undefined>;
  /** All of them, oldest first, with the number of deliveries that wait. */
  list(): Promise<(WebhookRow & { waiting: number })[]>;
  /** With its deliveries. The first statement undoes the batch when there is no such webhook. */
  remove(id: string): readonly Runnable[];
  /** Whether any webhook wants an event. */
  isWanted(event: string): Promise<boolean>;
  /** Stores a delivery for each webhook that wants the event, and counts it as dropped where too many wait. */
  enqueue(event: StoredEvent): readonly Runnable[];
  /** The oldest delivery that is due and not of these webhooks. Until `until` no other instance claims it. */
  claimNext(now: number, until: number, except: readonly string[]): Promise<WebhookDeliveryRow | undefined>;
  /** When the next delivery is due; undefined when none waits. */
  nextDue(): Promise<number | undefined>;
  putOff(id: string, until: number, detail: string): Runnable;
  end(id: string, state: 'sent' | 'failed', now: number, detail: string): Runnable;
  /** Since when no delivery has succeeded. Keeps the first time. */
  noteFailure(id: string, now: number): Runnable;
  noteSuccess(id: string): Runnable;
  /**
   * Switches it off and ends what waits. The first statement undoes the batch when it is off already, or when a delivery
   * has succeeded since `failingSince`.
   */
  disable(webhook: { id: string; failingSince: number; now: number; detail: string }): readonly Runnable[];
  /** Switches it on as if it had never failed. Undoes the batch when it is not off. */
  enable(id: string): Runnable;
  /** Newest first; `before` is the id of the last of the page before. */
  deliveries(webhookId: string, before: string | undefined, limit: number): Promise<WebhookDeliveryRow[]>;
}

/** A receiver that is down for days must not fill the disk. */
const MAX_WAITING_DELIVERIES = 1000;

export function createWebhookStore(database: Database<AccountsSchema>): WebhookStore {
  const { query } = database;
  /** The webhooks that are on and want an event; their events are stored as JSON. */
  const wanting = (event: string) => sql<boolean>`disabled_at is null and events like ${`%"${event}"%`}`;
  const waitingOf = sql<number>`(select count(*) from webhook_deliveries
    where webhook_deliveries.webhook_id = webhooks.id and webhook_deliveries.due_at is not null)`;
  const find = database.statement((select, given: { id: string }) =>
    select.selectFrom('webhooks').selectAll().where('id', '=', given.id),
  );
  const firstDue = database.statement((select) =>
    select.selectFrom('webhook_deliveries').select('due_at').where('due_at', 'is not', null).orderBy('due_at').limit(1),
  );
  const nextDue = async () => (await database.readKeyed(firstDue()))[0]?.due_at ?? undefined;
  const endAll = (id: string, now: number, detail: string) =>
    query
      .updateTable('webhook_deliveries')
      .set({ state: 'failed', due_at: null, ended_at: now, detail })
      .where('webhook_id', '=', id)
      .where('due_at', 'is not', null)
      .compile();

  return {
    add: (webhook, most) =>
      insertWithin(database, query.insertInto('webhooks').values(webhook).compile(), {
        name: 'webhooks',
        rows: query.selectFrom('webhooks'),
        most,
      }),
    find: async (id) => (await database.readKeyed(find({ id })))[0],
    list: () =>
      database.read(query.selectFrom('webhooks').selectAll().select(waitingOf.as('waiting')).orderBy('id').compile()),
    remove: (id) => [
      expectChanges(query.deleteFrom('webhooks').where('id', '=', id).compile(), 1),
      query.deleteFrom('webhook_deliveries').where('webhook_id', '=', id).compile(),
    ],
    async isWanted(event) {
      const wanted = query.selectFrom('webhooks').select('id').where(wanting(event)).limit(1);
      return (await database.readKeyed(wanted.compile())).length > 0;
    },
    enqueue: ({ id, event, body, now }) => [
      query
        .updateTable('webhooks')
        .set({ dropped: sql<number>`dropped + 1` })
        .where(wanting(event))
        .where(waitingOf, '>=', MAX_WAITING_DELIVERIES)
        .compile(),
      query
        .insertInto('webhook_deliveries')
        .columns(['id', 'webhook_id', 'event', 'body', 'state', 'attempts', 'detail', 'due_at', 'created_at'])
        .expression(
          query
            .selectFrom('webhooks')
            .select([
              sql<string>`cast(${`${id}.`} as text) || webhooks.id`.as('new_id'),
              'webhooks.id',
              sql<string>`cast(${event} as text)`.as('new_event'),
              sql<string>`cast(${body} as text)`.as('new_body'),
              sql<string>`'waiting'`.as('new_state'),
              sql<number>`0`.as('new_attempts'),
              sql<string>`''`.as('new_detail'),
              sql<number>`cast(${now} as bigint)`.as('new_due_at'),
              sql<number>`cast(${now} as bigint)`.as('new_created_at'),
            ])
            .where(wanting(event))
            .where(waitingOf, '<', MAX_WAITING_DELIVERIES),
        )
        .compile(),
    ],
    async claimNext(now, until, except) {
      // Checks first with a keyed read, because usually nothing is due.
      if (((await nextDue()) ?? Number.POSITIVE_INFINITY) > now) return undefined;
      let due = query.selectFrom('webhook_deliveries').select('id').where('due_at', '<=', now);
      if (except.length > 0) due = due.where('webhook_id', 'not in', except);
      const found = await database.read(due.orderBy('due_at').orderBy('id').limit(CLAIM_CANDIDATES).compile());
      return claimDue(database, 'webhook_deliveries', found, { now, until });
    },
    nextDue,
    // Only a waiting delivery, because the webhook may have been switched off during the attempt.
    putOff: (id, until, detail) =>
      query
        .updateTable('webhook_deliveries')
        .set({ due_at: until, detail })
        .where('id', '=', id)
        .where('due_at', 'is not', null)
        .compile(),
    end: (id, state, now, detail) =>
      query
        .updateTable('webhook_deliveries')
        .set({ state, due_at: null, ended_at: now, detail })
        .where('id', '=', id)
        .compile(),
    noteFailure: (id, now) =>
      query
        .updateTable('webhooks')
        .set({ failing_since: now })
        .where('id', '=', id)
        .where('failing_since', 'is', null)
        .compile(),
    noteSuccess: (id) => query.updateTable('webhooks').set({ failing_since: null }).where('id', '=', id).compile(),
    disable: ({ id, failingSince, now, detail }) => [
      expectChanges(
        query
          .updateTable('webhooks')
          .set({ disabled_at: now })
          .where('id', '=', id)
          .where('disabled_at', 'is', null)
          .where('failing_since', '=', failingSince)
          .compile(),
        1,
      ),
      endAll(id, now, detail),
    ],
    enable: (id) =>
      expectChanges(
        query
          .updateTable('webhooks')
          .set({ disabled_at: null, failing_since: null })
          .where('id', '=', id)
          .where('disabled_at', 'is not', null)
          .compile(),
        1,
      ),
    deliveries(webhookId, before, limit) {
      const select = query.selectFrom('webhook_deliveries').selectAll().where('webhook_id', '=', webhookId);
      const page = before === undefined ? select : select.where('id', '<', before);
      return database.read(page.orderBy('id', 'desc').limit(limit).compile());
    },
  };
}

/** Tables of work that is due at a time, and that one of several instances does. */
type DueTable = 'outgoing_mails' | 'webhook_deliveries';

/** Reads several candidates, because other instances claim some of them at the same time. */
const CLAIM_CANDIDATES = 20;

/**
 * Claims the first of these rows that no other instance has claimed since they were read, by moving its time to `until`.
 * Work whose instance died is due again then.
 */
async function claimDue<Table extends DueTable>(
  database: Database<AccountsSchema>,
  table: Table,
  candidates: readonly { readonly id: string }[],
  { now, until }: { readonly now: number; readonly until: number },
): Promise<AccountsSchema[Table] | undefined> {
  for (const { id } of candidates) {
    // The builder cannot follow a table that is not known yet; both have these columns.
    const claim = database.query
      .updateTable(table as DueTable)
      .set({ due_at: until, attempts: sql<number>`attempts + 1` })
      .where('id', '=', id)
      .where('due_at', '<=', now)
      .returningAll();
    const [{ rows }] = await database.write([claim.compile()]);
    if (rows[0] !== undefined) return rows[0] as AccountsSchema[Table];
  }
  return undefined;
}

/** Mails that have yet to go out. Several instances share the table: the instance that claims a mail sends it. */
interface OutgoingMailStore {
  /** Changes nothing when too many wait already. */
  add(mail: OutgoingMailRow): Runnable;
  /** The oldest mail that is due; until `until` nobody else claims it. A mail whose sender was killed is due again then. */
  claimNext(now: number, until: number): Promise<OutgoingMailRow | undefined>;
  /** All that wait, at most `MAX_WAITING_MAILS`. */
  list(): Promise<OutgoingMailRow[]>;
  putOff(id: string, until: number): Runnable;
  remove(id: string): Runnable;
}

/** A mail server that is down for a day must not fill the disk. */
const MAX_WAITING_MAILS = 10_000;

export function createOutgoingMailStore(database: Database<AccountsSchema>): OutgoingMailStore {
  const { query } = database;
  const add = database.statement((insert, given: OutgoingMailRow) =>
    insert
      .insertInto('outgoing_mails')
      .columns(['id', 'data', 'attempts', 'due_at', 'created_at'])
      .expression(
        insert
          .selectNoFrom([
            sql<string>`cast(${given.id} as text)`.as('new_id'),
            sql<string>`cast(${given.data} as text)`.as('new_data'),
            sql<number>`cast(${given.attempts} as bigint)`.as('new_attempts'),
            sql<number>`cast(${given.due_at} as bigint)`.as('new_due_at'),
            sql<number>`cast(${given.created_at} as bigint)`.as('new_created_at'),
          ])
          .where(
            ({ selectFrom }) => selectFrom('outgoing_mails').select(({ fn }) => fn.countAll<number>().as('count')),
            '<',
            MAX_WAITING_MAILS,
          ),
      ),
  );
  const due = database.statement((select, given: { now: number }) =>
    select
      .selectFrom('outgoing_mails')
      .select('id')
      .where('due_at', '<=', given.now)
      .orderBy('due_at')
      .orderBy('id')
      .limit(CLAIM_CANDIDATES),
  );

  return {
    add: ({ id, data, attempts, due_at, created_at }) => add({ id, data, attempts, due_at, created_at }),
    claimNext: async (now, until) =>
      claimDue(database, 'outgoing_mails', await database.readKeyed(due({ now })), { now, until }),
    list: () => database.read(query.selectFrom('outgoing_mails').selectAll().compile()),
    putOff: (id, until) => query.updateTable('outgoing_mails').set({ due_at: until }).where('id', '=', id).compile(),
    remove: (id) => query.deleteFrom('outgoing_mails').where('id', '=', id).compile(),
  };
}
