import type { CallOutcome, KeyHolder } from '../../../src/completions/keys/admission.ts';
import type { Limits } from '../../../src/platform/identity/owner.ts';

/** A call of a model that answered as asked. */
export function outcomeOf(changes: Partial<CallOutcome> = {}): CallOutcome {
  return {
    model: 'lab/small',
    api: 'lab',
    upstreamModel: 'small',
    usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
    estimated: false,
    outcome: 'ok',
    status: 200,
    attempts: 1,
    durationMs: 120,
    firstTokenMs: 40,
    requestId: 'req_1',
    ...changes,
  };
}

export function holderOf(limits?: Limits, changes: Partial<KeyHolder> = {}): KeyHolder {
  return {
    id: 'key_1',
    owner: '',
    isMaster: false,
    mayUse: () => true,
    buckets: limits === undefined ? [] : [{ id: changes.id ?? 'key_1', name: 'this key', limits }],
    ...changes,
  };
}
