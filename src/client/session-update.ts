/** What `session.update` tells (contract/bridge 4 and 6). */
export interface SessionUpdate {
  readonly sessionId: string;
  readonly threadId: string;
  readonly turnId: string;
  /** Counts the updates of a session, from 1, over all its turns. */
  readonly seq: number;
  readonly type: 'status' | 'delta';
  /** `started`, `queued`, `running`, `completed`, `failed`, `cancelled`, `delta`, `multi_agent_...`, or the kind of `structuredEvent`. */
  readonly event: string;
  readonly message: string;
  /** Of a delta: the text to append. */
  readonly delta?: string;
  readonly text?: string;
  /** Of a status: whether the turn goes on. */
  readonly pending?: boolean;
  readonly error?: boolean;
  readonly structuredEvent?: StructuredEvent;
  /** Of a multi-agent run: which step tells it, and its agent. */
  readonly stepIndex?: number;
  readonly providerId?: string;
}

export type StructuredEvent =
  | { readonly kind: 'thinking' | 'text'; readonly type: string; readonly text: string }
  | {
      readonly kind: 'status';
      readonly type: string;
      readonly text?: string;
      readonly status?: string;
      readonly toolCallId?: string;
    }
  | {
      readonly kind: 'tool_call';
      readonly type: string;
      readonly toolCallId: string;
      readonly title: string;
      readonly status: 'pending' | 'in_progress' | 'completed' | 'failed';
      readonly toolKind?: string;
      readonly input?: unknown;
      readonly output?: unknown;
      readonly locations?: readonly unknown[];
    };
