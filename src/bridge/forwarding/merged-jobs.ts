import type { MethodCall } from '../../platform/json-rpc/method-table.ts';
import { asObject, textOf } from '../agents/agent-text.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { JobList, JobStatistics, JobSummary, NodeAnswer } from '../contract/jobs.ts';
import type { PeerAnswer } from './call-node.ts';
import type { Place } from './session-routes.ts';

export interface MergedJobsParts {
  readonly localId: string;
  /** Why a node is known to be down; undefined while it is not. */
  downReason(nodeId: string): string | undefined;
  /** Asks a node for its jobs of an owner of this bridge. Never rejects. */
  ask(call: MethodCall<BridgeClient>, method: string, place: Place): Promise<PeerAnswer>;
}

export type MergedMethod = 'app.jobs.list' | 'app.jobs.stats';

/** Returns the jobs of this bridge and of the nodes in one result. */
export type MergeJobs = (
  call: MethodCall<BridgeClient>,
  method: MergedMethod,
  places: readonly Place[],
  here: () => unknown,
) => Promise<JobList | JobStatistics>;

export function isMergedMethod(method: string): method is MergedMethod {
  return method === 'app.jobs.list' || method === 'app.jobs.stats';
}

/** Adds the name of the node to its result about jobs. Changes the result, which was just parsed. */
export function nameNode(method: string, result: unknown, nodeId: string): void {
  if (typeof result !== 'object' || result === null) return;
  if (method === 'app.jobs.get') Object.assign(result, { nodeId });
  if (!isMergedMethod(method) || 'nodes' in result) return;
  Object.assign(result, { nodes: [{ nodeId, status: 'ok' }] });
  const { jobs } = result as { readonly jobs?: unknown };
  for (const job of Array.isArray(jobs) ? jobs : []) Object.assign(Object(job), { nodeId });
}

interface Report {
  readonly nodeId: string;
  readonly result: Readonly<Record<string, unknown>>;
}

const DEFAULT_LIMIT = 100;
/** Results may be long: a page ends when it has this many characters, and its cursor leads on. */
const MAX_PAGE_CHARACTERS = 8 * 1024 * 1024;

/**
 * Jobs that were forwarded belong to the lists of the bridge that the app called. Ids of jobs are in the order of time on
 * all nodes, so one cursor serves all of them. A node that does not answer is named in `nodes`.
 */
export function createMergedJobs({ localId, downReason, ask }: MergedJobsParts): MergeJobs {
  return async (call, method, places, here) => {
    // This bridge first, because it refuses wrong params.
    const own: Report = { nodeId: localId, result: asObject(await here()) };
    const reports: Report[] = [own];
    const nodes = new Map<string, NodeAnswer>([[localId, { nodeId: localId, status: 'ok' }]]);
    const fail = (nodeId: string, error: string) => void nodes.set(nodeId, { nodeId, status: 'unavailable', error });
    await Promise.all(
      places.map(async (place) => {
        const { nodeId } = place;
        const down = downReason(nodeId);
        const answer: PeerAnswer | undefined = down === undefined ? await ask(call, method, place) : undefined;
        if (answer === undefined) fail(nodeId, down ?? '');
        else if (answer.kind === 'error') fail(nodeId, answer.error.message);
        else if (answer.kind === 'failed') fail(nodeId, answer.reason);
        else {
          reports.push({ nodeId, result: asObject(answer.result) });
          if (!nodes.has(nodeId)) nodes.set(nodeId, { nodeId, status: 'ok' });
        }
      }),
    );
    const answers = [...nodes.values()];
    return method === 'app.jobs.list'
      ? mergeLists(reports, answers, numberOf(asObject(call.params).limit) || DEFAULT_LIMIT)
      : mergeStatistics(reports, answers);
  };
}

function mergeLists(reports: readonly Report[], nodes: NodeAnswer[], limit: number): JobList {
  const all = reports.flatMap(({ nodeId, result }) =>
    listOf(result.jobs).map((job) => ({ ...job, nodeId }) as unknown as JobList['jobs'][number]),
  );
  all.sort((one, other) => (one.jobId < other.jobId ? 1 : -1));
  // After the end of a page that is not the last one, a node may have further jobs.
  const boundary = reports.reduce((last, { result }) => {
    const cursor = textOf(result.nextCursor);
    return cursor > last ? cursor : last;
  }, '');
  const jobs: JobList['jobs'] = [];
  for (let characters = 0; jobs.length < limit && characters < MAX_PAGE_CHARACTERS; ) {
    const job = all[jobs.length];
    if (job === undefined || job.jobId < boundary) break;
    jobs.push(job);
    characters += JSON.stringify(job.result).length;
  }
  const isMore = boundary !== '' || jobs.length < all.length;
  const nextCursor = isMore ? (jobs.at(-1)?.jobId ?? boundary) : null;
  return { jobs, summary: sumUp(reports.map(({ result }) => result.summary)), nextCursor, nodes };
}

function mergeStatistics(reports: readonly Report[], nodes: NodeAnswer[]): JobStatistics {
  const results = reports.map(({ result }) => result);
  const agents = new Set(results.flatMap(({ byProvider }) => Object.keys(asObject(byProvider))));
  const ended = results.map(
    ({ summary }) => numberOf(asObject(summary).completed) + numberOf(asObject(summary).failed),
  );
  const all = ended.reduce((sum, count) => sum + count, 0);
  // A node reports its average only; it counts by the number of jobs that have ended there.
  const weighted = results.reduce(
    (sum, result, index) => sum + numberOf(result.averageDurationMs) * (ended[index] ?? 0),
    0,
  );
  return {
    summary: sumUp(results.map(({ summary }) => summary)),
    byProvider: Object.fromEntries(
      [...agents].map((agent) => [agent, sumUp(results.map(({ byProvider }) => asObject(byProvider)[agent]))]),
    ),
    oldestPendingMs: Math.max(...results.map((result) => numberOf(result.oldestPendingMs))),
    averageDurationMs: all === 0 ? 0 : Math.round(weighted / all),
    nodes,
  };
}

function sumUp(summaries: readonly unknown[]): JobSummary {
  const sum = (name: keyof JobSummary) =>
    summaries.reduce<number>((total, summary) => total + numberOf(asObject(summary)[name]), 0);
  return {
    pending: sum('pending'),
    running: sum('running'),
    completed: sum('completed'),
    failed: sum('failed'),
    total: sum('total'),
  };
}

function listOf(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value)) return [];
  return value.map(asObject).filter(({ jobId }) => typeof jobId === 'string');
}

function numberOf(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}
