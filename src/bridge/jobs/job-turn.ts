import type { MethodCall } from '../../platform/json-rpc/method-call.ts';
import { RawJson } from '../../platform/json-rpc/raw-json.ts';
import type { BridgeCaller } from '../access.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { SessionResult, TurnParams } from '../contract/session.ts';
import type { SessionCalls } from '../sessions/session-calls.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import { requestOf } from './job-record.ts';

/** Runs the turn of a job and gives its result; rejects where `session.start` would be refused. */
export type RunJobTurn = (job: JobRow) => Promise<SessionResult>;

/** A job is an ordinary `session.start` of its owner, whose answer nobody waits for at the other end of a connection. */
export function createJobTurn(calls: Pick<SessionCalls, 'turn'>): RunJobTurn {
  return async (job) => {
    const { card: _card, ...request } = requestOf(job);
    const params: TurnParams = { ...request, sessionId: job.session_id, threadId: job.thread_id };
    const result = await calls.turn('session.start', params, callOf(job, params));
    return result instanceof RawJson ? (JSON.parse(result.text) as SessionResult) : result;
  };
}

function callOf({ id, owner }: JobRow, params: TurnParams): MethodCall<BridgeClient> {
  return {
    method: 'session.start',
    params,
    id,
    caller: {
      kind: 'request',
      // Whoever may submit has one of these names.
      caller: { principal: owner as BridgeCaller['principal'] },
      resume: { afterSeq: undefined, idempotencyKey: '' },
      drained: undefined,
    },
    signal: new AbortController().signal,
    requestId: id,
    notify() {},
    accept() {},
  };
}
