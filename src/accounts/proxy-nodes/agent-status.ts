import type { AgentReport, AgentStatus } from '../contract/proxy-node.ts';
import type { ProxyAgentStatusRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';

/** Reports come every minute: this is after the third that did not come. */
const STALE_AFTER_MS = 3 * 60_000;
const LONGEST_MESSAGE = 1000;

interface StoredXray {
  readonly running: boolean;
  readonly clients: number;
  readonly lastSync: number | null;
}

const NO_XRAY: StoredXray = { running: false, clients: 0, lastSync: null };

/** A report as it is stored. The time is ours: the clock of a node may be wrong, or lie. */
export function reportRow(report: AgentReport, now: number): ProxyAgentStatusRow {
  const { running = false, clients = 0, lastSync } = report.xray ?? {};
  const xray: StoredXray = { running, clients, lastSync: readTime(lastSync, now) };
  return {
    agent_id: report.agentId,
    healthy: report.healthy ? 1 : 0,
    message: (report.message ?? '').slice(0, LONGEST_MESSAGE).toWellFormed(),
    users: report.users ?? 0,
    sync_revision: report.syncRevision ?? '',
    xray: JSON.stringify(xray),
    updated_at: now,
  };
}

/** How an agent stands, by its last report; one that was not heard of for long is not healthy, whatever it said then. */
export function describeStatus(
  { id, name, groups }: { readonly id: string; readonly name: string; readonly groups: readonly string[] },
  row: ProxyAgentStatusRow | undefined,
  now: number,
): AgentStatus {
  const stale = row === undefined || now - row.updated_at > STALE_AFTER_MS;
  const xray = row === undefined ? NO_XRAY : (JSON.parse(row.xray) as StoredXray);
  return {
    id,
    name,
    groups: [...groups],
    healthy: row?.healthy === 1 && !stale,
    message: row?.message ?? '',
    users: row?.users ?? 0,
    syncRevision: row?.sync_revision ?? '',
    updatedAt: row === undefined ? null : timeText(row.updated_at),
    stale,
    xray: { ...xray, lastSync: xray.lastSync === null ? null : timeText(xray.lastSync) },
  };
}

/** Nothing has happened in the future. */
function readTime(text: string | null | undefined, now: number): number | null {
  const at = text === null || text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(at) || at < 0 ? null : Math.min(at, now);
}
