import { fork } from 'node:child_process';
import { createScope } from '../../test/kit/create-scope.ts';
import { startScriptedBridge } from '../bridge/scripted-bridge.ts';
import { runRound } from '../report/take-turns.ts';
import { openRawRows } from './raw-rows.ts';
import type { SubmitCount, SubmitRound } from './submit-client.ts';

export interface SubmitBench {
  /** Submits per second over HTTP at 64 in flight, and raw one-row commits per second, round by round. */
  readonly submits: readonly number[];
  readonly raw: readonly number[];
  /** How long each submit took at half of that rate, in milliseconds. */
  readonly halfLoadMs: readonly number[];
}

const IN_FLIGHT = 64;
const WARM_UP_MS = 2000;
const CLIENT = new URL('./submit-client.ts', import.meta.url);
/** The jobs that run wait for ever, so that what is measured is submitting. */
const PARAMS = { taskPrompt: 'wait', timeoutMs: 86_400_000 };
/** A run submits more jobs than one owner may have waiting. */
export const UNLIMITED_JOBS = { TRESTLE_JOBS_MAX_WAITING_PER_OWNER: '10000000' };
/** The request that submits one of them. */
export const BODY = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'app.jobs.submit', params: PARAMS });

export async function benchSubmits({ rounds, roundMs }: { rounds: number; roundMs: number }): Promise<SubmitBench> {
  const scope = createScope();
  try {
    const { port } = await startScriptedBridge(scope, UNLIMITED_JOBS);
    const client = fork(CLIENT);
    scope.after(() => client.kill());
    const raw = await openRawRows(scope);
    const submitFor = async (ms: number, perSecond?: number): Promise<SubmitCount> => {
      const round: SubmitRound = { port, path: '/acp/rpc', body: BODY, connections: IN_FLIGHT, ms };
      const count = await runRound(client, { ...round, ...(perSecond !== undefined && { perSecond }) });
      if (count.refusals !== 0) throw new Error(`${count.refusals} submits were refused`);
      return count as SubmitCount;
    };

    await submitFor(WARM_UP_MS);
    const submits: number[] = [];
    const commits: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      commits.push(raw.commitFor(roundMs));
      const { answers, ms } = await submitFor(roundMs);
      submits.push((answers * 1000) / ms);
    }
    const sorted = submits.toSorted((a, b) => a - b);
    const { tookMs } = await submitFor(rounds * roundMs, (sorted[sorted.length >> 1] ?? 0) / 2);
    return { submits, raw: commits, halfLoadMs: tookMs };
  } finally {
    await scope.end();
  }
}
