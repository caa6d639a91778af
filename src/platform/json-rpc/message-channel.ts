/** Why a channel ended. `code` is a WebSocket close code; other transports use the nearest one. */
export interface ChannelEnd {
  readonly code: number;
  readonly reason: string;
}

/** Whole messages in both directions: a WebSocket, a pair of pipes, or the in-memory pair of the tests. */
export interface MessageChannel {
  /** Queues one message. After the end it does nothing. A peer that has stopped reading is closed by the channel itself. */
  send(text: string): void;
  /** True while so much waits for the peer that whoever can send later should wait for `drained`. Absent: never. */
  isBehind?(): boolean;
  /** Resolves when the peer has taken what was sent, or is gone. Absent: immediately. */
  drained?(): Promise<void>;
  close(code?: number, reason?: string): void;
  /** One listener each; messages that came before it was set are kept for it. */
  onMessage(listener: (text: string) => void): void;
  onEnd(listener: (end: ChannelEnd) => void): void;
}
