import {
  type CallbackNetwork,
  createCallbackPost,
  createCallbackRules,
} from '../../platform/callbacks/callback-post.ts';
import { repeat, withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { WakeUps } from '../../platform/database/postgres/wake-ups.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Owner } from '../../platform/identity/owner.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { LiveJob } from '../contract/jobs.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import type { BridgeEvent } from '../contract/surface.ts';
import { type Lease, repeatAfterDeaths } from '../instances/instance-registry.ts';
import { isAtWork, isMemberAtWork, isPersons, type PrincipalFor } from '../principal.ts';
import type { RouteRequest } from '../routing/resolve-route.ts';
import { createSchedules, type Schedules } from '../schedules/create-schedules.ts';
import type { ServerBox } from '../sessions/mcp-servers.ts';
import type { SessionCalls } from '../sessions/session-calls.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { BridgeGroups } from '../settings.ts';
import type { BridgeSchema, JobRow } from '../storage/bridge-schema.ts';
import { createJobReportStore } from '../storage/job-report-store.ts';
import { createJobSearchStore } from '../storage/job-search-store.ts';
import { createJobDeliveryStore, createJobStore, type JobDeliveryStore, type JobStore } from '../storage/job-store.ts';
import { createScheduleStore, type ScheduleStore } from '../storage/schedule-store.ts';
import { cardText, createDeliveries, createWebhook, type SendDelivery } from './deliveries.ts';
import { cancelJobs, createJobEnds, createRest, expireJobs, settleAbandoned, sweepOldJobs } from './job-ends.ts';
import { requestOf, STOPPED, toRecord } from './job-record.ts';
import { createJobReports, type JobReports } from './job-reports.ts';
import { createFollowClock, createJobQueue, createJobRunner, type JobQueue } from './job-runner.ts';
import { createSubmitJob, type SubmitJob, type SubmitJobOptions } from './submit-job.ts';

/** Background jobs. */
export interface Jobs {
  readonly submit: SubmitJob;
  readonly reports: JobReports;
  /** Calls the listener with the id of each job that this bridge has changed, once the change is stored. */
  onChange(listener: (jobId: string) => void): void;
  /** Reads a job without its result. Undefined: there is no job with that id. */
  read(jobId: string): Promise<LiveJob | undefined>;
  readonly schedules: Schedules;
  /** The session calls. Cancel and close also end the jobs of the session. */
  readonly sessionCalls: SessionCalls;
  /** Ends the jobs that `session.cancel` or `session.close` names, on whatever bridge they run: through the database. */
  endOf(principal: Principal, method: string, name: SessionName): Promise<unknown>;
  /** Ends the jobs of an owner for whom agents may not work any more; schedules too, when the account was deleted. */
  endAllOf(owner: string): Promise<void>;
  /** Ends the running jobs of teams that a person has left. Waiting jobs end when their turn comes. */
  endLeft(person: Owner): void;
  /** Stops beginning jobs, because other bridges begin them. */
  leave(): void;
  /** Stops accepting and beginning jobs. */
  settle(): void;
  /** Called when all turns have ended: stores how their jobs ended. */
  stop(): Promise<void>;
}

type SessionName = Parameters<SessionCalls['cancel']>[0];

/** Calls a tool through the tools proxy; rejects when that fails. */
type InvokeTool = (tool: string, action: string, args: Readonly<Record<string, unknown>>) => Promise<unknown>;

export interface JobsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  /** The id of this running bridge. */
  readonly instance: string;
  readonly lease: Pick<Lease, 'hasChanged'>;
  /** Undefined: no other bridge shares the database. */
  readonly wakeUps?: WakeUps | undefined;
  /** Whether another bridge has that session. Undefined: no other shares the database. */
  isSessionElsewhere?: ((owner: string, sessionId: string) => Promise<boolean>) | undefined;
  readonly agentIds: readonly string[];
  readonly gatewayId: string;
  readonly settings: Pick<
    BridgeGroups['jobs'],
    'max_running' | 'max_waiting_per_owner' | 'max_schedules_per_owner' | 'min_schedule_interval' | 'callback_allow'
  >;
  /** At this moment. */
  maxRunningOfOwner(owner: string): number;
  /** Whether a turn of the owner could run right now. */
  hasRoom(owner: string): boolean;
  /** How long ended jobs are kept, in milliseconds; 0: without limit. */
  readonly keptMs: number;
  readonly network: CallbackNetwork;
  readonly orchestrator: Pick<SessionOrchestrator, 'close' | 'hasOwn' | 'isBusy' | 'onIdle'>;
  readonly sessionCalls: SessionCalls;
  /** Returns the person or service account with an id; undefined for holders of static tokens and for nodes. */
  ownerOf(owner: string): Promise<Owner | undefined>;
  /** Returns the principal that stored work runs for. */
  readonly principalFor: PrincipalFor;
  /** Posts an event to webhooks. Undefined: there are none. */
  readonly announce?: ((event: BridgeEvent) => void) | undefined;
  readonly invokeTool: InvokeTool;
  /** Throws GATEWAY_NOT_FOR_PEOPLE: cards are sent through the gateway. */
  checkGatewayOwner(owner: string): void;
  isOpen(): boolean;
  webhookSecret(): string;
  route(request: RouteRequest): Promise<RoutingResolution>;
  checkDirectory(path: string, owner: string): Promise<unknown>;
  readonly keepFiles: SubmitJobOptions['keepFiles'];
  /** Keeps the MCP servers of tasks until they run. */
  readonly serverBox: ServerBox;
  readonly checkServers: SubmitJobOptions['checkServers'];
}

const TICK_MS = 1000;
const ENDED_AT_ONCE = 100;
const SETTLE_PAUSE_MS = 500;
const SWEEP_PAUSE_MS = 10 * 60_000;
const CARD_MS = 30_000;

/** Connects the parts, and settles the jobs that an earlier run has left behind. */
export async function createJobs(options: JobsOptions): Promise<Jobs> {
  const { database, instance, settings, orchestrator, clock, makeId, logger } = options;
  let onChange: (jobId: string) => void = () => undefined;
  const search = createJobSearchStore(database);
  const rest = createRest({ search, clock, wakeUps: options.wakeUps, isShared: database.engine === 'postgres' });
  const store = tellingStore(createJobStore(database), rest.end, (jobId) => onChange(jobId));
  const reports = createJobReportStore(database);
  const deliveryStore = tellingDeliveryStore(createJobDeliveryStore(database), (jobId) => onChange(jobId));
  const { allow, callbacks } = openCallbacks(options);
  if (allow.length > 0) logger.warn({ ranges: allow }, 'jobs.callback_allow opens these ranges to callbacks of jobs');

  const sendCard: SendDelivery = async (job) => {
    try {
      options.checkGatewayOwner(job.owner);
      const sent = options.invokeTool('message', 'send', { ...requestOf(job).card, message: cardText(job) });
      await withinTime(clock, CARD_MS, sent, () => {
        throw new Error('the tool took too long');
      });
      return { result: 'sent', detail: '' };
    } catch (error) {
      logger.warn({ err: error, jobId: job.id }, 'the card of a job could not be sent');
      return { result: 'given up', detail: 'the tools proxy did not take it' };
    }
  };
  const webhook = createWebhook({ post: callbacks.post, secret: options.webhookSecret, now: clock.now });
  const deliveries = createDeliveries({
    store: deliveryStore,
    jobs: store,
    senders: { webhook, card: sendCard },
    clock,
    logger,
  });
  const ends = createJobEnds({ store, clock, makeId, logger, onEnded: () => void deliveries.look() });

  const waiting = createJobQueue({ ...options, store, search, isSessionBusy: orchestrator.isBusy });
  // On a shared store `clock` is the clock of the database, which setting the clock of a machine does not change.
  const followClock = store.isShared ? async () => undefined : createFollowClock(clock, store.moveDeadlines);
  const queue: JobQueue = {
    ...waiting,
    async take(hasRoom) {
      await followClock();
      return waiting.take((owner) => hasRoom(owner) && options.hasRoom(owner));
    },
  };
  const mayWork = async ({ owner, member }: Pick<JobRow, 'owner' | 'member'>) => {
    if (!isAtWork(await options.ownerOf(owner))) return false;
    const person = member === '' ? undefined : await options.ownerOf(member);
    return member === '' || (person !== undefined && isMemberAtWork(person, owner));
  };
  const isGone = async (owner: string) => (await options.ownerOf(owner))?.state === 'gone';
  const abandonment = { store, search, ends, instance, clock };
  const runner = createJobRunner({
    queue,
    search,
    ends,
    instance,
    maxRunning: settings.max_running,
    clock,
    logger,
    maxRunningOfOwner: options.maxRunningOfOwner,
    runTurn: options.sessionCalls.jobTurn,
    serverBox: options.serverBox,
    mayWork,
    announce: options.announce,
    async putBack(job) {
      await store.requeue(job);
    },
    async release(jobId) {
      const job = await store.find(jobId);
      if (job?.instance === instance) await settleAbandoned(abandonment, [job]);
    },
  });

  orchestrator.onIdle(runner.sessionIdle);

  const settleDead = async (): Promise<void> => {
    const settled = await settleAbandoned(abandonment);
    if (settled === 0) return;
    logger.warn({ settled }, 'jobs that were running when their bridge died were settled');
    void runner.look();
    void deliveries.look();
  };
  await settleDead();

  let isDraining = false;
  const submission = createSubmitJob({
    ...options,
    store,
    maxWaitingOfOwner: settings.max_waiting_per_owner,
    countOpen: reports.countOpen,
    checkCallback: callbacks.check,
    onSubmitted: () => void runner.look(),
  });
  const schedules = createSchedules({
    store: tellingScheduleStore(createScheduleStore(database), rest.end),
    jobs: { ...submission, find: store.find },
    serverBox: options.serverBox,
    maxOfOwner: settings.max_schedules_per_owner,
    minIntervalMs: settings.min_schedule_interval,
    mayWork,
    isGone,
    clock,
    makeId,
    logger,
  });

  const onError = (error: unknown) => logger.warn({ err: error }, 'the jobs could not be looked after');
  const repeated = [
    repeat({
      clock,
      pauseMs: TICK_MS,
      onError,
      async work() {
        const since = clock.now();
        await followClock();
        if (await rest.goesOn()) return;
        await schedules.fireDue();
        await expireJobs({ search, ends, now: clock.now() });
        await runner.compare();
        // Another bridge may have stored new work, and work that was not possible before may be possible now.
        await Promise.all([runner.look(), deliveries.look()]);
        await rest.begin(since);
      },
    }),
    repeat({
      clock,
      pauseMs: SWEEP_PAUSE_MS,
      onError,
      work: (signal) =>
        sweepOldJobs({ store: reports, keptMs: options.keptMs, clock, signal, closeSession: orchestrator.close }),
    }),
  ];
  if (store.isShared)
    repeated.push(
      repeatAfterDeaths({ clock, lease: options.lease, pauseMs: SETTLE_PAUSE_MS, onError, work: settleDead }),
    );
  void runner.look();
  void deliveries.look();

  const endJobsOf = (principal: Principal, method: string, name: SessionName) =>
    cancelJobs(
      { store, search, ends, cancelHere: runner.cancel, hasOwnSession: options.orchestrator.hasOwn },
      principal,
      method,
      name,
    );

  return {
    async submit(params, principal) {
      if (isDraining) throw new AppError('SHUTTING_DOWN');
      return submission.submit(params, principal);
    },
    onChange(listener) {
      onChange = listener;
    },
    async read(jobId) {
      const job = await store.find(jobId);
      if (job === undefined) return undefined;
      const { result: _result, ...record } = toRecord(job, clock.now());
      return record;
    },
    schedules,
    reports: createJobReports({ jobs: store, reports, deliveries: deliveryStore, clock }),
    sessionCalls: {
      ...options.sessionCalls,
      async cancel(params, call) {
        const isMeant = await endJobsOf(call.caller.caller.principal, 'session.cancel', params);
        return isMeant ? options.sessionCalls.cancel(params, call) : { accepted: true as const };
      },
      async close(params, call) {
        const isMeant = await endJobsOf(call.caller.caller.principal, 'session.close', params);
        return isMeant ? options.sessionCalls.close(params, call) : { accepted: true as const };
      },
    },
    endOf: endJobsOf,
    async endAllOf(owner) {
      runner.cancelWhere((job) => job.owner === owner || job.member === owner);
      if (await isGone(owner)) await schedules.removeOf(owner);
      for (;;) {
        const waiting = await reports.list({ owner, status: 'pending', before: '', limit: ENDED_AT_ONCE });
        let ended = 0;
        for (const job of waiting) if (await ends.end(job, STOPPED.ownerInactive)) ended += 1;
        if (waiting.length < ENDED_AT_ONCE || ended === 0) return;
      }
    },
    endLeft: (person) => runner.cancelWhere((job) => job.member === person.id && !isMemberAtWork(person, job.owner)),
    leave: runner.settle,
    settle() {
      isDraining = true;
      runner.settle();
    },
    async stop() {
      isDraining = true;
      runner.settle();
      await Promise.all([schedules.stop(), ...repeated.map((one) => one.stop())]);
      ends.stop();
      await runner.stop();
      await deliveries.stop();
    },
  };
}

function tellingScheduleStore(store: ScheduleStore, tell: () => void): ScheduleStore {
  return {
    ...store,
    async add(schedule, max) {
      await store.add(schedule, max);
      tell();
    },
    async replace(from, to) {
      const isReplaced = await store.replace(from, to);
      tell();
      return isReplaced;
    },
  };
}

/** Wraps a store, and reports each job that it adds or changes. */
function tellingStore(store: JobStore, tellAdded: () => void, tell: (jobId: string) => void): JobStore {
  const told = async <Result>(jobId: string, change: Promise<Result>): Promise<Result> => {
    const result = await change;
    tell(jobId);
    return result;
  };
  return {
    ...store,
    async add(job, more) {
      await told(job.id, store.add(job, more));
      tellAdded();
    },
    claim: (job, ...rest) => told(job.id, store.claim(job, ...rest)),
    requeue: (job) => told(job.id, store.requeue(job)),
    retry: (job, retryAt) => told(job.id, store.retry(job, retryAt)),
    end: (job, ...rest) => told(job.id, store.end(job, ...rest)),
  };
}

function tellingDeliveryStore(store: JobDeliveryStore, tell: (jobId: string) => void): JobDeliveryStore {
  return {
    ...store,
    async beginAttempt(delivery, ...rest) {
      const isBegun = await store.beginAttempt(delivery, ...rest);
      tell(delivery.job_id);
      return isBegun;
    },
    async finish(delivery, ...rest) {
      await store.finish(delivery, ...rest);
      tell(delivery.job_id);
    },
  };
}

function openCallbacks({ settings: { callback_allow: allow }, isOpen, network, clock }: JobsOptions) {
  const { ownAddresses } = network;
  const rules = createCallbackRules({ allow, allowedBy: 'jobs.callback_allow', isOpen, ownAddresses });
  return { allow, callbacks: createCallbackPost({ rules, network, clock }) };
}

/**
 * Returns how many jobs of an owner may run. One place stays free for others, unless there are none: neither other static tokens, nor
 * nodes, nor people. Where jobs of one person run, there may be more people.
 */
export function maxJobsOfOneOwner({ bridge, jobs, distributed }: BridgeGroups): (owner: string) => number {
  const set = Math.min(jobs.max_running_per_owner, jobs.max_running);
  if (set > 0) return () => set;
  const hasOneToken =
    bridge.review_auth_token === '' && distributed.task_forward_token === '' && distributed.nodes.length === 0;
  return (owner) => (hasOneToken && !isPersons(owner) ? jobs.max_running : Math.max(1, jobs.max_running - 1));
}
