import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { AuditRow, BridgeSchema } from './bridge-schema.ts';

export interface AuditStore {
  record(row: AuditRow): Statement;
}

export function createAuditStore(database: Database<BridgeSchema>): AuditStore {
  return {
    record: database.statement((query, given: AuditRow) =>
      query
        .insertInto('audit_records')
        .values({
          id: given.id,
          at: given.at,
          owner: given.owner,
          tenant: given.tenant,
          action: given.action,
          decision: given.decision,
          session_id: given.session_id,
          turn_id: given.turn_id,
          provider_id: given.provider_id,
          subject: given.subject,
        })
        .onConflict((conflict) => conflict.column('id').doNothing()),
    ),
  };
}
