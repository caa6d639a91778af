import type { AttemptsEvent, TryEvent } from './attempt-events.ts';

const FAILURES = 5;
const WINDOW_MS = 30_000;
const OUT_MS = 30_000;

/** What is known of one target, as the documentation has it. */
interface Circuit {
  failures: number[];
  outUntil: number;
  /** Whether it has been out since it last answered. */
  isOut: boolean;
  /** The try that finds out whether it is back. */
  probe: number | undefined;
}

/** A target that fails five times within 30 seconds is out for 30 seconds, then one try finds out whether it is back. */
export function checkCircuits(events: readonly AttemptsEvent[]): string[] {
  let circuits = new Map<string, Circuit>();
  let beganOut = new Set<number>();
  return events.flatMap((event) => {
    if (event.kind === 'start') {
      // What is known of targets is known to one process.
      circuits = new Map();
      beganOut = new Set();
    }
    if (event.kind !== 'try') return [];
    const circuit = circuits.get(event.target) ?? { failures: [], outUntil: 0, isOut: false, probe: undefined };
    circuits.set(event.target, circuit);
    return checkTry(event, circuit, beganOut);
  });
}

function checkTry(event: TryEvent, circuit: Circuit, probes: Set<number>): string[] {
  const { at, mark, lease, target } = event;
  const isBarred = circuit.isOut && (at < circuit.outUntil || circuit.probe !== undefined);
  switch (mark) {
    case 'out':
      return isBarred ? [] : [`${target} was not asked at ${at}, though it was not out`];
    case 'begins':
      if (circuit.isOut) {
        circuit.probe = lease;
        probes.add(lease);
      }
      return isBarred ? [`${target} was asked at ${at}, while it was out`] : [];
    default:
      endTry(event, circuit, probes.has(lease));
      return [];
  }
}

function endTry({ at, mark }: TryEvent, circuit: Circuit, wasProbe: boolean): void {
  if (wasProbe) {
    circuit.probe = undefined;
    if (mark === 'ok') circuit.isOut = false;
    if (mark === 'failed') circuit.outUntil = at + OUT_MS;
    return;
  }
  if (mark !== 'failed' || circuit.isOut) return;
  circuit.failures = [...circuit.failures.filter((moment) => at - moment < WINDOW_MS), at];
  if (circuit.failures.length < FAILURES) return;
  circuit.failures = [];
  circuit.isOut = true;
  circuit.outUntil = at + OUT_MS;
}
