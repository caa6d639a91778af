import type { Clock } from '../platform/clock/clock.ts';
import type { Statement } from '../platform/database/statement.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';
import type { AuditRow } from './storage/accounts-schema.ts';
import type { AuditStore } from './storage/audit-store.ts';

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

export interface AuditOptions {
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
