import type { Generated } from 'kysely';

/** The tables of the bridge's database. */
export interface BridgeSchema {
  instances: Defaulted<InstanceRow, 'home' | 'report'>;
  sessions: Defaulted<SessionRow, 'choices' | 'mcp_servers' | 'epoch' | 'home'>;
  turns: TurnRow;
  session_updates: UpdateChunkRow;
  audit_records: AuditRow;
  builtin_messages: BuiltinMessageRow;
  artifacts: Defaulted<ArtifactRow, 'home'>;
  jobs: JobRow;
  job_counts: JobCountRow;
  job_deliveries: JobDeliveryRow;
  job_delivery_attempts: DeliveryAttemptRow;
  session_routes: SessionRouteRow;
  schedules: ScheduleRow;
  session_summaries: SummaryRow;
  permissions: PermissionRow;
  permission_rules: PermissionRuleRow;
  attachments: Defaulted<AttachmentRow, 'home'>;
  runners: RunnerRow;
  runner_turns: RunnerTurnRow;
}

/** A row of something with files; `home` names the data directory that has them, and is empty on SQLite. */
export type NewRow<Row extends { readonly home: string }> = Omit<Row, 'home'> & Partial<Pick<Row, 'home'>>;
/** What belongs to a principal. */
interface Owned {
  readonly id: string;
  readonly owner: string;
  readonly tenant: string;
}
type Defaulted<Row, Name extends keyof Row> = Omit<Row, Name> & { readonly [Key in Name]: Generated<Row[Key]> };

export interface InstanceRow {
  readonly id: string;
  readonly version: string;
  readonly address: string;
  readonly started_at: number;
  readonly heartbeat_at: number;
  readonly home: string;
  /** As JSON text: what it says about itself with each heartbeat. */
  readonly report: string;
}

/** A machine with agents that connects to the instances. */
export interface RunnerRow {
  readonly id: string;
  readonly name: string;
  readonly key_hash: string;
  /** Both as JSON text; the second one is what it said last, and empty before. */
  readonly labels: string;
  readonly report: string;
  /** Turns that it runs at the same time; 0 before it was connected, and with `--once`. */
  readonly slots: number;
  /** The bridge that it is connected to, and the connection; empty while it is away. */
  readonly instance: string;
  readonly connection: string;
  /** With `--once`: what names its process, and the name of the only session there. Otherwise empty. */
  readonly process: string;
  readonly session: string;
}

/** A turn that a bridge runs on a runner, by the name of the session there. */
export interface RunnerTurnRow extends Pick<RunnerRow, 'id' | 'instance'> {
  readonly runner_id: string;
}

/** A session of an app. After it was closed only its key, its names and its last number are left. */
export interface SessionRow extends Omit<Owned, 'id'> {
  readonly key: string;
  /** What the app calls it: unique for its owner only. */
  readonly session_id: string;
  readonly thread_id: string;
  /** The bridge that runs a turn of it; empty while none does. */
  readonly instance: string;
  readonly provider_id: string;
  /** The agent's own name for the conversation; empty until there is one. */
  readonly reference: string;
  /** Empty: the scratch folder of the session. */
  readonly working_directory: string;
  /** What people have chosen for its turns, as JSON text; empty: nothing. */
  readonly choices: string;
  /** Its MCP servers, encrypted for this session; empty: none. */
  readonly mcp_servers: string;
  /** No update has a higher number than this. */
  readonly reserved_seq: number;
  /** Incremented when a bridge takes the session, and when a turn of a dead bridge is ended. */
  readonly epoch: number;
  /** The data directory of the bridge that had it last: its agent and its files are there. */
  readonly home: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly closed_at: number | null;
}

/** One turn: its prompt and its outcome. The turns of a session are its history. */
export interface TurnRow extends Owned {
  readonly session_key: string;
  readonly instance: string;
  readonly method: string;
  /** The id of the call, as JSON text. */
  readonly request_id: string;
  /** Of method and parameters: tells whether a repeated call is the same. */
  readonly request_fingerprint: string;
  readonly idempotency_key: string;
  /** As JSON text, since a prompt may hold characters that no text column takes. */
  readonly prompt: string;
  /** As JSON text: the files that came with it, once the turn has begun. */
  readonly attachments: string;
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
export interface AuditRow extends Owned {
  readonly at: number;
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
  /** The turn that it belongs to; empty for those of older releases. */
  readonly turn_id: string;
  readonly created_at: number;
}

/** A background job. */
export interface JobRow extends Owned {
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
  /** Counts the runs of the job: a write about an earlier run is refused. */
  readonly attempt: number;
  /** 1 when a bridge that does not run it wants it stopped. */
  readonly stop_requested: number;
  /** Result, error and its code, as JSON text; empty while the job is open. */
  readonly outcome: string;
  readonly webhook_url: string;
  readonly webhook_sent: number;
  readonly webhook_tries: number;
  readonly card_sent: number;
  /** 0 is high, 1 normal, 2 low: of the jobs of one owner, lower numbers go first. */
  readonly priority: number;
  /** How often it may be run again after a failure of its agent, and how often it was. */
  readonly retries: number;
  readonly retried: number;
  /** The moment before which it must not run; 0 without. */
  readonly not_before: number;
  /** When it is run again after a failure; 0 before the first one. */
  readonly retry_at: number;
  /** The schedule that made it; empty without. */
  readonly schedule_id: string;
  /** The beginning of the prompt and the names, in lower case, for searches. */
  readonly search_text: string;
  /** The member who submitted it, where the owner is a team; empty otherwise. */
  readonly member: string;
}

/** A file that a turn produced; its bytes lie in the data directory under its id. */
export interface ArtifactRow extends Owned {
  readonly session_key: string;
  readonly turn_id: string;
  /** As JSON text: the name of a file may hold what no column takes. */
  readonly relative_path: string;
  readonly content_type: string;
  readonly size_bytes: number;
  readonly sha256: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly home: string;
}

export type JobStatus = 'pending' | 'running' | 'completed' | 'failed';

/** How many jobs of an owner and an agent are in each state. The sums over all shards count. */
export interface JobCountRow extends Omit<Owned, 'id'> {
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

/** A delivery about an ended job: a webhook or a card. */
export interface JobDeliveryRow {
  readonly id: string;
  readonly job_id: string;
  readonly kind: 'webhook' | 'card';
  /** Attempts begun so far. */
  readonly attempts: number;
  readonly due_at: number;
}

/** One attempt to deliver something about an ended job. */
export interface DeliveryAttemptRow extends Pick<JobDeliveryRow, 'job_id' | 'kind'> {
  readonly delivery_id: string;
  readonly attempt: number;
  readonly started_at: number;
  /** Null while the attempt runs, and if its bridge ended during the attempt. */
  readonly ended_at: number | null;
  readonly result: 'unknown' | 'sent' | 'failed';
  /** The status of the response, or the error. */
  readonly detail: string;
}

/** A task that becomes a job at certain times. */
export interface ScheduleRow extends Owned {
  /** As JSON text, since a name may hold characters that no text column takes. */
  readonly name: string;
  /** Empty when `every_ms` is given. */
  readonly cron: string;
  readonly every_ms: number;
  readonly timezone: string;
  /** The params of the submit, as JSON text. */
  readonly task: string;
  readonly enabled: number;
  readonly overlap: 'skip' | 'queue';
  readonly catch_up: 'none' | 'one';
  /** When it fires next; null while it is not enabled. A bridge that changes it has fired. */
  readonly next_at: number | null;
  /** The moment at which `next_at` was computed. */
  readonly counted_at: number;
  /** Counts the changes of people: a firing of what it was before is refused. */
  readonly version: number;
  /** The outcome of the last time at which it was due. */
  readonly last_at: number | null;
  readonly last_result: '' | 'fired' | 'skipped' | 'missed' | 'refused';
  readonly last_message: string;
  /** Of the last firing; empty before the first. */
  readonly last_job_id: string;
  readonly created_at: number;
  readonly updated_at: number;
  /** The member whose limits count for it, where the owner is a team; empty otherwise. */
  readonly member: string;
}

/** The node that has a forwarded session or job. */
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

/** What lists show of an open session. Whether it runs or waits is not stored here: its open turns say so. */
export interface SummaryRow extends Omit<Owned, 'id'> {
  readonly session_key: string;
  readonly session_id: string;
  readonly thread_id: string;
  /** As JSON text, since a title may hold characters that no text column takes. Empty until the first turn begins. */
  readonly title: string;
  /** Title and session id in lower case, for searches; without characters that no text column takes. */
  readonly search_text: string;
  readonly provider_id: string;
  readonly model: string;
  /** The mode of the agent; empty while unknown. */
  readonly mode: string;
  /** What its agent offers, as JSON text; empty while unknown. */
  readonly offers: string;
  /** Empty: the scratch folder of the session. */
  readonly folder: string;
  /** As JSON text; empty while nothing is known. */
  readonly doing: string;
  /** Turns that have ended, and what they used. */
  readonly turns: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly total_tokens: number;
  readonly cost_usd: number | null;
  /** What its turns have changed in its folder. */
  readonly changed_files: number;
  readonly lines_added: number;
  readonly lines_removed: number;
  /** The turn that has ended last; empty before the first. */
  readonly last_turn: string;
  readonly last_status: string;
  readonly last_code: string;
  readonly last_seq: number;
  readonly job_id: string;
  readonly created_at: number;
  readonly updated_at: number;
  readonly archived_at: number | null;
  readonly pinned: number;
}

/** A question of an agent that a person is to answer. */
export interface PermissionRow extends Owned {
  readonly session_key: string;
  readonly session_id: string;
  readonly turn_id: string;
  /** The bridge whose turn waits for the answer. */
  readonly instance: string;
  readonly folder: string;
  /** This one and the next four as JSON text. */
  readonly tool_call_id: string;
  readonly title: string;
  readonly input: string;
  readonly options: string;
  readonly reason: string;
  readonly tool_kind: string;
  /** The form of a question as JSON text; empty for a request for permission. */
  readonly form: string;
  /** The values of an answer as JSON text, until the agent has got them; otherwise empty. */
  readonly given: string;
  readonly state: 'open' | 'allowed' | 'denied' | 'answered' | 'declined' | 'cancelled' | 'expired';
  /** The option that was chosen; empty when none was. */
  readonly option_id: string;
  /** once, session or always; empty without an answer. */
  readonly scope: string;
  readonly answered_by: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly answered_at: number | null;
}

/** An answer that counts for the same question again. */
export interface PermissionRuleRow extends Owned {
  /** Empty: for every session of the owner in the folder. */
  readonly session_key: string;
  readonly session_id: string;
  readonly folder: string;
  readonly tool_kind: string;
  /** The words of the command, and the path, as JSON text; null without. */
  readonly command: string;
  readonly path: string;
  readonly decision: 'allow' | 'deny';
  readonly created_by: string;
  readonly created_at: number;
  readonly expires_at: number;
}

/** A file that was uploaded for a prompt; its bytes lie in the data directory under its id. */
export interface AttachmentRow extends Owned {
  /** As JSON text. */
  readonly name: string;
  readonly content_type: string;
  readonly size_bytes: number;
  readonly sha256: string;
  /** When a turn or a job first used it. */
  readonly used_at: number | null;
  readonly created_at: number;
  readonly expires_at: number;
  readonly home: string;
}
