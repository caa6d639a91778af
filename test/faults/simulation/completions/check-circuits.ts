import type { AttemptsEvent, TryEvent } from './attempt-events.ts';

const MIN_CALLS = 10;
const SLOT_MS = 5000;
const SLOTS = 6;
const OUT_MS = 30_000;

/** What is known of one target, as the documentation has it. */
interface Circuit {
  /** The slots of the window are counted from the start of the process. */
  readonly bornAt: number;
  ends: { readonly at: number; readonly caller: string; readonly failed: boolean }[];
  outUntil: number;
  /** Whether it has been out since it last answered. */
  isOut: boolean;
  /** The try that finds out whether it is back, and since when. */
  probe: { readonly lease: number; readonly at: number } | undefined;
}

/**
 * A target of which more than half of at least ten calls within 30 seconds fail, for two callers or more, is out for 30
 * seconds; then one try finds out whether it is back. A sole target is asked all the same.
 */
export function checkCircuits(events: readonly AttemptsEvent[]): string[] {
  let circuits = new Map<string, Circuit>();
  let probes = new Set<number>();
  let bornAt = 0;
  return events.flatMap((event) => {
    if (event.kind === 'start') {
      // What is known of targets is known to one process.
      circuits = new Map();
      probes = new Set();
      bornAt = event.at;
    }
    if (event.kind !== 'try') return [];
    const circuit = circuits.get(event.target) ?? { bornAt, ends: [], outUntil: 0, isOut: false, probe: undefined };
    circuits.set(event.target, circuit);
    return checkTry(event, circuit, probes);
  });
}

function checkTry(event: TryEvent, circuit: Circuit, probes: Set<number>): string[] {
  const { at, mark, lease, target, isSole } = event;
  const isProbing = circuit.probe !== undefined && at - circuit.probe.at < OUT_MS;
  const isBarred = !isSole && circuit.isOut && (at < circuit.outUntil || isProbing);
  switch (mark) {
    case 'out':
      return isBarred ? [] : [`${target} was not asked at ${at}, though it was not out`];
    case 'begins':
      if (circuit.isOut && at >= circuit.outUntil) {
        circuit.probe = { lease, at };
        probes.add(lease);
      }
      return isBarred ? [`${target} was asked at ${at}, while it was out`] : [];
    case 'answered':
      if (probes.has(lease)) comeBack(circuit);
      return [];
    default:
      endTry(event, circuit, probes.has(lease));
      return [];
  }
}

function comeBack(circuit: Circuit): void {
  circuit.isOut = false;
  circuit.probe = undefined;
}

function goOut(circuit: Circuit, at: number): void {
  circuit.ends = [];
  circuit.isOut = true;
  circuit.probe = undefined;
  circuit.outUntil = at + OUT_MS;
}

function endTry({ at, mark, caller }: TryEvent, circuit: Circuit, wasProbe: boolean): void {
  if (wasProbe && circuit.isOut) {
    if (mark === 'failed') goOut(circuit, at);
    else if (mark === 'ok') comeBack(circuit);
    else circuit.probe = undefined;
    return;
  }
  if (mark === 'ignored' || circuit.isOut) return;
  const slotOf = (time: number) => Math.floor((time - circuit.bornAt) / SLOT_MS);
  const oldest = slotOf(at) - SLOTS;
  const failed = mark === 'failed';
  circuit.ends = [...circuit.ends.filter((end) => slotOf(end.at) > oldest), { at, caller, failed }];
  if (failed && shouldOpen(circuit.ends)) goOut(circuit, at);
}

function shouldOpen(ends: Circuit['ends']): boolean {
  const failures = ends.filter(({ failed }) => failed);
  const callers = [...new Set(failures.map(({ caller }) => caller))];
  const failuresOf = (name: string) => failures.filter(({ caller }) => caller === name).length;
  const mostFailures = Math.max(...callers.map(failuresOf));
  const worst = callers.filter((caller) => failuresOf(caller) === mostFailures);
  const fails = (all: Circuit['ends']) => all.filter(({ failed }) => failed).length * 2 > all.length;
  const failsWithout = (name: string) => fails(ends.filter(({ caller }) => caller !== name));
  return ends.length >= MIN_CALLS && callers.length > 1 && fails(ends) && worst.every(failsWithout);
}
