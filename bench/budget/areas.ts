/** A profile as V8's sampling profiler gives it, in the parts that are read here. Times are microseconds. */
export interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string };
  readonly children?: readonly number[];
}

/** Frames of a file, or of some of its functions, belong to an area. */
type Rule = readonly [area: string, file: string, functions?: readonly string[]];

export const GARBAGE = 'garbage collection';
export const NATIVE = 'native code';
export const OTHER = 'other';
const IDLE = '(idle)';

/**
 * What each file, or function, is for. The first rule that fits a frame counts, so special ones stand first; a frame that no rule
 * fits belongs to its caller.
 */
export const RULES: readonly Rule[] = [
  ['log', 'src/platform/log/'],
  ['log', 'src/platform/http/listener.ts', ['finishedLine', 'fieldsOf', 'hasOwnId']],
  ['metrics', 'src/platform/http/http-metrics.ts'],
  ['metrics', 'src/completions/metering/call-telemetry.ts'],
  ['metering', 'src/completions/metering/'],
  ['metering', 'src/completions/storage/'],
  ['metering', 'src/completions/apis/prices.ts'],
  ['metering', 'src/completions/routing/call-record.ts'],
  ['metering', 'src/completions/keys/create-admissions.ts', ['settle', 'tell', 'chargesOf']],
  ['metering', 'src/completions/keys/admission.ts'],
  ['limits', 'src/completions/keys/create-admissions.ts'],
  ['limits', 'src/completions/keys/rate-limits.ts'],
  ['limits', 'src/completions/keys/budgets.ts'],
  ['limits', 'src/completions/routing/target-'],
  ['guard', 'src/completions/keys/'],
  ['guard', 'src/accounts/login/session-check.ts'],
  ['guard', 'src/accounts/access.ts'],
  ['guard', 'src/bridge/access.ts'],
  ['guard', 'src/platform/identity/'],
  ['guard', 'src/platform/http/surface.ts', ['bearerToken']],
  ['parsing', 'src/platform/http/request-body.ts'],
  ['parsing', 'src/platform/json/'],
  ['parsing', 'src/completions/contract/'],
  ['parsing', 'typebox'],
  ['upstream headers', 'src/completions/upstream/send-upstream.ts'],
  ['upstream headers', 'src/completions/dialects/'],
  ['upstream headers', 'src/completions/operations/encode-chat.ts'],
  ['upstream headers', 'src/completions/relay/splice-body.ts'],
  ['upstream', 'src/completions/upstream/'],
  ['upstream', 'node_modules/undici/'],
  ['upstream', 'wasm://'],
  ['relay', 'src/completions/relay/'],
  ['relay', 'src/completions/operations/'],
  ['relay', 'bench/completions/raw-proxy.ts'],
  ['routing', 'src/platform/http/serve-routes.ts'],
  ['routing', 'src/platform/http/common-routes.ts'],
  ['routing', 'src/completions/'],
  ['routing', 'find-my-way'],
  ['response', 'src/platform/http/surface.ts'],
  ['response', 'src/platform/http/refusal.ts'],
  ['response', 'node:_http_outgoing'],
  ['response', 'node:_http_server', ['writeHead', 'resOnFinish']],
  ['reading', 'node:_http_'],
  ['reading', 'node:internal/stream_base_commons', ['onStreamRead']],
  ['reading', 'src/platform/http/'],
  ['passwords', 'src/accounts/passwords/'],
  ['passwords', '@node-rs/argon2'],
  ['storage', 'src/platform/database/'],
  ['storage', 'src/accounts/storage/'],
  ['storage', 'src/bridge/storage/'],
  ['storage', 'kysely'],
  ['agent', 'src/bridge/agents/'],
  ['agent', 'src/platform/child-process/'],
  ['messages', 'src/platform/json-rpc/'],
  ['messages', 'src/bridge/rpc-'],
  ['messages', 'node_modules/ws/'],
  ['sessions', 'src/bridge/sessions/'],
  ['jobs', 'src/bridge/jobs/'],
  ['service', 'src/bridge/'],
  ['service', 'src/accounts/'],
  ['scheduling', 'src/platform/queue/'],
  ['scheduling', 'node:internal/process/task_queues'],
  ['scheduling', 'node:internal/timers'],
  ['scheduling', 'node:timers'],
];

/** The share of each area in the time that was not idle; they add up to 1. */
export function sharesOf(profile: CpuProfile, rules: readonly Rule[] = RULES): ReadonlyMap<string, number> {
  const areaOf = areaByNode(profile, rules);
  const times = new Map<string, number>();
  let total = 0;
  for (const [index, id] of profile.samples.entries()) {
    const area = areaOf(id);
    // A delta is the time since the sample before, so what a sample stands for is the next one.
    const time = Math.max(0, profile.timeDeltas[index + 1] ?? 0);
    if (area === IDLE) continue;
    total += time;
    times.set(area, (times.get(area) ?? 0) + time);
  }
  return new Map([...times].sort(([, a], [, b]) => b - a).map(([area, time]) => [area, time / total]));
}

/** Of a frame and those that called it, the nearest that a rule fits. */
function areaByNode({ nodes }: CpuProfile, rules: readonly Rule[]): (id: number) => string {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const callers = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)));
  const known = new Map<number, string>();
  const find = (id: number): string => {
    const { functionName = '', url = '' } = byId.get(id)?.callFrame ?? {};
    if (functionName === IDLE) return IDLE;
    if (functionName === '(garbage collector)') return GARBAGE;
    if (functionName === '(program)') return NATIVE;
    const rule = rules.find(([, file, names]) => url.includes(file) && names?.includes(functionName) !== false);
    if (rule !== undefined) return rule[0];
    const caller = callers.get(id);
    return caller === undefined ? OTHER : areaOf(caller);
  };
  const areaOf = (id: number): string => {
    const area = known.get(id) ?? find(id);
    known.set(id, area);
    return area;
  };
  return areaOf;
}
