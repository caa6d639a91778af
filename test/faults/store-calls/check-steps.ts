/** What the store holds of something that was asked for: a part of it is never right. */
export type Stored = 'none' | 'whole' | 'half';

/** The store has not answered in time: on a machine with more to do than it can, that happens without any fault. */
export const LATE = 'call_timeout';

/** A file ended before its end: its connection was cut, because its status had left already. */
export const CUT = 'cut';

/** Something was asked of a service once. One that is asked for again has another attempt. */
export interface StepOperation {
  readonly kind: 'step';
  readonly name: string;
  /** From 1. */
  readonly attempt: number;
  /** Granted, refused, or answered so that nobody knows whether it was done. */
  readonly outcome: 'ok' | 'fail' | 'unknown';
  /** Empty for what was granted. */
  readonly code: string;
  /** How many calls of the store failed meanwhile. */
  readonly failedCalls: number;
  readonly problems: readonly string[];
  /** After it; absent for what changes nothing. */
  readonly stored?: Stored;
  /** It is to be refused with this code. */
  readonly refusal?: string;
  /** Codes with which it may be refused as well when an attempt before may have done or counted it. */
  readonly whenDone?: readonly string[];
}

/** Judges everything that was asked for, each with its further attempts. */
export function checkSteps(operations: readonly StepOperation[]): string[] {
  const steps: StepOperation[][] = [];
  for (const operation of operations) {
    if (operation.attempt === 1) steps.push([operation]);
    else steps.at(-1)?.push(operation);
  }
  return steps.flatMap(checkStep);
}

function checkStep(attempts: readonly StepOperation[]): string[] {
  const violations = attempts.flatMap((operation, index) => {
    const { name, problems, stored, outcome, code, failedCalls, refusal } = operation;
    const mayBeDone = attempts.slice(0, index).some((earlier) => earlier.stored !== 'none');
    return [
      ...problems.map((problem) => `${name}: ${problem}`),
      ...(stored === 'half' ? [`${name} was done by half`] : []),
      ...(outcome === 'unknown' && failedCalls === 0 && code !== LATE
        ? [`${name} got ${code}, and the store had not failed`]
        : []),
      ...(refusal === undefined ? checkGranted(operation, mayBeDone) : checkRefused(operation, refusal, index > 0)),
    ];
  });
  const last = attempts.at(-1);
  return last?.outcome === 'unknown'
    ? [...violations, `${last.name} did not succeed when it was tried again`]
    : violations;
}

function checkGranted({ name, outcome, code, stored, whenDone = [] }: StepOperation, mayBeDone: boolean): string[] {
  if (outcome === 'ok') return stored === 'none' ? [`${name} was answered and is not stored`] : [];
  if (outcome === 'unknown' || (mayBeDone && whenDone.includes(code))) return [];
  const refused = `${name} was refused with ${code}`;
  return [stored === 'whole' ? `${refused}, and is stored` : refused];
}

function checkRefused(operation: StepOperation, refusal: string, isAgain: boolean): string[] {
  const { name, outcome, code, stored, whenDone = [] } = operation;
  const violations = stored === 'whole' ? [`${name} was to be refused with ${refusal}, and is stored`] : [];
  if (outcome === 'ok') return [...violations, `${name} was granted, and was to be refused with ${refusal}`];
  const isRight = outcome === 'unknown' || code === refusal || (isAgain && whenDone.includes(code));
  return isRight ? violations : [...violations, `${name} was refused with ${code} instead of ${refusal}`];
}
