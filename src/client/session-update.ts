import { clientError } from './trestle-error.ts';

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

/** Updates between the connection that brings them and the app that reads them. */
interface UpdateQueue {
  push(update: SessionUpdate): void;
  /** No more will come; with an error, reading ends with it. */
  end(error?: unknown): void;
  /** How many wait. */
  size(): number;
  /** For one reader. To stop reading is to want no more. */
  read(): AsyncIterableIterator<SessionUpdate>;
}

/** Holds at most `limit` updates; what comes then is dropped, and the reader is told so when it gets there. */
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
