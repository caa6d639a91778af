import { AppError } from '../../platform/errors/app-error.ts';
import type { TurnRouting } from '../contract/routing.ts';
import {
  type MultiAgentPlan,
  ORCHESTRATION_MODES,
  type OrchestrationMode,
  type PlannedStep,
} from './multi-agent-plan.ts';

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

type GivenStep = NonNullable<TurnRouting['steps']>[number];

/** The speakers of a conversation may be named in short. */
function givenSteps({ participants = [], steps = [] }: TurnRouting, mode: OrchestrationMode): readonly GivenStep[] {
  if (mode !== 'conversation' || participants.length === 0) return steps;
  return participants.map((speaker) => (typeof speaker === 'string' ? { providerId: speaker } : speaker));
}

function isBlank(text: string | undefined): boolean {
  return text === undefined || text.trim() === '';
}
