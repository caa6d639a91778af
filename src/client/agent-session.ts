import type { SessionResult, TurnParams } from '../bridge/contract/session.ts';
import type { CallBridge, TurnCall } from './bridge-transport.ts';
import { type CallOptions, createCallLimits, withinLimits } from './call-limits.ts';
import { createTurn, type Turn } from './create-turn.ts';
import { followSession } from './follow-session.ts';
import type { OpenLink } from './open-link.ts';
import type { SessionUpdate } from './session-update.ts';

/** What every turn of a session is sent with, unless the turn says otherwise. */
export type SessionDefaults = Omit<TurnParams, 'sessionId' | 'taskPrompt'>;

export interface TurnOptions extends SessionDefaults, CallOptions {}

export interface FollowOptions {
  /** The last update that was seen; 0, which shows all, unless given. */
  readonly afterSeq?: number;
  readonly signal?: AbortSignal;
}

/** A session at the bridge, by the id that the app has chosen. */
export interface AgentSession {
  readonly sessionId: string;
  /** Starts it, or starts it afresh. */
  start(taskPrompt: string, options?: TurnOptions): Turn;
  /** One more turn of the same conversation. */
  message(taskPrompt: string, options?: TurnOptions): Turn;
  /** Stops what runs and what waits. */
  cancel(options?: CallOptions): Promise<void>;
  /** Ends it and removes its state. */
  close(options?: CallOptions): Promise<void>;
  /** All its updates, whoever's turns they are, over a WebSocket of its own. Goes on until reading stops. */
  follow(options?: FollowOptions): AsyncIterable<SessionUpdate>;
}

export interface AgentSessionParts {
  readonly sessionId: string;
  readonly defaults: SessionDefaults;
  readonly call: CallBridge;
  readonly openLink: OpenLink;
  readonly reconnectMs: number;
  readonly maxWaitingUpdates: number;
  /** Aborts when the client is closed. */
  readonly closed: AbortSignal;
  runTurn(call: TurnCall, signal: AbortSignal): Promise<SessionResult>;
}

export function createAgentSession(parts: AgentSessionParts): AgentSession {
  const { sessionId, defaults, call, runTurn, closed, maxWaitingUpdates } = parts;

  function turn(method: TurnCall['method'], taskPrompt: string, options: TurnOptions = {}): Turn {
    const { signal, timeoutMs, ...given } = options;
    const limits: CallOptions = { ...(signal && { signal }), ...(timeoutMs !== undefined && { timeoutMs }) };
    const params: TurnParams = { ...defaults, ...given, sessionId, taskPrompt };
    return createTurn(
      (onUpdate) => withinLimits(limits, closed, (stop) => runTurn({ method, params, onUpdate }, stop)),
      maxWaitingUpdates,
    );
  }

  async function* follow({ afterSeq = 0, signal }: FollowOptions = {}): AsyncGenerator<SessionUpdate> {
    const { openLink, reconnectMs } = parts;
    const limits = createCallLimits(signal === undefined ? {} : { signal }, closed);
    try {
      yield* followSession({
        sessionId,
        afterSeq,
        openLink,
        reconnectMs,
        maxWaitingUpdates,
        signal: limits.signal,
      });
    } finally {
      limits.release();
    }
  }

  return {
    sessionId,
    start: (taskPrompt, options) => turn('session.start', taskPrompt, options),
    message: (taskPrompt, options) => turn('session.message', taskPrompt, options),
    async cancel(options) {
      await call({ method: 'session.cancel', params: { sessionId } }, options);
    },
    async close(options) {
      await call({ method: 'session.close', params: { sessionId } }, options);
    },
    follow,
  };
}
