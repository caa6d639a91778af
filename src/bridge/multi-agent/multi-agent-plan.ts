import { AppError } from '../../platform/errors/app-error.ts';
import type { TurnRouting } from '../contract/routing.ts';

const ORCHESTRATION_MODES = ['sequence', 'parallel', 'race', 'conversation'] as const;
export type OrchestrationMode = (typeof ORCHESTRATION_MODES)[number];

/** One agent's part in a run. */
export interface PlannedStep {
  readonly providerId: string;
  /** With templates in it, not yet filled. */
  readonly prompt: string;
  /** The name under which later steps of a sequence find its output; empty for none. */
  readonly outputAs: string;
  readonly timeoutMs: number;
  readonly model: string;
}

/** A multi-agent run, checked: spec/bridge 2.2, contract/bridge 6. */
export interface MultiAgentPlan {
  readonly mode: OrchestrationMode;
  /** The task, which `{{input}}` stands for. */
  readonly input: string;
  readonly steps: readonly PlannedStep[];
  /** Of a conversation: how often a participant is asked, at most. */
  readonly maxTurns: number;
  /** Of a conversation: in lower case; an output that contains one of them is the last. */
  readonly stopConditions: readonly string[];
}

/** What a message changes about the last run of its session. Without `steps`, the steps of that run are meant. */
export type PlanChange = Partial<MultiAgentPlan> & Pick<MultiAgentPlan, 'input'>;

const DEFAULT_STEP_TIMEOUT_MS = 5 * 60_000;
const DEFAULT_STOP_CONDITIONS = ['STATUS: DONE', 'STATUS: CONSENSUS'];

/** Refuses what cannot be run before anything is started. `known` are the agents of the catalog. */
export function readPlan(routing: TurnRouting, input: string, known: readonly string[]): MultiAgentPlan {
  const mode = readMode(routing.orchestrationMode);
  const steps = givenSteps(routing, mode).map((step, index): PlannedStep => {
    const { providerId = '', outputAs = '', timeoutMs = DEFAULT_STEP_TIMEOUT_MS } = step;
    if (providerId === '') throw new AppError('MULTI_AGENT_PROVIDER_REQUIRED', { index });
    if (!known.includes(providerId)) {
      throw new AppError('PROVIDER_UNKNOWN', { providerId: providerId.slice(0, 64), known: known.join(', ') });
    }
    const prompt = isBlank(step.prompt) ? input : (step.prompt ?? '');
    if (isBlank(prompt)) throw new AppError('MULTI_AGENT_PROMPT_REQUIRED', { index });
    return { providerId, prompt, outputAs, timeoutMs, model: step.model || (routing.explicitModel ?? '') };
  });
  if (steps.length === 0) {
    const list = mode === 'conversation' ? 'routing.participants or routing.steps' : 'routing.steps';
    throw new AppError('MULTI_AGENT_STEPS_REQUIRED', { list });
  }
  return {
    mode,
    input,
    steps,
    maxTurns: routing.maxTurns ?? steps.length,
    stopConditions: inLowerCase(routing.stopConditions ?? DEFAULT_STOP_CONDITIONS),
  };
}

/** The same for a message, which may leave out the steps of the session that it continues. */
export function readPlanChange(routing: TurnRouting, input: string, known: readonly string[]): PlanChange {
  const { orchestrationMode = '', participants = [], steps = [], maxTurns, stopConditions } = routing;
  if (participants.length > 0 || steps.length > 0) return readPlan(routing, input, known);
  if (isBlank(input)) throw new AppError('MULTI_AGENT_PROMPT_REQUIRED', { index: 0 });
  return {
    input,
    ...(orchestrationMode !== '' && { mode: readMode(orchestrationMode) }),
    ...(maxTurns !== undefined && { maxTurns }),
    ...(stopConditions !== undefined && { stopConditions: inLowerCase(stopConditions) }),
  };
}

function readMode(given: string | undefined): OrchestrationMode {
  if (given === undefined || given === '') return 'sequence';
  const mode = ORCHESTRATION_MODES.find((known) => known === given);
  if (mode === undefined) {
    throw new AppError('MULTI_AGENT_INVALID_MODE', { mode: given.slice(0, 64), modes: ORCHESTRATION_MODES.join(', ') });
  }
  return mode;
}

type GivenStep = NonNullable<TurnRouting['steps']>[number];

/** The participants of a conversation may be given as plain names. */
function givenSteps({ participants = [], steps = [] }: TurnRouting, mode: OrchestrationMode): readonly GivenStep[] {
  if (mode !== 'conversation' || participants.length === 0) return steps;
  return participants.map((speaker) => (typeof speaker === 'string' ? { providerId: speaker } : speaker));
}

function inLowerCase(texts: readonly string[]): readonly string[] {
  return texts.map((text) => text.toLowerCase());
}

function isBlank(text: string | undefined): boolean {
  return text === undefined || text.trim() === '';
}

const TEMPLATE = /\{\{([^{}]{1,128})\}\}/g;

/**
 * Replaces each `{{name}}` by its value, once: a value is not expanded again, so no output of an agent can act as a
 * template. Names without a value stay as they are (contract/bridge 6).
 */
export function fillTemplate(template: string, values: ReadonlyMap<string, string>): string {
  return template.replaceAll(TEMPLATE, (whole, name: string) => values.get(name.trim()) ?? whole);
}

/** A step as the session stores it, so that a message can continue it. */
export interface KeptStep extends PlannedStep {
  /** The agent's own reference to its session; empty until the step has been asked. */
  readonly reference: string;
  /** The step has lost a race, and its agent session was closed. */
  readonly isClosed: boolean;
}

/** What a session stores of its runs, as its reference. */
export interface KeptRun extends Omit<MultiAgentPlan, 'input' | 'steps'> {
  /** Every step that the session ever had; a prompt without templates is empty, because a message replaces it. */
  readonly steps: readonly KeptStep[];
  /** The steps of the last run, by their places in `steps`. */
  readonly planned: readonly number[];
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
