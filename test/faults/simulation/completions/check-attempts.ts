import { checkProgram, programCounts } from '../check-program.ts';
import type {
  AskedEvent,
  AttemptsEvent,
  AttemptsSetUp,
  CallEvent,
  PlayedAlias,
  StoredUsage,
} from './attempt-events.ts';
import { checkCircuits } from './check-circuits.ts';
import { checkSpending } from './check-spending.ts';

/** A directly named model has these. */
const DIRECT = { retries: 2, totalMs: 600_000 };
/** Alarms that follow closely upon another wait for each other: each plan ends so much later at most. */
const ALARM_MS = 60;
const NONE: AttemptsSetUp = { kind: 'set-up', fails: 0, isSlow: 0, aliases: [], budgetUsd: 0 };

/** Judges a run by its log and by what is stored at its end. */
export function checkAttempts(events: readonly AttemptsEvent[], stored: StoredUsage, unanswered: number): string[] {
  const setUp = events.find((event) => event.kind === 'set-up') ?? NONE;
  const asked = Map.groupBy(
    events.filter((event): event is AskedEvent => event.kind === 'asked'),
    ({ call }) => call,
  );
  const calls = events.filter((event): event is CallEvent => event.kind === 'call');
  return [
    ...checkProgram(events, setUp),
    ...calls.flatMap((call) => checkCall(call, asked.get(call.call) ?? [], setUp.aliases)),
    ...checkTexts(events, calls, asked),
    ...checkCircuits(events),
    ...checkSpending(events, stored, setUp),
    ...(unanswered === 0 ? [] : [`${unanswered} calls were never answered`]),
  ];
}

export function countsOf(events: readonly AttemptsEvent[]): Record<string, number> {
  const calls = events.filter((event) => event.kind === 'call');
  const count = (wanted: CallEvent['outcome']) => calls.filter(({ outcome }) => outcome === wanted).length;
  return {
    ...programCounts(events),
    'calls answered': count('ok'),
    'calls refused': count('fail'),
    'streams that broke': count('part'),
    'calls left by their callers, or lost': count('left') + count('unknown'),
    'requests to upstreams': events.filter(({ kind }) => kind === 'asked').length,
  };
}

/** Tries go from target to target and from alias to fallback, as often and as long as they may. */
function checkCall(call: CallEvent, asked: readonly AskedEvent[], aliases: readonly PlayedAlias[]): string[] {
  const problems: string[] = [];
  const say = (problem: string) => void problems.push(`${call.call} (${call.model}) ${problem}`);
  if (call.attempts !== undefined && call.attempts !== asked.length) {
    say(`says ${call.attempts} attempts, and ${asked.length} arrived`);
  }
  if (new Set(asked.map(({ idempotencyKey }) => idempotencyKey)).size > 1) say('changed its idempotency key');
  if (asked.some(({ at }) => at > call.endedAt)) say('was tried after its end');
  let left = asked;
  let totalMs = 0;
  const plans = plansOf(call.model, aliases);
  for (const plan of plans) {
    const begunAt = totalMs === 0 ? call.startedAt : (left[0]?.at ?? 0);
    const tries = takePlan(left, plan, begunAt + plan.totalMs);
    left = left.slice(tries.length);
    totalMs += plan.totalMs;
  }
  if (left.length > 0) say(`was tried too often or too late: ${left.map(({ at, target }) => `${target} at ${at}`)}`);
  const isOver = call.outcome === 'fail' && call.endedAt > call.startedAt + totalMs + plans.length * ALARM_MS;
  if (isOver) say(`was refused ${call.endedAt - call.startedAt} ms after its beginning, and had ${totalMs} ms`);
  return problems;
}

function plansOf(model: string, aliases: readonly PlayedAlias[]): PlayedAlias[] {
  const alias = aliases.find(({ name }) => name === model);
  if (alias === undefined) {
    return [{ ...DIRECT, name: model, targets: [{ model, weight: 1, priority: 1 }], fallbacks: [] }];
  }
  return [alias, ...alias.fallbacks.flatMap((name) => plansOf(name, aliases))];
}

/** As many tries from the beginning as can belong to this plan: what is left belongs to the next one. */
function takePlan(asked: readonly AskedEvent[], plan: PlayedAlias, endsAt: number): AskedEvent[] {
  const done = new Set<string>();
  const taken: AskedEvent[] = [];
  let current = '';
  let tries = 0;
  let priority = 0;
  for (const one of asked) {
    const target = plan.targets.find(({ model }) => model === one.target);
    if (target === undefined || one.at >= endsAt) break;
    if (one.target !== current) {
      if (done.has(one.target) || target.priority < priority) break;
      done.add(one.target);
      current = one.target;
      tries = 0;
      priority = target.priority;
    }
    tries += 1;
    if (tries > plan.retries + 1) break;
    taken.push(one);
  }
  return taken;
}

/** What counts as an answer was said, to the end, by the target that is named; part of it otherwise. */
function checkTexts(
  events: readonly AttemptsEvent[],
  calls: readonly CallEvent[],
  asked: ReadonlyMap<string, readonly AskedEvent[]>,
): string[] {
  const told = new Map(events.flatMap((event) => (event.kind === 'told' ? [[event.ask, event]] : [])));
  return calls.flatMap((call) => {
    if (call.text === undefined) return [];
    const last = asked.get(call.call)?.at(-1);
    const whole = told.get(last?.ask ?? 0);
    if (last?.target !== call.target)
      return [`${call.call} was answered by ${call.target}, and ${last?.target} was asked`];
    if (call.outcome === 'ok' && whole?.text !== call.text) {
      return [`${call.call} was answered with "${call.text}", and ${call.target} said "${whole?.text}"`];
    }
    const isPart = call.outcome !== 'part' || call.text.startsWith(`${last?.ask}.`) || call.text === '';
    return isPart ? [] : [`${call.call} got "${call.text}", which ${call.target} never said`];
  });
}
