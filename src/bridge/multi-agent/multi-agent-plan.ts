import { AppError } from '../../platform/errors/app-error.ts';
import type { TurnRouting } from '../contract/routing.ts';

const ORCHESTRATION_MODES = ['sequence', 'parallel', 'race', 'conversation'] as const;
export type OrchestrationMode = (typeof ORCHESTRATION_MODES)[number];

/** One agent's part in a run. */
export interface PlannedStep {
  readonly providerId: string;
  /** Its templates are not filled in yet. */
  readonly prompt: string;
  /** The name under which later steps of a sequence find its output; empty for none. */
  readonly outputAs: string;
  readonly timeoutMs: number;
  readonly model: string;
}

/** A multi-agent run, checked. */
export interface MultiAgentPlan {
  readonly mode: OrchestrationMode;
  /** The task, which `{{input}}` stands for. */
  readonly input: string;
  readonly steps: readonly PlannedStep[];
  /** Of a conversation: how often a participant is asked, at most. */
  readonly maxTurns: number;
  /** Of a conversation, in lower case. The conversation ends with an output that contains one of them. */
  readonly stopConditions: readonly string[];
}

/** What a message changes in the plan of its session's last run. Without `steps`, that run's steps are used again. */
export type PlanChange = Partial<MultiAgentPlan> & Pick<MultiAgentPlan, 'input'>;

const DEFAULT_STEP_TIMEOUT_MS = 5 * 60_000;
const DEFAULT_STOP_CONDITIONS = ['STATUS: DONE', 'STATUS: CONSENSUS'];

/** Reads a plan, and throws if it cannot be run. `known`: the agents of the catalog. */
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

/** Matches a name in a prompt that is replaced by an output or by the task. */
export const TEMPLATE = /\{\{([^{}]{1,128})\}\}/g;

/**
 * Replaces each `{{name}}` by its value, once: a value is not expanded again, so no output of an agent can act as a
 * template. Names without a value stay as they are.
 */
export function fillTemplate(template: string, values: ReadonlyMap<string, string>): string {
  return template.replaceAll(TEMPLATE, (whole, name: string) => values.get(name.trim()) ?? whole);
}
