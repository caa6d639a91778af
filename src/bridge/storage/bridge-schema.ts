/** The tables of the bridge's database. */
export interface BridgeSchema {
  instances: InstanceRow;
  sessions: SessionRow;
  turns: TurnRow;
  session_updates: UpdateChunkRow;
  audit_records: AuditRow;
  builtin_messages: BuiltinMessageRow;
  artifacts: ArtifactRow;
  jobs: JobRow;
  job_counts: JobCountRow;
  job_deliveries: JobDeliveryRow;
  session_routes: SessionRouteRow;
}

export interface InstanceRow {
  readonly id: string;
  readonly version: string;
  readonly address: string;
  readonly started_at: number;
  readonly heartbeat_at: number;
}

/** A session of an app. After it was closed only its key, its names and its last number are left. */
export interface SessionRow {
  readonly key: string;
  /** What the app calls it: unique for its owner only. */
  readonly session_id: string;
  readonly thread_id: string;
  readonly owner: string;
  readonly tenant: string;
  /** The bridge that runs a turn of it; empty while none does. */
  readonly instance: string;
  readonly provider_id: string;
  /** The agent's own name for the conversation; empty until there is one. */
  readonly reference: string;
  /** Empty: the scratch folder of the session. */
  readonly working_directory: string;
  /** No update has a higher number than this. */
  readonly reserved_seq: number;
  readonly created_at: number;
  readonly updated_at: number;
  readonly closed_at: number | null;
}

/** One turn: what was asked, and what came of it. The turns of a session are its history. */
export interface TurnRow {
  readonly id: string;
  readonly session_key: string;
  readonly owner: string;
  readonly tenant: string;
  readonly instance: string;
  readonly method: string;
  /** The id of the call, as JSON text. */
  readonly request_id: string;
  /** Of method and parameters: tells whether a repeated call is the same. */
  readonly request_fingerprint: string;
  readonly idempotency_key: string;
  /** As JSON text, since a prompt may hold characters that no text column takes. */
  readonly prompt: string;
  /** queued, running, completed, failed, cancelled or unavailable. */
  readonly status: string;
  /** What the result says in any case, as JSON text: known when the turn begins. */
  readonly base: string;
  /** The result or error that the caller got, as JSON text; empty while the turn is open. */
  readonly outcome: string;
  readonly first_seq: number;
  readonly last_seq: number;
  readonly created_at: number;
  readonly ended_at: number | null;
}

/** Updates of a session with consecutive numbers, one JSON text per line. */
export interface UpdateChunkRow {
  readonly session_key: string;
  readonly first_seq: number;
  readonly last_seq: number;
  /** Of the form of the updates. */
  readonly version: number;
  readonly at: number;
  readonly updates: string;
}

/** A decision that somebody may ask about later. */
export interface AuditRow {
  readonly id: string;
  readonly at: number;
  readonly owner: string;
  readonly tenant: string;
  readonly action: string;
  readonly decision: string;
  readonly session_id: string;
  readonly turn_id: string;
  readonly provider_id: string;
  /** As JSON text. */
  readonly subject: string;
}

/** One message of a conversation of the built-in agent. */
export interface BuiltinMessageRow {
  readonly conversation_id: string;
  /** From 0, in the order of the conversation. */
  readonly position: number;
  /** As JSON text. */
  readonly body: string;
  readonly created_at: number;
}

/** A background job (contract/bridge 7). */
export interface JobRow {
  readonly id: string;
  readonly owner: string;
  readonly tenant: string;
  readonly status: JobStatus;
  /** The agent that was asked for or found; the one that did the work, once it is known. May be empty. */
  readonly provider_id: string;
  readonly session_id: string;
  readonly thread_id: string;
  /** What the turn is asked for, and where its card goes, as JSON text. */
  readonly request: string;
  readonly idempotency_key: string | null;
  /** Of the params of the submit: tells whether a repeated key asks for the same. Empty for jobs of older releases. */
  readonly request_fingerprint: string;
  readonly retry_on_restart: number;
  readonly timeout_ms: number;
  readonly created_at: number;
  readonly deadline_at: number;
  readonly started_at: number | null;
  readonly completed_at: number | null;
  /** The bridge that runs it; null while none does. */
  readonly instance: string | null;
  /** Counts the times it was taken to be run: whoever writes the end of an earlier time is late. */
  readonly attempt: number;
  /** 1 when a bridge that does not run it wants it stopped. */
  readonly stop_requested: number;
  /** Result, error and its code, as JSON text; empty while the job is open. */
  readonly outcome: string;
  readonly webhook_url: string;
  readonly webhook_sent: number;
  readonly webhook_tries: number;
  readonly card_sent: number;
}

/** A file that a turn produced; its bytes lie in the data directory under its id. */
export interface ArtifactRow {
  readonly id: string;
  readonly owner: string;
  readonly tenant: string;
  readonly session_key: string;
  readonly turn_id: string;
  /** As JSON text: the name of a file may hold what no column takes. */
  readonly relative_path: string;
  readonly content_type: string;
  readonly size_bytes: number;
  readonly sha256: string;
  readonly created_at: number;
  readonly expires_at: number;
}

export type JobStatus = 'pending' | 'running' | 'completed' | 'failed';

/** How many jobs of an owner and an agent are in each state. The sums over all shards count. */
export interface JobCountRow {
  readonly owner: string;
  readonly tenant: string;
  readonly provider_id: string;
  readonly shard: number;
  readonly pending: number;
  readonly running: number;
  readonly completed: number;
  readonly failed: number;
  /** Ended jobs that had started, and how long those ran in all. */
  readonly ended_runs: number;
  readonly run_ms: number;
}

/** Something to be told about an ended job. */
export interface JobDeliveryRow {
  readonly id: string;
  readonly job_id: string;
  readonly kind: 'webhook' | 'card';
  /** Attempts begun so far. */
  readonly attempts: number;
  readonly due_at: number;
}

/** Where a session, or a job, lives that was handed to another bridge. */
export interface SessionRouteRow {
  readonly owner: string;
  /** session, job or job-key; `jobs` is a node that has any of the owner's jobs, and `name` its id. */
  readonly kind: string;
  readonly name: string;
  /** Of a session; empty for others. */
  readonly thread_id: string;
  readonly node_id: string;
  readonly used_at: number;
}
