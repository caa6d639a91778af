/** Why a channel ended. `code` is a WebSocket close code; other transports use the nearest one. */
export interface ChannelEnd {
  readonly code: number;
  readonly reason: string;
}

/** Whole messages in both directions: a WebSocket, a pair of pipes, or the in-memory pair of the tests. */
export interface MessageChannel {
  /** Queues one message. After the end it does nothing. A peer that reads too slowly is closed by the channel itself. */
  send(text: string): void;
  /** Resolves when the peer has taken most of what was sent, or is gone; for who sends a lot. Absent: at once. */
  drained?(): Promise<void>;
  close(code?: number, reason?: string): void;
  /** One listener each; messages that came before it was set are kept for it. */
  onMessage(listener: (text: string) => void): void;
  onEnd(listener: (end: ChannelEnd) => void): void;
}
