import { repeat, withinTime } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import type { RouteRequest } from '../routing/resolve-route.ts';
import type { SessionCalls } from '../sessions/session-calls.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { BridgeSchema } from '../storage/bridge-schema.ts';
import { createJobReportStore } from '../storage/job-report-store.ts';
import { createJobSearchStore } from '../storage/job-search-store.ts';
import { createJobDeliveryStore, createJobStore } from '../storage/job-store.ts';
import { type CallbackNetwork, createCallbackPost, createCallbackRules, createWebhook } from './callbacks.ts';
import { cardText, createDeliveries, type SendDelivery } from './deliveries.ts';
import { cancelJobs, createJobEnds, expireJobs, settleAbandoned, sweepOldJobs } from './job-ends.ts';
import { createFollowClock, createJobQueue, type JobQueue } from './job-queue.ts';
import { requestOf } from './job-record.ts';
import { createJobReports, type JobReports } from './job-reports.ts';
import { createJobRunner } from './job-runner.ts';
import { createSubmitJob, type SubmitJob } from './submit-job.ts';

/** Background jobs (contract/bridge 7). */
export interface Jobs {
  readonly submit: SubmitJob;
  readonly reports: JobReports;
  /** The session calls, with which the jobs of a session end too. */
  readonly sessionCalls: SessionCalls;
  /** Takes no new jobs and begins none. */
  settle(): void;
  /** Called when all turns have ended: stores how their jobs ended. */
  stop(): Promise<void>;
}

/** Calls a tool through the tools proxy; rejects when that fails. */
type InvokeTool = (tool: string, action: string, args: Readonly<Record<string, unknown>>) => Promise<unknown>;

export interface JobsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  /** The id of this running bridge. */
  readonly instance: string;
  readonly agentIds: readonly string[];
  readonly gatewayId: string;
  readonly maxRunning: number;
  /** Of one owner, at this moment. */
  maxRunningOfOwner(): number;
  /** Pending jobs of one owner. */
  readonly maxWaitingOfOwner: number;
  /** Whether a turn of the owner could run right now. */
  hasRoom(owner: string): boolean;
  /** Ranges that callbacks may go to although they are not public. */
  readonly callbackAllow: readonly string[];
  /** How long ended jobs are kept, in milliseconds; 0 is for ever. */
  readonly keptMs: number;
  readonly network: CallbackNetwork;
  readonly orchestrator: Pick<SessionOrchestrator, 'close' | 'hasOwn' | 'isBusy' | 'onIdle'>;
  readonly sessionCalls: SessionCalls;
  readonly invokeTool: InvokeTool;
  isOpen(): boolean;
  webhookSecret(): string;
  route(request: RouteRequest): Promise<RoutingResolution>;
  checkDirectory(path: string): Promise<unknown>;
}

const TICK_MS = 1000;
const SETTLE_PAUSE_MS = 2000;
const SWEEP_PAUSE_MS = 10 * 60_000;
const CARD_MS = 30_000;

/** Puts the parts together, and deals with what an earlier run left behind. */
export async function createJobs(options: JobsOptions): Promise<Jobs> {
  const { database, instance, orchestrator, clock, makeId, logger } = options;
  const store = createJobStore(database);
  const search = createJobSearchStore(database);
  const reports = createJobReportStore(database);
  const { allow, callbacks } = openCallbacks(options);
  if (allow.length > 0) logger.warn({ ranges: allow }, 'jobs.callback_allow opens these ranges to callbacks of jobs');

  const sendCard: SendDelivery = async (job) => {
    try {
      const sent = options.invokeTool('message', 'send', { ...requestOf(job).card, message: cardText(job) });
      await withinTime(clock, CARD_MS, sent, () => {
        throw new Error('the tool took too long');
      });
      return 'sent';
    } catch (error) {
      logger.warn({ err: error, jobId: job.id }, 'the card of a job could not be sent');
      return 'given up';
    }
  };
  const webhook = createWebhook({ post: callbacks.post, secret: options.webhookSecret, now: clock.now });
  const deliveries = createDeliveries({
    store: createJobDeliveryStore(database),
    jobs: store,
    senders: { webhook, card: sendCard },
    clock,
    logger,
  });
  const ends = createJobEnds({ store, clock, makeId, logger, onEnded: () => void deliveries.look() });

  const waiting = createJobQueue({ store, search, instance, clock, isSessionBusy: orchestrator.isBusy });
  // With several bridges on one store their clocks must agree: none of them can tell whose was set.
  const followClock = store.isShared ? async () => undefined : createFollowClock(clock, store.moveDeadlines);
  const queue: JobQueue = {
    ...waiting,
    async take(hasRoom) {
      await followClock();
      return waiting.take((owner) => hasRoom(owner) && options.hasRoom(owner));
    },
  };
  const abandonment = { store, search, ends, instance };
  const runner = createJobRunner({
    queue,
    search,
    ends,
    instance,
    maxRunning: options.maxRunning,
    clock,
    logger,
    maxRunningOfOwner: options.maxRunningOfOwner,
    runTurn: options.sessionCalls.jobTurn,
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

  const onError = (error: unknown) => logger.warn({ err: error }, 'the jobs could not be looked after');
  const repeated = [
    repeat({
      clock,
      pauseMs: TICK_MS,
      onError,
      async work() {
        await followClock();
        await expireJobs({ search, ends, now: clock.now() });
        await runner.compare();
        // Another bridge may have stored what is to be done, and what could not be done may be possible now.
        await Promise.all([runner.look(), deliveries.look()]);
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
  if (store.isShared) repeated.push(repeat({ clock, pauseMs: SETTLE_PAUSE_MS, onError, work: settleDead }));
  void runner.look();
  void deliveries.look();

  let isDraining = false;
  const submit = createSubmitJob({
    ...options,
    store,
    countWaiting: reports.countPending,
    checkCallback: callbacks.check,
    onSubmitted: () => void runner.look(),
  });
  const endJobsOf = (principal: string, name: Parameters<SessionCalls['cancel']>[0]) =>
    cancelJobs(
      { store, search, ends, cancelHere: runner.cancel, hasOwnSession: options.orchestrator.hasOwn },
      principal,
      name,
    );

  return {
    async submit(params, owner) {
      if (isDraining) throw new AppError('SHUTTING_DOWN');
      return submit(params, owner);
    },
    reports: createJobReports({ jobs: store, reports, clock }),
    sessionCalls: {
      ...options.sessionCalls,
      async cancel(params, call) {
        const isMeant = await endJobsOf(call.caller.caller.principal, params);
        return isMeant ? options.sessionCalls.cancel(params, call) : { accepted: true as const };
      },
      async close(params, call) {
        const isMeant = await endJobsOf(call.caller.caller.principal, params);
        return isMeant ? options.sessionCalls.close(params, call) : { accepted: true as const };
      },
    },
    settle() {
      isDraining = true;
      runner.settle();
    },
    async stop() {
      isDraining = true;
      runner.settle();
      await Promise.all(repeated.map((one) => one.stop()));
      ends.stop();
      await runner.stop();
      await deliveries.stop();
    },
  };
}

function openCallbacks({ callbackAllow: allow, isOpen, network, clock }: JobsOptions) {
  const rules = createCallbackRules({ allow, isOpen, ownAddresses: network.ownAddresses });
  return { allow, callbacks: createCallbackPost({ rules, network, clock }) };
}
