import type { AgentEvent, AskPermission, PermissionOption, TurnUsage } from './agent-provider.ts';

/**
 * A running agent program, spoken to in its own protocol. This is all that differs between protocols: processes, turns,
 * cancelling and giving up are the same for all of them. Every function may reject, at the latest when the program ends.
 */
export interface AgentConnection {
  /** Whether a conversation can be taken up by a later process of the agent. */
  readonly continues: boolean;
  /** Opens a conversation in a folder and returns the agent's name for it. */
  open(folder: string, model: string): Promise<string>;
  /** Takes up a conversation of an earlier process. Rejects, for whatever reason, when the agent cannot. */
  resume(conversation: string, folder: string): Promise<void>;
  /** Runs one turn of a conversation that this process has open. */
  prompt(request: PromptRequest): Promise<PromptEnd>;
  /** Asks the agent to stop the running turn of a conversation; the prompt then ends. */
  interrupt(conversation: string): void;
  /** The version that the agent gives itself; empty when it gives none. */
  readonly version: string;
  /** Finds out without cost whether somebody must log in first, and returns what to do; undefined when not, or not known. */
  findMissingLogin(folder: string): Promise<string | undefined>;
  /** Whether the agent can delete what it has stored of a conversation, also of one of an earlier process. */
  readonly deletes: boolean;
  /** Tells the agent that a conversation is over, and has it deleted; resolves with what is left of it, if anything is. */
  close(conversation: string): Promise<string | undefined>;
  /** Resolves when no further message can come. */
  readonly closed: Promise<unknown>;
}

export interface PromptRequest {
  readonly conversation: string;
  readonly text: string;
  readonly folder: string;
  /** Empty: as it is. */
  readonly model: string;
  /** As `AgentTurn.report`. */
  report(event: AgentEvent): Promise<void> | undefined;
  /** Called with the model that works on the turn, as far as the agent says which. */
  usedModel(model: string): void;
  /** Asks a person; absent when nobody is there. */
  readonly ask?: AskPermission | undefined;
}

/** How the agent says that a turn ended. What it said and did was reported before. */
export type PromptEnd =
  | {
      readonly kind: 'completed';
      readonly stopReason: string;
      /** The final text, where the agent says which one it is. */
      readonly output?: string;
      readonly usage?: TurnUsage;
    }
  | { readonly kind: 'cancelled'; readonly usage?: TurnUsage }
  | { readonly kind: 'failed'; readonly error: string; readonly usage?: TurnUsage }
  /** The agent does not know the conversation, and has done nothing. */
  | { readonly kind: 'lost'; readonly detail: string };

/** What agents may do: `bridge.permissions`. `deny` makes them read-only, by their own modes and by our answers. */
export type PermissionPolicy = 'allow' | 'deny';

/** For agents that do not say which answers they take. */
export const PLAIN_OPTIONS: readonly PermissionOption[] = [
  { optionId: 'allow', name: 'Allow once', kind: 'allow_once' },
  { optionId: 'reject', name: 'Reject', kind: 'reject_once' },
];
