import type { Readable } from 'node:stream';
import type { Payer } from '../../platform/identity/owner.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import type { Artifact } from '../contract/session.ts';
import type {
  CommandsEvent,
  ModeEvent,
  PlanEvent,
  QuestionEvent,
  QuestionForm,
  QuestionValues,
  StatusEvent,
  SteerEvent,
  TextEvent,
  ThinkingEvent,
  ToolCallEvent,
  UsageEvent,
} from '../contract/session-update.ts';
import type { PlanChange } from '../multi-agent/multi-agent-plan.ts';
import type { SessionMcpServer } from '../sessions/mcp-servers.ts';
import type { ProbeResult } from './probe-board.ts';
import type { PlacedFile } from './prompt-content.ts';

/**
 * One agent that can do work. The session orchestrator uses agents only through this interface, and only the implementations depend on
 * the differences between agents.
 */
export interface AgentProvider {
  readonly id: string;
  /** Checks once whether the agent can be used. Ends soon after `signal` aborts. */
  probe(signal: AbortSignal): Promise<ProbeResult>;
  /** The modes that the bridge gives to it. Absent: each conversation offers those of the agent (`AgentTurn.offers`). */
  readonly modes?: readonly AgentMode[];
  /** The levels of thinking that the bridge knows of it. Absent: as for `modes`. */
  readonly thinking?: AgentOffers['thinking'];
  readonly abilities?: AgentAbilities;
  /** Logs in to the agent, or says what to run. Absent: it has no login of its own. Throws LOGIN_METHOD_UNKNOWN. */
  logIn?(methodId: string | undefined, signal: AbortSignal): Promise<LoginReport>;
  /** The time limits of its turns. */
  readonly timeouts?: TurnTimeouts;
  /**
   * Runs a turn in the conversation of `turn.reference`, or in a new one. A conversation that is lost is an end: no other
   * is opened instead. When `signal` aborts, the agent is asked to stop, and when `turn.force` does, it is made to; the
   * rest is up to `superviseTurn`, through which every turn is run.
   */
  run(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd>;
  /**
   * Deletes a conversation, with what the agent has stored of it as far as the agent can, and of the process if
   * nothing else uses it. Unknown references are fine.
   */
  close(reference: string, closing?: Closing): Promise<void>;
  /**
   * Copies a conversation, whole or up to the end of a turn in its middle, so that both can be continued. Absent: the agent
   * cannot. Never rejects for a reason of the agent.
   */
  fork?(reference: string, fork: Fork): Promise<Forked>;
  /** Of a remote agent: requests a file by the link that a turn's end gave; `runner` is the id of the runner that has it. */
  download?(path: string, signal: AbortSignal, runner?: string): Promise<RelayedFile>;
  /** Ends processes that run between turns for owners who may no longer work. Absent: there are none. */
  endWhere?(isMeant: (payer: Payer) => boolean): void;
  /** Ends everything the agent runs. Called once, when the bridge stops. */
  stop(): Promise<void>;
}

/** A file of another bridge, while it is being read. */
export interface RelayedFile {
  readonly contentType: string;
  readonly sizeBytes: number;
  readonly body: Readable;
}

/** How a file is requested from a remote agent. */
export type Download = Parameters<NonNullable<AgentProvider['download']>>;

/** The outcome of a login. */
export interface LoginReport {
  /** Whether the agent can be used now, as far as it says. */
  readonly loggedIn: boolean;
  readonly methods: readonly {
    readonly id: string;
    readonly name: string;
    readonly description: string;
    /** Whether a person must run it in a terminal. */
    readonly terminal: boolean;
  }[];
  /** To run in a terminal; empty when none is known. */
  readonly command: string;
  readonly text: string;
}

/** What people can do with its sessions. `offered`: it depends on the program, and the call fails if it cannot. Absent: neither. */
export interface AgentAbilities {
  readonly steer: 'yes' | 'no';
  readonly fork: 'yes' | 'offered' | 'no';
  readonly forkFrom: 'any_turn' | 'last_turn';
}

export interface AgentMode {
  readonly id: string;
  readonly name: string;
  /** What a turn in this mode does when it needs permission, unless the call says it. Absent: as the settings say. */
  readonly permissions?: 'ask' | 'deny';
}

/** What people can choose from in a conversation. */
export interface AgentOffers {
  readonly modes: readonly { readonly id: string; readonly name: string }[];
  readonly models: readonly { readonly id: string; readonly name: string }[];
  /** How much the model can be made to think. */
  readonly thinking: readonly { readonly id: string; readonly name: string }[];
  readonly commands: CommandsEvent['commands'];
}

export interface Fork extends Payer {
  /** The working directory of the copy. */
  readonly folder: string;
  /** The last turn of the copy. Absent: all turns. */
  readonly turnId?: string;
  /** As those of `AgentTurn`. */
  readonly mcpServers?: readonly SessionMcpServer[];
}

/** The reference of the copy, or why there is none. */
export type Forked = { readonly reference: string } | { readonly why: string };

/** Sends a further message to the running turn. False when the turn did not take it. */
export type Steer = (text: string) => Promise<boolean>;

export interface TurnTimeouts {
  /** A turn without an event for this long is stopped. Undefined: there is no such limit. */
  readonly silenceMs?: number;
  /** How long a turn may take to stop by itself. */
  readonly stopMs?: number;
}

/** The place of a turn in a trace. */
export interface TurnTrace {
  /** The span that model calls and further turns are part of. Undefined: there is none yet. */
  readonly context: TraceContext | undefined;
  /** Begins a span, in a new trace where there is none yet. */
  begin(name: string): TurnSpan;
}

export type SpanAttributes = Readonly<Record<string, string | number>>;

export interface TurnSpan extends TurnTrace {
  readonly context: TraceContext;
  end(attributes: SpanAttributes, failed: boolean): void;
}

/** The task of an agent, and the functions with which it reports. */
export interface AgentTurn {
  readonly turnId: string;
  /** Of the conversation that the turn continues. Undefined: it opens one. */
  readonly reference?: string;
  /** The principal that owns the session. Owners have separate agent processes. */
  readonly owner: string;
  /** The member who asked for it, where the owner is a team: both are charged. */
  readonly member?: string;
  readonly prompt: string;
  /** Files that came with the prompt. Absent: none. */
  readonly files?: readonly PlacedFile[];
  /** The folder that has the files of all turns of the session, if there are any. */
  readonly fileFolder?: string;
  /** A real path that was just checked against the allowed roots. */
  readonly workingDirectory: string;
  /** Empty: the agent's own choice. */
  readonly model: string;
  /** The mode of the agent in which the turn runs. Absent: as it is. */
  readonly mode?: string;
  /** How much the model is to think, by the agent's own name. Absent: as the agent does. */
  readonly thinking?: string;
  /** The MCP servers of the session, which its conversation is opened and taken up with. Absent: none. */
  readonly mcpServers?: readonly SessionMcpServer[];
  /** Ids of skills that the call asks for, the most wanted first. */
  readonly skills: readonly string[];
  /** Of a multi-agent run: which agents are asked, and in which order. */
  readonly plan?: PlanChange;
  /** Of a multi-agent run: the worktree of each step, by its place; empty for a step that has none any more. Absent: all work together. */
  readonly stepFolders?: readonly string[];
  /** Called with the place of the step that has won a race. */
  won?(place: number): void;
  /** Of a job that is run again after a restart: the same in each run. A multi-agent run then keeps its finished steps. */
  readonly taskId?: string;
  /** True for the turn of a job. */
  readonly isJob?: true;
  /** Resolves when the working directory is saved; the agent must not change it before. Absent: it is not saved. */
  readonly ready?: Promise<void>;
  /** Of a turn that a turn of the built-in agent has asked for: the requests to models that both share. */
  readonly requests?: { left(): number; take(): boolean };
  /** The trace that the turn is part of. Absent: nobody collects traces. */
  readonly trace?: TurnTrace;
  /** How many bridges the call has passed: an agent on another bridge is asked with one more. */
  readonly hop: number;
  /**
   * Called as soon as a new conversation has a reference and before any work is done in it, so that the reference is
   * stored even if the turn never ends, and again whenever the reference changes. A reference holds all that is needed to
   * continue after a restart.
   */
  opened(reference: string): void;
  /** Called with the model that works on the turn, as soon as it is known and whenever it changes. */
  usedModel(model: string): void;
  /** Called when an agent that worked on a part of the turn could not delete its conversation. */
  leftBehind(providerId: string, what: string): void;
  /** True where the call denies all that needs permission: the agent is also put into its own read-only mode. */
  readonly isReadOnly?: boolean;
  /** Asks the person at the client for permission, or for the values of a form. Absent: there is no person to ask, and the settings decide. */
  readonly ask?: AskPermission;
  /**
   * The paths that rules keep from being read by a tool that is all of these kinds, for a turn in that folder; undefined where there are
   * none. Throws TOOL_CALL_REFUSED while the rules cannot be known. Absent: there are no rules.
   */
  readonly deniedPaths?: (kinds: readonly string[], folder: string) => Promise<((path: string) => boolean) | undefined>;
  /** True where the call wants people to be asked, and not the settings alone: an agent elsewhere has to know. */
  readonly asks?: boolean;
  /** Called with what the conversation offers. */
  offers?(offers: AgentOffers): void;
  /** Called when the agent takes further messages in this turn. Absent: nobody would send any. */
  steerable?(steer: Steer): void;
  /**
   * In the order in which things happened; `step` says which part of a multi-agent run tells it. Where it gives a promise,
   * the store cannot keep up: nothing more is read from the agent until the promise resolves.
   */
  report(event: AgentEvent, step?: StepMark): Promise<void> | undefined;
}

/** A turn as its provider sees it. */
export interface SupervisedTurn extends AgentTurn {
  /** Aborts when the agent has not stopped by itself in time. */
  readonly force: AbortSignal;
  /** Called when the agent has received the prompt. From then on, its silence is limited. */
  begun(): void;
  /** The final text so far. */
  output(): string;
  /**
   * Decides a request of the agent and reports the decision. A person is asked where there is one and both the policy and the turn
   * let the agent do more than read; otherwise the policy decides, and a form is declined, because nobody makes up values.
   */
  permit(question: PermissionQuestion, policy: PermissionPolicy, signal: AbortSignal): Promise<Permit>;
}

/** What agents may do: `bridge.permissions`. `deny` makes them read-only, by their own modes and by our answers. */
export type PermissionPolicy = 'allow' | 'deny';

/** How a request of the agent was decided. `optionId` undefined: none of the options fits. */
export interface Permit extends PermissionReply {
  readonly decision: PermissionDecision;
  /** Whether a person was asked. */
  readonly isAsked: boolean;
}

export interface Closing {
  /** The owner of the session. */
  readonly owner: string;
  /** Called with the parts of the conversation that the agent keeps after the close, and the reason. */
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
  /**
   * Of a question that is answered with values instead of an option. Rules and settings may decline it, and never answer it.
   * Undefined: a form that cannot be shown.
   */
  readonly form?: QuestionForm | undefined;
}

export interface PermissionReply {
  /** The chosen option. Undefined: nobody answered, or the agent has no option for the answer; that allows nothing. */
  readonly optionId: string | undefined;
  /** The answer to a form; each value fits its field. Absent: the question was declined, or nobody answered. */
  readonly values?: QuestionValues;
  /** Why, in the words of the person. Absent: no reason was given. */
  readonly reason?: string;
  /** The request that people were asked with. Absent: a rule or an editor decided. */
  readonly permissionId?: string;
  /** The person who answered. Absent: nobody did, or an editor. */
  readonly answeredBy?: string;
  /** The rule that decided: its id where it remembers an answer, and what it matches. */
  readonly rule?: { readonly ruleId?: string; readonly text: string };
}

/** `asked` is called when people can answer: the request is stored. */
export type AskPermission = (
  question: PermissionQuestion,
  signal: AbortSignal,
  asked?: (request: Omit<QuestionEvent, 'kind'>) => void,
) => Promise<PermissionReply>;

export interface StepMark {
  readonly stepIndex: number;
  readonly providerId: string;
}

/**
 * What an agent reports while it works: the session updates of the Agent Client Protocol under the names that apps know.
 * Every surface is derived from it (decision 33). Its implementation drops kinds that are not listed here.
 */
export type AgentEvent =
  | TextEvent
  | ThinkingEvent
  | ToolCallEvent
  | PlanEvent
  | UsageEvent
  | ModeEvent
  | CommandsEvent
  | StatusEvent
  | SteerEvent
  /** A question that waits for an answer: for the second surface alone. */
  | QuestionEvent
  /** Where a multi-agent run stands: a status event of its own, with members of its own. */
  | {
      readonly kind: 'stage';
      readonly event: string;
      readonly message: string;
      readonly members: Readonly<Record<string, unknown>>;
    }
  /** A question of the agent that was answered, by the settings or by a person; it is shown and recorded. */
  | ({
      readonly kind: 'permission';
      readonly title: string;
      readonly decision: PermissionDecision;
      readonly toolCallId?: string;
    } & Pick<PermissionReply, 'reason' | 'permissionId' | 'answeredBy' | 'rule'>);

/** How a request for permission ended, and how a question did. */
export type PermissionDecision = 'allowed' | 'denied' | 'answered' | 'declined';

export interface TurnUsage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  /** Where the agent tells what the turn cost. */
  readonly costUsd?: number;
}

/** Two come from steps of a multi-agent run alone, the last two from the gateway, TURN_INTERRUPTED from runners. */
export type FailureCode =
  | 'TURN_INTERRUPTED'
  | 'AGENT_FAILED'
  | 'BUDGET_EXCEEDED'
  | 'PERSON_NOT_CHARGED'
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
  readonly usage?: TurnUsage;
  readonly members?: ResultMembers;
  readonly files?: readonly (ProducedFile | FileElsewhere)[];
}

type End<Output> =
  | (TurnResult & Output & { readonly kind: 'completed'; readonly stopReason: string })
  | (TurnResult & Output & { readonly kind: 'cancelled' })
  | (TurnResult & Output & { readonly kind: 'failed'; readonly code: FailureCode; readonly error: string })
  /** Only where `reference` was given: the agent, of a run the agent of one step, no longer has the conversation. */
  | { readonly kind: 'lost'; readonly detail: string; readonly providerId?: string };

/** Every way in which a turn can end. `output` is the final text; empty: nothing that can be shown. */
export type TurnEnd = End<{ readonly output: string }>;

/** The end as its provider has it: without `output`, that is what was reported. A throw is a fault of ours. */
export type AgentEnd = End<{ readonly output?: string }>;
