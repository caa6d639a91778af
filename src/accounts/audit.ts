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

/** An entry of the audit log. Administrators see its details, so they never include a secret. */
export interface AuditEntry {
  /** A dotted word: `login.failed`, `role.changed`. */
  readonly event: string;
  /** Who caused it: a user's id, `agent:<id>`, `command`, `system`; empty for an unknown caller. */
  readonly actor?: string;
  /** The user or object that it concerns. */
  readonly subject?: string;
  /** The request that caused it; absent for work without a request. */
  readonly head?: Pick<RequestHead, 'address' | 'requestId'>;
  readonly details?: Readonly<Record<string, unknown>>;
}

export interface Audit {
  /** For a batch: the entry and the change that it describes are stored together, or not at all. */
  statement(entry: AuditEntry): Statement;
  /** For an event without another change. */
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

/** Returns the name of an owner in the audit log: the bare id for users, so that one filter finds all entries about a user. */
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
