import type { ServiceName } from './settings.ts';

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
  readonly agents: readonly { readonly id: string; readonly status: string; readonly version: string }[];
}
