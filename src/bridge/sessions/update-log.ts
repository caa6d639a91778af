import type { Clock } from '../../platform/clock/clock.ts';
import type { Statement } from '../../platform/database/statement.ts';
import { createBatcher } from '../../platform/queue/batcher.ts';
import type { UpdateChunk } from '../storage/update-store.ts';

/** Everything that is stored about sessions while they run, in the order in which it happened, many things per commit. */
export interface UpdateLog {
  update(sessionKey: string, seq: number, text: string): void;
  /** Runs the statements in the same order, with whatever else waits. Resolves when they are stored, and never rejects. */
  store(statements: readonly Statement[]): Promise<void>;
  /** Stores now what waits; rejects when that fails. It is tried again later in any case. */
  flush(): Promise<void>;
  hasRoom(): boolean;
  /** Calls once, when there is room again. */
  whenRoom(listener: () => void): void;
  close(): Promise<void>;
}

export interface UpdateLogOptions {
  readonly clock: Clock;
  insertChunks(chunks: readonly UpdateChunk[]): readonly Statement[];
  write(statements: readonly Statement[]): Promise<unknown>;
  /** Told when the log is closed with something left that could not be stored. */
  onLost(count: number): void;
}

type LogItem =
  | { readonly kind: 'update'; readonly sessionKey: string; readonly seq: number; readonly text: string }
  | { readonly kind: 'statements'; readonly statements: readonly Statement[]; readonly done: () => void };

/** Updates are stored within 20 ms (contract/bridge 1): this wait, a commit that is under way, and their own. */
const MAX_DELAY_MS = 4;
const MAX_BATCH = 2000;
/** Beyond these there is no room for updates: agents are slowed down. What ends a turn is accepted anyway. */
const MAX_ITEMS = 20_000;
const MAX_LENGTH = 4 * 1024 * 1024;
/** A chunk is read whole when it is replayed. */
const CHUNK_LENGTH = 64 * 1024;

export function createUpdateLog(options: UpdateLogOptions): UpdateLog {
  const { clock, insertChunks, write, onLost } = options;
  let length = 0;
  let listeners: (() => void)[] = [];

  const batcher = createBatcher<LogItem>({
    capacity: Number.POSITIVE_INFINITY,
    maxBatch: MAX_BATCH,
    maxDelayMs: MAX_DELAY_MS,
    clock,
    onDropped: onLost,
    async write(batch) {
      const chunks = toChunks(batch, clock.now());
      const statements = batch.flatMap((item) => (item.kind === 'statements' ? item.statements : []));
      await write([...insertChunks(chunks), ...statements]);
      for (const item of batch) {
        if (item.kind === 'update') length -= item.text.length;
        else item.done();
      }
      if (listeners.length > 0 && hasRoom()) tellListeners();
    },
  });

  function hasRoom(): boolean {
    return length < MAX_LENGTH && batcher.size() < MAX_ITEMS;
  }

  function tellListeners(): void {
    const told = listeners;
    listeners = [];
    for (const listener of told) listener();
  }

  return {
    update(sessionKey, seq, text) {
      length += text.length;
      batcher.add({ kind: 'update', sessionKey, seq, text });
    },
    store(statements) {
      const { promise, resolve } = Promise.withResolvers<void>();
      batcher.add({ kind: 'statements', statements, done: resolve });
      return promise;
    },
    flush: batcher.flush,
    hasRoom,
    whenRoom: (listener) => void listeners.push(listener),
    close: batcher.close,
  };
}

/** One row for the consecutive updates of each session: far fewer than one for each update. */
function toChunks(batch: readonly LogItem[], now: number): UpdateChunk[] {
  const chunks: { session_key: string; first_seq: number; last_seq: number; at: number; updates: string }[] = [];
  const open = new Map<string, (typeof chunks)[number]>();
  for (const item of batch) {
    if (item.kind !== 'update') continue;
    const { sessionKey, seq, text } = item;
    const chunk = open.get(sessionKey);
    if (chunk !== undefined && seq === chunk.last_seq + 1 && chunk.updates.length < CHUNK_LENGTH) {
      chunk.last_seq = seq;
      chunk.updates += `\n${text}`;
    } else {
      const made = { session_key: sessionKey, first_seq: seq, last_seq: seq, at: now, updates: text };
      open.set(sessionKey, made);
      chunks.push(made);
    }
  }
  return chunks;
}
