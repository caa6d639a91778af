import type { SessionResult, StartParams } from '../bridge/contract/session.ts';
import type {
  StructuredEvent as ContractEvent,
  SessionUpdate as ContractUpdate,
} from '../bridge/contract/session-update.ts';
import {
  type CallBridge,
  type CallOptions,
  createCallLimits,
  createRetries,
  type TurnCall,
  updateOf,
  withinLimits,
} from './bridge-transport.ts';
import type { OpenLink, SocketLink } from './socket-link.ts';
import { clientError } from './trestle-error.ts';

/** The parameters of `session.update`. */
export type SessionUpdate = ContractUpdate;
export type StructuredEvent = ContractEvent;

/** Default parameters of every turn of a session; `mcpServers` applies only to its start. */
export type SessionDefaults = Omit<StartParams, 'sessionId' | 'taskPrompt'>;

export interface TurnOptions extends SessionDefaults, CallOptions {}

export interface EndOptions extends CallOptions {
  /** The owner of the session if it is not the caller, because several owners may have a session of the same name. */
  readonly owner?: string;
}

export interface FollowOptions {
  /** The last update that was seen; 0, which shows all, unless given. */
  readonly afterSeq?: number;
  readonly signal?: AbortSignal;
}

/** A session at the bridge, by the id that the app has chosen. */
export interface AgentSession {
  readonly sessionId: string;
  /**
   * Starts the session, or starts it again from nothing.
   *
   * @example
   * ```ts
   * const turn = trestle.session('story').start('Once upon a time');
   * for await (const update of turn) {
   *   if (update.type === 'delta') console.log(update.text);
   * }
   * console.log((await turn.result).status);
   * ```
   */
  start(taskPrompt: string, options?: TurnOptions): Turn;
  /**
   * Runs one more turn of the same conversation.
   *
   * @example
   * ```ts
   * const session = trestle.session('talk');
   * await session.start('My name is Ada').result;
   * console.log((await session.message('What is my name?').result).output);
   * ```
   */
  message(taskPrompt: string, options?: TurnOptions): Turn;
  /**
   * Stops the running turn and those that wait.
   *
   * @example
   * ```ts
   * await trestle.session('story').cancel();
   * ```
   */
  cancel(options?: EndOptions): Promise<void>;
  /**
   * Ends the session and removes its state.
   *
   * @example
   * ```ts
   * const session = trestle.session('short');
   * await session.start('Hello').result;
   * await session.close();
   * ```
   */
  close(options?: EndOptions): Promise<void>;
  /**
   * Returns all updates of the session, of every caller's turns, over a WebSocket of its own, until reading stops.
   *
   * @example
   * ```ts
   * const session = trestle.session('watched');
   * await session.start('Hello').result;
   * for await (const update of session.follow()) {
   *   console.log(update.seq, update.type);
   *   if (update.type === 'status') break;
   * }
   * ```
   */
  follow(options?: FollowOptions): AsyncIterable<SessionUpdate>;
}

interface AgentSessionParts {
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
    const { signal, timeoutMs, ...rest } = options;
    const { mcpServers, ...given } = { ...defaults, ...rest };
    const servers = method === 'session.start' && mcpServers !== undefined ? { mcpServers } : {};
    const limits: CallOptions = { ...(signal && { signal }), ...(timeoutMs !== undefined && { timeoutMs }) };
    const params: StartParams = { ...given, ...servers, sessionId, taskPrompt };
    return createTurn(
      (onUpdate) => withinLimits(limits, closed, (stop) => runTurn({ method, params, onUpdate }, stop)),
      maxWaitingUpdates,
    );
  }

  async function end(method: string, { owner, ...options }: EndOptions = {}): Promise<void> {
    await call({ method, params: { sessionId, ...(owner !== undefined && { owner }) } }, options);
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
    cancel: (options) => end('session.cancel', options),
    close: (options) => end('session.close', options),
    follow,
  };
}

/** A turn under way: read its updates, await its result, or both. */
export interface Turn extends AsyncIterable<SessionUpdate> {
  readonly result: Promise<SessionResult>;
}

/** Creates a turn from `run`, which reports each update and returns the result. Reading ends with the result, or with the error. */
function createTurn(
  run: (onUpdate: (update: SessionUpdate) => void) => Promise<SessionResult>,
  maxWaitingUpdates: number,
): Turn {
  const queue = createUpdateQueue(maxWaitingUpdates);
  const result = run(queue.push);
  // Handled here, because a reader of the updates gets the failure there and may ignore the result.
  result.then(() => queue.end(), queue.end);
  return { result, [Symbol.asyncIterator]: queue.read };
}

interface FollowSessionOptions {
  readonly sessionId: string;
  /** The last update that was seen; 0 to see all. */
  readonly afterSeq: number;
  readonly openLink: OpenLink;
  readonly reconnectMs: number;
  readonly maxWaitingUpdates: number;
  readonly signal: AbortSignal;
}

/** Returns all updates of a session, of every caller's turns, each once and in order, over any number of connections. */
async function* followSession(options: FollowSessionOptions): AsyncGenerator<SessionUpdate> {
  const { sessionId, openLink, maxWaitingUpdates, signal } = options;
  const retries = createRetries(options.reconnectMs, signal);
  let last = options.afterSeq;
  for (;;) {
    signal.throwIfAborted();
    const queue = createUpdateQueue(maxWaitingUpdates);
    const query = new URLSearchParams({ sessionId, afterSeq: String(last) });
    const before = last;
    let link: SocketLink | undefined;
    let isFull = false;
    try {
      link = await openLink(query.toString(), (message) => {
        const update = updateOf(message);
        if (update === undefined || update.sessionId !== sessionId || update.seq <= last || isFull) return;
        isFull = queue.size() >= maxWaitingUpdates;
        // The reader is slow: updates that do not fit are requested again when it has caught up.
        if (isFull) return link?.close();
        last = update.seq;
        queue.push(update);
      });
    } catch (error) {
      await retries.failed(error);
      continue;
    }
    const openedAt = performance.now();
    const { close, closed } = link;
    signal.addEventListener('abort', close, { once: true });
    if (signal.aborted || isFull) close();
    void closed.then(() => queue.end());
    try {
      yield* queue.read();
    } finally {
      signal.removeEventListener('abort', close);
      close();
    }
    if (isFull || last > before) retries.progressed();
    else await retries.ended(performance.now() - openedAt);
  }
}

/** Updates between the connection that brings them and the app that reads them. */
interface UpdateQueue {
  push(update: SessionUpdate): void;
  /** Ends the queue. With an error, reading ends with it. */
  end(error?: unknown): void;
  /** How many wait. */
  size(): number;
  /** Returns the iterator for the only reader. Further updates are dropped when it stops reading. */
  read(): AsyncIterableIterator<SessionUpdate>;
}

/** Holds at most `limit` updates. Later ones are dropped, and the reader gets an error at that place. */
export function createUpdateQueue(limit: number): UpdateQueue {
  let waiting: SessionUpdate[] = [];
  /** How many at the beginning of `waiting` are read. */
  let taken = 0;
  let ended: { readonly error?: unknown } | undefined;
  let isUnwanted = false;
  let wake: (() => void) | undefined;

  function take(): SessionUpdate | undefined {
    const update = waiting[taken];
    taken += 1;
    if (taken >= waiting.length) {
      waiting = [];
      taken = 0;
    } else if (taken >= 1024) {
      waiting = waiting.slice(taken);
      taken = 0;
    }
    return update;
  }

  function end(error?: unknown): void {
    ended ??= error === undefined ? {} : { error };
    wake?.();
  }

  async function next(): Promise<IteratorResult<SessionUpdate>> {
    for (;;) {
      if (isUnwanted) return { done: true, value: undefined };
      const update = take();
      if (update !== undefined) return { done: false, value: update };
      if (ended !== undefined) {
        isUnwanted = true;
        if ('error' in ended) throw ended.error;
        continue;
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  return {
    push(update) {
      if (isUnwanted || ended !== undefined) return;
      if (waiting.length - taken < limit) {
        waiting.push(update);
        wake?.();
        return;
      }
      const afterSeq = waiting.at(-1)?.seq ?? update.seq - 1;
      const message = `More than ${limit} updates waited to be read; follow the session from ${afterSeq} on.`;
      end(clientError('UPDATES_OVERFLOWED', message, { data: { afterSeq } }));
    },
    end,
    size: () => waiting.length - taken,
    read() {
      const reader: AsyncIterableIterator<SessionUpdate> = {
        next,
        async return() {
          isUnwanted = true;
          waiting = [];
          taken = 0;
          wake?.();
          return { done: true, value: undefined };
        },
        [Symbol.asyncIterator]: () => reader,
      };
      return reader;
    },
  };
}
