import type { Clock } from '../platform/clock/clock.ts';
import type { Statement } from '../platform/database/statement.ts';
import { AppError } from '../platform/errors/app-error.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';
import type { AuditQuery } from './contract/administration.ts';
import { pageOf } from './contract/conventions.ts';
import type { AuditRow } from './storage/accounts-schema.ts';
import type { AuditStore } from './storage/administration-stores.ts';
import { timeText } from './user-object.ts';

/** What happened. Details are shown to administrators: never a secret. */
export interface AuditEntry {
  /** A dotted word: `login.failed`, `role.changed`. */
  readonly event: string;
  /** Who did it: a user's id, `agent:<id>`, `command`, `system`; empty for a stranger. */
  readonly actor?: string;
  /** Whom or what it was done to. */
  readonly subject?: string;
  /** Where it came from; left out for what nobody asked for. */
  readonly head?: Pick<RequestHead, 'address' | 'requestId'>;
  readonly details?: Readonly<Record<string, unknown>>;
}

export interface Audit {
  /** For a batch: the record is stored with the change that it tells of, or neither is. */
  statement(entry: AuditEntry): Statement;
  /** For what changes nothing else. */
  record(entry: AuditEntry): Promise<void>;
}

interface AuditOptions {
  readonly store: AuditStore;
  readonly clock: Pick<Clock, 'now'>;
  readonly makeId: MakeId;
}

export function createAudit({ store, clock, makeId }: AuditOptions): Audit {
  const rowOf = ({ event, actor = '', subject = '', head, details = {} }: AuditEntry): AuditRow => ({
    id: makeId('aud_'),
    at: clock.now(),
    event,
    actor,
    subject,
    address: head?.address ?? '',
    request_id: head?.requestId ?? '',
    details: JSON.stringify(details),
  });
  return {
    statement: (entry) => store.add(rowOf(entry)),
    record: (entry) => store.write(rowOf(entry)),
  };
}

/** How the audit log names an owner: people by their id alone, so that all that is about a person is found together. */
export function auditName(owner: string): string {
  return owner.startsWith('user:') ? owner.slice('user:'.length) : owner;
}

/** Reads the audit log for administrators, newest first. */
export async function listAudit(store: AuditStore, query: AuditQuery) {
  const { cursor, limit, from, to, ...given } = query;
  const filter = { ...given, from: readTime('from', from), to: readTime('to', to) };
  const { rows, nextCursor } = await pageOf(limit, (most) => store.list(filter, cursor, most));
  const entries = rows.map(({ request_id, at, details, ...entry }) => ({
    ...entry,
    at: timeText(at),
    requestId: request_id,
    details: JSON.parse(details) as Record<string, unknown>,
  }));
  return { entries, nextCursor };
}

function readTime(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const at = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(at)) return at;
  const reason = `${name} is not a time such as 2030-01-31T00:00:00Z`;
  throw new AppError('INVALID_REQUEST', { reason, issues: [{ path: `/${name}`, message: reason }] });
}
