/** How long an agent program is waited for, and kept. */
export interface AgentLimits {
  /** From the start of the program until it answers; and once more until a conversation is open. */
  readonly startMs: number;
  /** A program that no turn has used for so long is ended. */
  readonly idleMs: number;
  /** The same for an agent whose conversations end with its process: somebody may still come back to them. */
  readonly idleWithConversationsMs: number;
  /** A turn in which nothing at all has happened for so long is given up. */
  readonly silenceMs: number;
  /** How long a cancelled turn may take to end by itself. With `killMs` it stays below five seconds (contract/bridge 4). */
  readonly cancelMs: number;
  /** How long an agent may take to delete a closed conversation. */
  readonly closeMs: number;
  /** Between SIGTERM and SIGKILL. */
  readonly killMs: number;
  /** The pause before a restart: doubled with each further failure, up to the longest. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
}

export const DEFAULT_AGENT_LIMITS: AgentLimits = {
  startMs: 60_000,
  idleMs: 10 * 60_000,
  idleWithConversationsMs: 6 * 3_600_000,
  silenceMs: 3_600_000,
  cancelMs: 3_000,
  closeMs: 3_000,
  killMs: 500,
  firstPauseMs: 250,
  longestPauseMs: 30_000,
};
