import { AppError } from '../../platform/errors/app-error.ts';
import type { RoutingInput } from '../contract/routing.ts';

export const ORCHESTRATION_MODES = ['sequence', 'parallel', 'race', 'conversation'] as const;
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
  /** Of a conversation: how often somebody speaks, at most. */
  readonly maxTurns: number;
  /** Of a conversation: in lower case; a speech that holds one of them is the last. */
  readonly stopConditions: readonly string[];
}

const DEFAULT_STEP_TIMEOUT_MS = 5 * 60_000;
const DEFAULT_STOP_CONDITIONS = ['STATUS: DONE', 'STATUS: CONSENSUS'];

/** Refuses what cannot be run before anything is started. `isKnown` tells whether an agent is in the catalog. */
export function readPlan(
  routing: RoutingInput,
  input: string,
  isKnown: (providerId: string) => boolean,
): MultiAgentPlan {
  const mode = readMode(routing.orchestrationMode);
  const steps = givenSteps(routing, mode).map((step, index): PlannedStep => {
    const { providerId = '', outputAs = '', timeoutMs = DEFAULT_STEP_TIMEOUT_MS } = step;
    if (providerId === '') throw new AppError('MULTI_AGENT_PROVIDER_REQUIRED', { index });
    if (!isKnown(providerId)) throw new AppError('PROVIDER_UNKNOWN', { providerId });
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
    stopConditions: (routing.stopConditions ?? DEFAULT_STOP_CONDITIONS).map((condition) => condition.toLowerCase()),
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

type GivenStep = NonNullable<RoutingInput['steps']>[number];

/** The speakers of a conversation may be named in short. */
function givenSteps({ participants = [], steps = [] }: RoutingInput, mode: OrchestrationMode): readonly GivenStep[] {
  if (mode !== 'conversation' || participants.length === 0) return steps;
  return participants.map((speaker) => (typeof speaker === 'string' ? { providerId: speaker } : speaker));
}

function isBlank(text: string | undefined): boolean {
  return text === undefined || text.trim() === '';
}
