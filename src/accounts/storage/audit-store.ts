import type { Database, Transaction } from '../../platform/database/database.ts';
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
  /** Whom it was done to or who did it. */
  readonly about?: string | undefined;
  readonly event?: string | undefined;
  readonly subject?: string | undefined;
  readonly address?: string | undefined;
  readonly request?: string | undefined;
  /** Milliseconds; `to` itself is left out. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** Whose traces are taken out of the audit log. */
interface Traces {
  readonly id: string;
  readonly email: string;
  readonly name: string;
}

const REMOVED = '[removed]';
const PAGE = 500;

/** Leaves the id of a user where the audit log holds the address, and removes texts that contain the address or name. */
export async function pseudonymizeAudit(
  { query, run }: Transaction<AccountsSchema>,
  { id, email, name }: Traces,
): Promise<void> {
  await run(query.updateTable('audit').set({ subject: id }).where('subject', '=', email).compile());
  const own = query
    .selectFrom('audit')
    .select(['id', 'details'])
    .where((build) => build.or([build('subject', '=', id), build('actor', '=', id)]))
    .where('details', '<>', '{}')
    .orderBy('id')
    .limit(PAGE);
  const clean = (_: string, value: unknown) =>
    typeof value === 'string' && (names(value, email) || names(value, name)) ? REMOVED : value;
  for (let after = '', isLast = false; !isLast; ) {
    const { rows } = await run(own.where('id', '>', after).compile());
    for (const { id: entry, details } of rows) {
      const cleaned = JSON.stringify(JSON.parse(details), clean);
      if (cleaned === details) continue;
      await run(query.updateTable('audit').set({ details: cleaned }).where('id', '=', entry).compile());
    }
    after = rows.at(-1)?.id ?? '';
    isLast = rows.length < PAGE;
  }
}

/** Whether a text contains a name as whole words; one of signs alone, such as an emoji, counts anywhere. */
function names(text: string, name: string): boolean {
  const words = wordsOf(name);
  return words.trim() === '' ? text.includes(name) : wordsOf(text).includes(words);
}

/** The words of a text, with a space around each. */
function wordsOf(text: string): string {
  return ` ${text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()} `;
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
    list({ actor, about, event, subject, address, request, from, to }, before, limit) {
      let select = database.query.selectFrom('audit').selectAll().orderBy('id', 'desc').limit(limit);
      if (actor !== undefined) select = select.where('actor', '=', actor);
      if (about !== undefined) {
        select = select.where((build) => build.or([build('subject', '=', about), build('actor', '=', about)]));
      }
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
