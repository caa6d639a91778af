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
  readonly subject?: string | undefined;
  readonly address?: string | undefined;
  readonly request?: string | undefined;
  /** Milliseconds; `to` itself is left out. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
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
    list({ actor, event, subject, address, request, from, to }, before, limit) {
      let select = database.query.selectFrom('audit').selectAll().orderBy('id', 'desc').limit(limit);
      if (actor !== undefined) select = select.where('actor', '=', actor);
      if (event !== undefined) select = select.where('event', '=', event);
      if (subject !== undefined) select = select.where('subject', '=', subject);
      if (address !== undefined) select = select.where('address', '=', address);
      if (request !== undefined) select = select.where('request_id', '=', request);
      if (from !== undefined) select = select.where('at', '>=', from);
      if (to !== undefined) select = select.where('at', '<', to);
      if (before !== undefined) select = select.where('id', '<', before);
      return database.read(select.compile());
    },
  };
}
