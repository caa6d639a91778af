import type { ServiceName } from './settings.ts';

export interface AgentStatus {
  readonly id: string;
  readonly status: string;
  readonly version: string;
  /** Of an agent that has one model unless a turn names another. */
  readonly model?: string;
  /** What to do about a status that is not `ok`. */
  readonly advice?: string | undefined;
}

/** What runs and where, for the lines that `serve` prints (with `--json`, this very object). */
export interface SystemSummary {
  readonly version: string;
  readonly url: string;
  readonly pid: number;
  readonly dataDirectory: string;
  readonly database: 'SQLite' | 'PostgreSQL';
  readonly services: readonly ServiceName[];
  /** The services that ask for a credential. */
  readonly guarded: readonly ServiceName[];
  /** Who can reach it, in words: `loopback only, no token`. */
  readonly exposure: string;
  /** Where the first administrator is made, once and within 15 minutes; absent when there is one. */
  readonly firstAdmin?: string;
  readonly agents: readonly AgentStatus[];
}
