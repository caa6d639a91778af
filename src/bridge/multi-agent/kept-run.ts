import type { FailureCode, TurnUsage } from '../agents/agent-provider.ts';
import { type MultiAgentPlan, type PlanChange, type PlannedStep, TEMPLATE } from './multi-agent-plan.ts';
import type { StepRecord } from './run-step.ts';

/** A step as the session stores it, so that a message can continue it. */
export interface KeptStep extends PlannedStep {
  /** The agent's own reference to its session; empty until the step has been asked. */
  readonly reference: string;
  /** The step has lost a race, and its agent session was closed. */
  readonly isClosed: boolean;
}

/** How a step of an interrupted run ended: as its record, with what the step used. */
export interface KeptEnd {
  readonly record: StepRecord;
  readonly code: FailureCode;
  readonly usage?: TurnUsage;
}

/** What a run has done so far, for the run of the same task after a restart. */
export interface RunProgress {
  readonly taskId: string;
  /** The places of the steps whose agent sessions this run opens. */
  readonly opened: readonly number[];
  readonly ends: readonly KeptEnd[];
}

/** What a session stores of its runs, as its reference. */
export interface KeptRun extends Omit<MultiAgentPlan, 'input' | 'steps'> {
  /** Every step that the session ever had; a prompt without templates is empty, because a message replaces it. */
  readonly steps: readonly KeptStep[];
  /** The steps of the last run, by their places in `steps`. */
  readonly planned: readonly number[];
  /** Of a run that has not ended. */
  readonly progress?: RunProgress;
}

/** Whether the last run of a session was interrupted, and this task goes on with it. */
export function hasProgress(reference = '', taskId?: string): boolean {
  return taskId !== undefined && readRun(reference)?.progress?.taskId === taskId;
}

/** Larger prompts are not stored with the session: in the next run the message takes their place. */
const MAX_KEPT_PROMPT = 16 * 1024;

export function keptPrompt(prompt: string): string {
  return prompt.length <= MAX_KEPT_PROMPT && prompt.search(TEMPLATE) !== -1 ? prompt : '';
}

export function writeRun(run: KeptRun): string {
  return JSON.stringify({ version: 1, ...run });
}

/** Undefined for the reference of a run of release 0.1.0, which stored nothing about its steps. */
export function readRun(reference: string): KeptRun | undefined {
  if (!reference.startsWith('{"version":1,')) return undefined;
  return JSON.parse(reference) as KeptRun;
}

/**
 * The next run of a session. The nth step of an agent continues the nth one that the session has of that agent; a step
 * without such a one has no place.
 */
export function planNext(run: KeptRun, change: PlanChange): { plan: MultiAgentPlan; places: (number | undefined)[] } {
  const { mode = run.mode, maxTurns = run.maxTurns, stopConditions = run.stopConditions, input, steps } = change;
  const common = { mode, maxTurns, stopConditions, input };
  if (steps === undefined) {
    const earlier = run.planned.flatMap((place) => run.steps[place] ?? []);
    return {
      plan: { ...common, steps: earlier.map((step) => ({ ...step, prompt: step.prompt || input })) },
      places: [...run.planned],
    };
  }
  const free = run.steps.map(({ providerId }, place) => ({ providerId, place }));
  const places = steps.map(({ providerId }) => {
    const index = free.findIndex((one) => one.providerId === providerId);
    return index === -1 ? undefined : free.splice(index, 1)[0]?.place;
  });
  return { plan: { ...common, steps }, places };
}
