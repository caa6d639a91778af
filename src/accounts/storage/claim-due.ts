import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { AccountsSchema } from './accounts-schema.ts';

/** Tables of work that is due at a time, and that one of several instances does. */
type DueTable = 'outgoing_mails' | 'webhook_deliveries';

/** Other instances claim at the same time: with some to choose from, one of them is left. */
export const CLAIM_CANDIDATES = 20;

/**
 * Claims the first of these rows that no other instance has claimed since they were read, by moving its time to `until`.
 * Work whose instance died is due again then.
 */
export async function claimDue<Table extends DueTable>(
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
