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
