import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { createScope } from '../../test/kit/create-scope.ts';
import { startScriptedBridge } from '../bridge/scripted-bridge.ts';
import { openRawRows } from './raw-rows.ts';

export interface SubmitBench {
  /** Submits per second over HTTP at 64 in flight, and raw one-row commits per second, round by round. */
  readonly submits: readonly number[];
  readonly raw: readonly number[];
  /** How long each submit took at half of that rate, in milliseconds. */
  readonly halfLoadMs: readonly number[];
}

const IN_FLIGHT = 64;
const WARM_UP_MS = 2000;
/** The jobs that run wait for ever, so that what is measured is submitting. */
const PARAMS = { taskPrompt: 'wait', timeoutMs: 86_400_000 };
/** A run submits more jobs than one owner may have waiting. */
export const UNLIMITED_JOBS = { TRESTLE_JOBS_MAX_WAITING_PER_OWNER: '10000000' };
/** The request that submits one of them. */
export const BODY = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'app.jobs.submit', params: PARAMS });

export async function benchSubmits({ rounds, roundMs }: { rounds: number; roundMs: number }): Promise<SubmitBench> {
  const scope = createScope();
  try {
    const { url } = await startScriptedBridge(scope, UNLIMITED_JOBS);
    const pool = new Pool(url, { connections: IN_FLIGHT });
    scope.after(() => pool.destroy());
    const raw = await openRawRows(scope);

    async function submit(): Promise<void> {
      const headers = { 'content-type': 'application/json' };
      const { body } = await pool.request({ path: '/acp/rpc', method: 'POST', headers, body: BODY });
      const text = await body.text();
      if (!text.includes('"pending"')) throw new Error(`a submit was refused: ${text}`);
    }

    async function submitFor(ms: number): Promise<number> {
      const start = performance.now();
      let count = 0;
      const loop = async (): Promise<void> => {
        for (; performance.now() - start < ms; count += 1) await submit();
      };
      await Promise.all(Array.from({ length: IN_FLIGHT }, loop));
      return (count * 1000) / (performance.now() - start);
    }

    /** Begins submits at a steady pace, whether or not earlier ones are done. */
    async function submitAtPace(perSecond: number, ms: number): Promise<number[]> {
      const took: number[] = [];
      const pending: Promise<void>[] = [];
      const start = performance.now();
      for (let count = 0; performance.now() - start < ms; count += 1) {
        const due = start + (count * 1000) / perSecond;
        const restMs = due - performance.now();
        if (restMs > 0) await sleep(restMs);
        pending.push(submit().then(() => void took.push(performance.now() - due)));
      }
      await Promise.all(pending);
      return took;
    }

    await submitFor(WARM_UP_MS);
    const submits: number[] = [];
    const commits: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      commits.push(raw.commitFor(roundMs));
      submits.push(await submitFor(roundMs));
    }
    const sorted = submits.toSorted((a, b) => a - b);
    const halfLoadMs = await submitAtPace((sorted[sorted.length >> 1] ?? 0) / 2, rounds * roundMs);
    return { submits, raw: commits, halfLoadMs };
  } finally {
    await scope.end();
  }
}
