import { createHash } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call } from '../../platform/http/surface.ts';
import type { AgentCaller, UserCall } from '../access.ts';
import type { BasePort, PeoplePort } from '../accounts-core.ts';
import type { AgentReport, AgentStatus, ProxyNode } from '../contract/proxy-node.ts';
import { requireNotClosing } from '../owners.ts';
import type { ProxyAgentStatusRow } from '../storage/accounts-schema.ts';
import type { ClientListStore } from '../storage/administration-stores.ts';
import { timeText } from '../user-object.ts';
import { describeNode, FLOW } from './agent-registry.ts';

type Parts = BasePort & PeoplePort;

/** The agent API for proxy nodes. */
export function createProxyNodes(parts: Parts) {
  const { database, agents, agentRegistry, blacklist, clock } = parts;
  const clientList = createClientList(parts.clientList, clock);
  return {
    /** Lists the nodes with what the caller needs to connect to them. */
    async list({ caller: { user } }: UserCall): Promise<ProxyNode[]> {
      if (await blacklist.has(user.email)) throw new AppError('ACCOUNT_SUSPENDED');
      requireNotClosing(user);
      const ends = user.proxy_uuid_expires_at;
      if (ends !== null && ends <= clock.now()) throw new AppError('PROXY_UUID_EXPIRED');
      return (await agentRegistry.list()).map((agent) => describeNode(agent, user.proxy_uuid));
    },
    async sendClients({ head, reply }: Pick<Call, 'head' | 'reply'>) {
      const { revision, body } = await clientList();
      const tag = `"${revision}"`;
      // Only the node itself may cache it, no proxy in between.
      reply.header('etag', tag).header('cache-control', 'private, no-cache');
      if (matches(head.headers['if-none-match'], tag)) return reply.code(304).send();
      return reply.type('application/json; charset=utf-8').send(body);
    },
    async report(report: AgentReport, { agent }: AgentCaller): Promise<void> {
      if (report.agentId !== agent.id) {
        throw new AppError('AGENT_ID_MISMATCH', { given: report.agentId.slice(0, 64) });
      }
      await database.write([agents.report(reportRow(report, clock.now()))]);
    },
    async statuses(): Promise<{ agents: AgentStatus[] }> {
      const [registered, reports] = await Promise.all([agentRegistry.list(), agents.reports()]);
      const byId = new Map(reports.map((row) => [row.agent_id, row]));
      const now = clock.now();
      return { agents: registered.map((agent) => describeStatus(agent, byId.get(agent.id), now)) };
    },
  };
}

/** Agents report every minute: stale after three missed reports. */
const STALE_AFTER_MS = 3 * 60_000;
const MAX_MESSAGE = 1000;

interface StoredXray {
  readonly running: boolean;
  readonly clients: number;
  readonly lastSync: number | null;
}

const NO_XRAY: StoredXray = { running: false, clients: 0, lastSync: null };

/** Returns a report as it is stored, with the time of this machine, because the clock of a node may be wrong. */
function reportRow(report: AgentReport, now: number): ProxyAgentStatusRow {
  const { running = false, clients = 0, lastSync } = report.xray ?? {};
  const xray: StoredXray = { running, clients, lastSync: readPast(lastSync, now) };
  return {
    agent_id: report.agentId,
    healthy: report.healthy ? 1 : 0,
    message: (report.message ?? '').slice(0, MAX_MESSAGE).toWellFormed(),
    users: report.users ?? 0,
    sync_revision: report.syncRevision ?? '',
    xray: JSON.stringify(xray),
    updated_at: now,
  };
}

/** Describes a proxy node by its last report. A node without a recent report is not healthy. */
function describeStatus(
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

/** Limits a reported time to the present. */
function readPast(text: string | null | undefined, now: number): number | null {
  const at = text === null || text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(at) || at < 0 ? null : Math.min(at, now);
}

/** The header may be a list, and a proxy that compresses marks a tag as weak. */
function matches(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false;
  return header.trim() === '*' || header.split(',').some((each) => each.trim().replace(/^W\//, '') === tag);
}

/** The users that proxy nodes let in, ready to be sent. */
interface ClientList {
  /** Digest of the clients: the same list always has the same one, in every instance. */
  readonly revision: string;
  readonly body: Buffer;
}

interface CurrentList extends ClientList {
  /** The list in the store that it was made from. */
  readonly storedRevision: number;
  readonly madeAt: number;
  /** When the next of its clients ends. */
  readonly endsAt: number;
}

const PAGE = 2000;

/**
 * Builds the list after a change and caches it, because nodes ask every minute and it seldom changes. A call with a cached
 * list costs one keyed read.
 */
function createClientList(store: ClientListStore, clock: Pick<Clock, 'now'>): () => Promise<ClientList> {
  let current: CurrentList | undefined;
  let making: Promise<CurrentList> | undefined;

  async function make(storedRevision: number): Promise<CurrentList> {
    const now = clock.now();
    const clients: Buffer[] = [];
    let endsAt = Number.POSITIVE_INFINITY;
    let after = '';
    for (let isLast = false; !isLast; ) {
      const rows = await store.page(after, now, PAGE);
      for (const row of rows) {
        const client = { id: row.proxy_uuid, email: row.email, flow: FLOW };
        clients.push(Buffer.from(`${clients.length === 0 ? '' : ','}${JSON.stringify(client)}`));
        endsAt = Math.min(endsAt, row.proxy_uuid_expires_at ?? endsAt);
      }
      after = rows.at(-1)?.id ?? '';
      isLast = rows.length < PAGE;
    }
    const digest = createHash('sha256');
    for (const client of clients) digest.update(client);
    const revision = digest.digest('base64url').slice(0, 22);
    const rest = { total: clients.length, generatedAt: timeText(now), revision };
    const body = Buffer.concat([
      Buffer.from('{"clients":['),
      ...clients,
      Buffer.from(`],${JSON.stringify(rest).slice(1)}`),
    ]);
    return { revision, body, storedRevision, madeAt: now, endsAt };
  }

  return async () => {
    const storedRevision = await store.revision();
    const now = clock.now();
    const isCurrent = current?.storedRevision === storedRevision && now < current.endsAt && now >= current.madeAt;
    if (current !== undefined && isCurrent) return current;
    // Concurrent requests share one build, unless it began from an older revision than they have read.
    making ??= make(storedRevision).finally(() => {
      making = undefined;
    });
    const made = await making;
    if (made.storedRevision < storedRevision) return make(storedRevision);
    if (current === undefined || current.storedRevision <= made.storedRevision) current = made;
    return made;
  };
}
