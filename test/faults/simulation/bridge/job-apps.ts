import type { SubmitJobParams } from '../../../../src/bridge/contract/jobs.ts';
import { MAIN, principalOf } from '../../../../src/bridge/principal.ts';
import { seenOf } from '../../jobs/job-operations.ts';
import type { Chance } from '../chance.ts';
import type { Ended, PlayedProgram } from '../played-program.ts';
import type { JobsEvent } from './job-events.ts';
import { callOf, type PlayedBridge } from './played-bridge.ts';

export interface JobApps {
  /** One of them calls the bridge; nobody waits for the answer. */
  act(): void;
}

export interface JobAppsOptions {
  readonly chance: Chance;
  readonly bridge: PlayedProgram<PlayedBridge>;
  readonly agents: readonly string[];
  note(event: JobsEvent): void;
}

type Owner = (typeof OWNERS)[number];

/** A job that an app was told of. */
interface KnownJob {
  readonly jobId: string;
  readonly sessionId: string;
  readonly owner: Owner;
}

const OWNERS = ['main', 'review'] as const;
const PRINCIPALS = { main: MAIN, review: principalOf('review') } as const;
const KEYS = ['a', 'b', 'c', 'd', 'e', 'f'];
const SESSIONS = ['shared', 'other'];
const TIMEOUTS_MS = [1000, 3000, 10_000, 40_000, 60_000];

export function createJobApps({ chance, bridge, agents, note }: JobAppsOptions): JobApps {
  const known: KnownJob[] = [];
  let prompts = 0;

  function chooseParams(prompt: string): SubmitJobParams {
    const named = chance.happens(0.6) ? { providerId: chance.pick(agents) } : {};
    const keyed = chance.happens(0.6) ? { idempotencyKey: chance.pick(KEYS) } : {};
    const session = chance.happens(0.15) ? { sessionId: chance.pick(SESSIONS) } : {};
    const host = chance.happens(0.05) ? 'inside.example' : 'hook.example';
    const webhook = chance.happens(0.5) ? { callbackUrl: `https://${host}/` } : {};
    const retried = chance.happens(0.4) ? { retryOnRestart: true } : {};
    const timeoutMs = chance.pick(TIMEOUTS_MS);
    return { taskPrompt: prompt, timeoutMs, ...named, ...keyed, ...session, ...webhook, ...retried };
  }

  function submit(): void {
    prompts += 1;
    const prompt = `task ${prompts}`;
    const owner = chance.pick(OWNERS);
    const params = chooseParams(prompt);
    const { idempotencyKey } = params;
    const key = idempotencyKey === undefined ? prompt : `${owner} ${idempotencyKey}`;
    bridge.ask(
      ({ jobs }) => jobs.submit(params, PRINCIPALS[owner]),
      ({ told, code, ...ended }) => {
        const rest = { ...(told && { jobId: told.jobId }), ...(code !== undefined && { problem: code }) };
        note({ kind: 'submit', key, prompt, ...ended, ...rest });
        if (told !== undefined) known.push({ ...told, owner });
      },
    );
  }

  function get({ owner, jobId }: KnownJob): void {
    bridge.ask(
      ({ jobs }) => jobs.reports.get(PRINCIPALS[owner], jobId),
      ({ told }) => {
        if (told === undefined) return;
        const job = told.status === 'not_found' ? { ...told, completedAt: null, errorCode: null } : seenOf(told);
        note({ kind: 'seen', job });
      },
    );
  }

  function list({ owner }: KnownJob): void {
    bridge.ask(
      ({ jobs }) => jobs.reports.list(PRINCIPALS[owner], { limit: 5 }),
      ({ told }) => {
        for (const job of told?.jobs ?? []) note({ kind: 'seen', job: seenOf(job) });
      },
    );
  }

  function cancel({ owner, sessionId }: KnownJob): void {
    const client = callOf({
      caller: { principal: PRINCIPALS[owner] },
      sink: undefined,
      stays: false,
      resume: { afterSeq: undefined, idempotencyKey: '' },
    });
    const method = chance.happens(0.8) ? 'cancel' : 'close';
    bridge.ask<unknown>(
      ({ sessionCalls }) => sessionCalls[method]({ sessionId }, client),
      ({ startedAt, endedAt, outcome }: Ended<unknown>) =>
        note({ kind: 'cancel', sessionId, startedAt, endedAt, outcome }),
    );
  }

  return {
    act() {
      if (known.length === 0) return submit();
      const act = chance.weigh([
        [50, submit],
        [20, get],
        [15, cancel],
        [15, list],
      ]);
      return act(chance.pick(known));
    },
  };
}
