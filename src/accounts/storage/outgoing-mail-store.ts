import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, OutgoingMailRow } from './accounts-schema.ts';
import { CLAIM_CANDIDATES, claimDue } from './claim-due.ts';

/** Mails that have yet to go out. Several instances share the table: the instance that claims a mail sends it. */
export interface OutgoingMailStore {
  /** Changes nothing when too many wait already. */
  add(mail: OutgoingMailRow): Runnable;
  /** The oldest mail that is due; until `until` nobody else claims it. A mail whose sender was killed is due again then. */
  claimNext(now: number, until: number): Promise<OutgoingMailRow | undefined>;
  /** All that wait, at most `MAX_WAITING`. */
  list(): Promise<OutgoingMailRow[]>;
  putOff(id: string, until: number): Runnable;
  remove(id: string): Runnable;
}

/** A mail server that is down for a day must not fill the disk. */
const MAX_WAITING = 10_000;

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
            MAX_WAITING,
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
