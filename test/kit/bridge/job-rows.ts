import type { JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';

export const makeId = createSortableIds(systemClock, systemRandomness);

/** A job that waits, as a submit stores it. */
export function waitingJob(changes: Partial<JobRow> = {}): JobRow {
  const id = changes.id ?? makeId('job-');
  return {
    id,
    owner: 'main',
    tenant: 'default',
    status: 'pending',
    provider_id: 'one',
    session_id: id,
    thread_id: id,
    request: JSON.stringify({ taskPrompt: 'hello', routing: {} }),
    idempotency_key: null,
    request_fingerprint: '',
    retry_on_restart: 0,
    timeout_ms: 600_000,
    created_at: 1000,
    deadline_at: 601_000,
    started_at: null,
    completed_at: null,
    instance: null,
    attempt: 0,
    stop_requested: 0,
    outcome: '',
    webhook_url: '',
    webhook_sent: 0,
    webhook_tries: 0,
    card_sent: 0,
    priority: 1,
    retries: 0,
    retried: 0,
    not_before: 0,
    retry_at: 0,
    schedule_id: '',
    search_text: '',
    member: '',
    ...changes,
  };
}

/** A job that has ended. */
export function endedRow(changes: Partial<JobRow> = {}): JobRow {
  const outcome = JSON.stringify({ result: null, error: null, errorCode: null });
  return waitingJob({ status: 'completed', started_at: 2000, completed_at: 3000, attempt: 1, outcome, ...changes });
}
