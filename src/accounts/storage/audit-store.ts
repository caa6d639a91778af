import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { AccountsSchema, AuditRow } from './accounts-schema.ts';

export interface AuditStore {
  add(entry: AuditRow): Statement;
  write(entry: AuditRow): Promise<void>;
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
  };
}
