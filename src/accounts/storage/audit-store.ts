import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { AccountsSchema, AuditRow } from './accounts-schema.ts';

export interface AuditStore {
  add(entry: AuditRow): Statement;
  write(entry: AuditRow): Promise<void>;
  /** Newest first; `before` is the id of the last of the page before. */
  list(filter: AuditFilter, before: string | undefined, limit: number): Promise<AuditRow[]>;
}

export interface AuditFilter {
  readonly actor?: string | undefined;
  readonly event?: string | undefined;
}

export function createAuditStore(database: Database<AccountsSchema>): AuditStore {
  const add = database.statement((insert, given: AuditRow) =>
    insert.insertInto('audit').values({
      id: given.id,
      at: given.at,
      event: given.event,
      actor: given.actor,
      subject: given.subject,
      address: given.address,
      request_id: given.request_id,
      details: given.details,
    }),
  );
  return {
    add,
    async write(entry) {
      await database.write([add(entry)]);
    },
    list({ actor, event }, before, limit) {
      let select = database.query.selectFrom('audit').selectAll().orderBy('id', 'desc').limit(limit);
      if (actor !== undefined) select = select.where('actor', '=', actor);
      if (event !== undefined) select = select.where('event', '=', event);
      if (before !== undefined) select = select.where('id', '<', before);
      return database.read(select.compile());
    },
  };
}
