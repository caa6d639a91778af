import type { RelayedFile } from '../artifacts/artifact-links.ts';
import type { Artifact } from '../contract/session.ts';
import type { StatusEvent, TextEvent, ThinkingEvent, ToolCallEvent } from '../contract/session-update.ts';
import type { PlanChange } from '../multi-agent/multi-agent-plan.ts';
import type { ProbeResult } from './probe-board.ts';

/**
 * One agent that can do work. The session orchestrator knows agents by this interface only; what is special about an
 * agent is absorbed by its implementation and nowhere else (spec/bridge 4.3, session rule 2).
 */
export interface AgentProvider {
  readonly id: string;
  /** Looks once whether the agent can be used. Ends soon after `signal` aborts. */
  probe(signal: AbortSignal): Promise<ProbeResult>;
  /** Opens a new conversation of the agent and runs its first turn. */
  startTurn(turn: AgentTurn): Promise<TurnEnd>;
  /** Runs one more turn of a conversation that exists. It cannot open a new one: a lost conversation is an end. */
  continueTurn(reference: string, turn: AgentTurn): Promise<TurnEnd>;
  /**
   * Stops a running turn; its promise then resolves as cancelled. Resolves when the agent is quiet, at most five
   * seconds later, by force if need be. Unknown turns are fine.
   */
  cancel(turnId: string): Promise<void>;
  /**
   * Lets go of a conversation for good, with what the agent has stored of it as far as the agent can, and of the process if
   * nothing else uses it. Unknown references are fine.
   */
  close(reference: string, closing?: Closing): Promise<void>;
  /** Of a remote agent: requests a file by the link that a turn's end gave. */
  download?(path: string, signal: AbortSignal): Promise<RelayedFile>;
  /** Ends everything the agent runs. Called once, when the bridge stops. */
  stop(): Promise<void>;
}

/** The task of an agent, and the functions with which it reports. */
export interface AgentTurn {
  readonly turnId: string;
  /** The principal that owns the session: what one owner's turns do to an agent's process must not reach another's. */
  readonly owner: string;
  readonly prompt: string;
  /** A real path that was just checked against the allowed roots. */
  readonly workingDirectory: string;
  /** Empty: the agent's own choice. */
  readonly model: string;
  /** Ids of skills that the call asks for, the most wanted first. */
  readonly skills: readonly string[];
  /** Of a multi-agent run: which agents are asked, and in which order. */
  readonly plan?: PlanChange;
  /** How many bridges the call has passed: an agent on another bridge is asked with one more. */
  readonly hop: number;
  /**
   * Called by `startTurn` as soon as the conversation has a reference and before it does any work, so that the reference
   * is stored even if the turn never ends, and again whenever the reference changes. A reference holds all that
   * `continueTurn` needs after a restart.
   */
  opened(reference: string): void;
  /** Called with the model that works on the turn, as soon as it is known and whenever it changes. */
  usedModel(model: string): void;
  /** Called when an agent that worked on a part of the turn keeps what was said, although that part is over. */
  leftBehind(providerId: string, what: string): void;
  /** Asks the person at the client for permission. Absent: there is no person to ask, and the settings decide. */
  readonly ask?: AskPermission;
  /**
   * In the order in which things happened; `step` says which part of a multi-agent run tells it. Where it gives a promise,
   * the store cannot keep up: nothing more is read from the agent until the promise resolves.
   */
  report(event: AgentEvent, step?: StepMark): Promise<void> | undefined;
}

export interface Closing {
  /** The owner of the session. */
  readonly owner: string;
  /** Called with what the agent keeps of the conversation all the same, and why. */
  left(what: string): void;
}

/** One answer that may be given to a question for permission. */
export interface PermissionOption {
  readonly optionId: string;
  readonly name: string;
  /** allow_once, allow_always, reject_once or reject_always. */
  readonly kind: string;
}

export interface PermissionQuestion {
  readonly toolCallId: string;
  readonly title: string;
  readonly toolKind: string;
  readonly input?: unknown;
  readonly options: readonly PermissionOption[];
}

/** Resolves with the id of the chosen option; undefined when the question was not answered, which allows nothing. */
export type AskPermission = (question: PermissionQuestion, signal: AbortSignal) => Promise<string | undefined>;

export interface StepMark {
  readonly stepIndex: number;
  readonly providerId: string;
}

/** What an agent reports while it works. Its implementation drops kinds that are not listed here. */
export type AgentEvent =
  | TextEvent
  | ThinkingEvent
  | ToolCallEvent
  | StatusEvent
  /** Where a multi-agent run stands: a status event of its own, with members of its own. */
  | {
      readonly kind: 'stage';
      readonly event: string;
      readonly message: string;
      readonly members: Readonly<Record<string, unknown>>;
    }
  /** A question of the agent that was answered, by the settings or by a person; it is shown and recorded. */
  | {
      readonly kind: 'permission';
      readonly title: string;
      readonly decision: 'allowed' | 'denied';
      readonly toolCallId?: string;
    };

export interface TurnUsage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  /** Where the agent tells what the turn cost. */
  readonly costUsd?: number;
}

/** Two come from steps of a multi-agent run alone, the last two from the gateway. */
export type FailureCode =
  | 'AGENT_FAILED'
  | 'AGENT_EXITED'
  | 'AGENT_TIMEOUT'
  | 'EMPTY_OUTPUT'
  | 'PROVIDER_UNAVAILABLE'
  | 'GATEWAY_UNAVAILABLE'
  | 'GATEWAY_FAILED';

/** A file that came with the answer of an agent, instead of lying in the working directory. */
export interface ProducedFile {
  readonly label: string;
  /** Empty: by its name. */
  readonly contentType: string;
  readonly bytes: Uint8Array;
}

/** A file that stays on another bridge, which gave this link to it. */
export interface FileElsewhere {
  readonly artifact: Artifact;
  /** Where its link leads; see `ArtifactLinks.relay`. */
  readonly place: string;
}

/** What a result has besides the members that all results have. */
export type ResultMembers = Readonly<Record<string, unknown>>;

/** What every end of a turn may have. */
interface TurnResult {
  /** The final text. Empty: the agent wrote nothing that can be shown. */
  readonly output: string;
  readonly usage?: TurnUsage;
  readonly members?: ResultMembers;
  readonly files?: readonly (ProducedFile | FileElsewhere)[];
}

/** Every way in which a turn can end (contract/bridge 4). Nothing here is thrown: a throw is a fault of ours. */
export type TurnEnd =
  | (TurnResult & { readonly kind: 'completed'; readonly stopReason: string })
  | (TurnResult & { readonly kind: 'cancelled' })
  | (TurnResult & { readonly kind: 'failed'; readonly code: FailureCode; readonly error: string })
  /** Only from `continueTurn`: the agent, of a run the agent of one step, no longer has the conversation. */
  | { readonly kind: 'lost'; readonly detail: string; readonly providerId?: string };
