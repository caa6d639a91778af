import type { Clock } from '../../platform/clock/clock.ts';
import type { Statement } from '../../platform/database/statement.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import { createBatcher } from '../../platform/queue/batcher.ts';
import type { AgentEvent, StepMark } from '../agents/agent-provider.ts';
import { createTextMeter, cutText, MAX_OUTPUT_LENGTH, type TextMeter } from '../agents/agent-text.ts';
import type { LongOutput } from '../artifacts/create-artifacts.ts';
import type { UpdateChunk, UpdateStore } from '../storage/update-store.ts';
import { readDelta } from './update-text.ts';

/** Everything that is stored about sessions while they run, in the order in which it happened, many things per commit. */
export interface UpdateLog {
  update(sessionKey: string, seq: number, text: string): void;
  /** Runs the statements in the same order, with whatever else waits. Resolves when they are stored, and never rejects. */
  store(statements: readonly Statement[]): Promise<void>;
  /** The same for what only the bridge that has the session may write. Resolves with false when another has it. */
  storeOwn(sessionKey: string, statements: readonly Statement[]): Promise<boolean>;
  /** As `store`, before everything else of its batch. It must not be able to fail unless the store does. */
  storeFirst(part: FirstPart): Promise<void>;
  /** Stores now what waits; rejects when that fails. It is tried again later in any case. */
  flush(): Promise<void>;
  hasRoom(): boolean;
  /** Calls once, when there is room again. */
  whenRoom(listener: () => void): void;
  /** Whatever kept updates from leaving may be over. */
  look(): void;
  close(): Promise<void>;
}

/** Where several bridges share the store: what one of them writes about a session counts only while it has the session. */
export interface SessionFence {
  /** Whether updates may be shown; they wait otherwise. */
  mayShow(): boolean;
  /** Fails with STORAGE_CONFLICT when another bridge has the session. Undefined: not checked. */
  statement(sessionKey: string): Statement | undefined;
  /** After a conflict: whether this bridge has the session nevertheless. */
  isKept(sessionKey: string): Promise<boolean>;
  /** Another bridge has the session: nothing more of it is written from here. */
  onTaken(sessionKey: string): void;
}

interface UpdateLogOptions {
  readonly clock: Clock;
  /** Undefined: no other bridge shares the store. */
  readonly fence: SessionFence | undefined;
  insertChunks(chunks: readonly UpdateChunk[]): readonly Statement[];
  write(statements: readonly Statement[]): Promise<unknown>;
  /** Told when the log is closed with something left that could not be stored. */
  onLost(count: number): void;
}

type LogItem =
  | {
      readonly kind: 'update';
      readonly order: number;
      readonly sessionKey: string;
      readonly seq: number;
      readonly text: string;
    }
  | {
      readonly kind: 'statements';
      readonly order: number;
      /** Undefined: written no matter which bridge has the session. */
      readonly sessionKey: string | undefined;
      readonly statements: readonly Statement[];
      readonly done: (isStored: boolean) => void;
    }
  | {
      readonly kind: 'first';
      readonly order: number;
      readonly sessionKey: undefined;
      readonly part: FirstPart;
      readonly done: () => void;
    };

/** What goes first. All of it is called for each try. */
interface FirstPart {
  statements(): readonly Statement[];
  /** It is being written: what is stored from now on goes into another commit. */
  taken(): void;
  failed(error: unknown): void;
}

/** Updates are stored within 20 ms: this wait, a commit that is under way, and their own. */
const MAX_DELAY_MS = 4;
const MAX_BATCH = 2000;
/** Beyond these there is no room for updates: agents are slowed down. What ends a turn is accepted anyway. */
const MAX_ITEMS = 20_000;
const MAX_LENGTH = 4 * 1024 * 1024;
/** A chunk is read whole when it is replayed. */
const CHUNK_LENGTH = 64 * 1024;

export function createUpdateLog(options: UpdateLogOptions): UpdateLog {
  const { clock, fence, insertChunks, write, onLost } = options;
  let length = 0;
  /** Of the last item. */
  let order = 0;
  /** Up to where items of a session are out of date: another bridge has taken it since. It may be here again by now. */
  const outdated = new Map<string, number>();
  let listeners: (() => void)[] = [];

  const batcher = createBatcher<LogItem>({
    capacity: Number.POSITIVE_INFINITY,
    maxBatch: MAX_BATCH,
    maxDelayMs: MAX_DELAY_MS,
    clock,
    onDropped: onLost,
    async write(batch) {
      const parts = batch.flatMap((item) => (item.kind === 'first' ? item.part : []));
      for (const part of parts) part.taken();
      const fresh = batch.filter((item) => !isOutdated(item));
      const taken = await writeBatch(fresh).catch((error: unknown) => {
        for (const part of parts) part.failed(error);
        throw error;
      });
      for (const item of batch) {
        if (item.kind === 'update') length -= item.text.length;
        else item.done(item.sessionKey === undefined || !(taken.has(item.sessionKey) || isOutdated(item)));
      }
      const last = batch.at(-1)?.order ?? 0;
      for (const [key, upTo] of outdated) if (upTo <= last) outdated.delete(key);
      if (listeners.length > 0 && hasRoom()) tellListeners();
    },
  });

  function isOutdated({ sessionKey, order: own }: LogItem): boolean {
    return sessionKey !== undefined && own <= (outdated.get(sessionKey) ?? 0);
  }

  const next = () => {
    order += 1;
    return order;
  };

  /** Resolves with the sessions that another bridge has: nothing of them was written. */
  async function writeBatch(batch: readonly LogItem[]): Promise<ReadonlySet<string>> {
    const taken = new Set<string>();
    try {
      await writeItems(batch);
    } catch (error) {
      if (fence === undefined || errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      // One session that another bridge has must not hold up the others. Storing something again does no harm.
      const groups = Map.groupBy(batch, (item) => item.sessionKey);
      await writeItems(groups.get(undefined) ?? []);
      for (const [sessionKey, items] of groups) {
        if (sessionKey !== undefined && !(await writeOwn(fence, sessionKey, items))) taken.add(sessionKey);
      }
      for (const sessionKey of taken) {
        outdated.set(sessionKey, order);
        fence.onTaken(sessionKey);
      }
    }
    return taken;
  }

  async function writeOwn(own: SessionFence, sessionKey: string, items: readonly LogItem[]): Promise<boolean> {
    for (let tries = 0; tries < 2; tries += 1) {
      try {
        await writeItems(items);
        return true;
      } catch (error) {
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
        if (!(await own.isKept(sessionKey))) return false;
      }
    }
    return false;
  }

  async function writeItems(items: readonly LogItem[]): Promise<void> {
    const first: Statement[] = [];
    const others: Statement[] = [];
    for (const item of items) {
      if (item.kind === 'first') first.push(...item.part.statements());
      else if (item.kind === 'statements') others.push(...item.statements);
    }
    await write([...fences(items), ...first, ...insertChunks(toChunks(items, clock.now())), ...others]);
  }

  function fences(items: readonly LogItem[]): Statement[] {
    if (fence === undefined) return [];
    const keys = new Set(items.map((item) => item.sessionKey).filter((key) => key !== undefined));
    return [...keys].map(fence.statement).filter((statement) => statement !== undefined);
  }

  function hasRoom(): boolean {
    return length < MAX_LENGTH && batcher.size() < MAX_ITEMS && fence?.mayShow() !== false;
  }

  function tellListeners(): void {
    const told = listeners;
    listeners = [];
    for (const listener of told) listener();
  }

  return {
    update(sessionKey, seq, text) {
      length += text.length;
      batcher.add({ kind: 'update', order: next(), sessionKey, seq, text });
    },
    store(statements) {
      const { promise, resolve } = Promise.withResolvers<void>();
      batcher.add({ kind: 'statements', order: next(), sessionKey: undefined, statements, done: () => resolve() });
      return promise;
    },
    storeOwn(sessionKey, statements) {
      const { promise, resolve } = Promise.withResolvers<boolean>();
      batcher.add({ kind: 'statements', order: next(), sessionKey, statements, done: resolve });
      return promise;
    },
    storeFirst(part) {
      const { promise, resolve } = Promise.withResolvers<void>();
      batcher.add({ kind: 'first', order: next(), sessionKey: undefined, part, done: resolve });
      return promise;
    },
    flush: batcher.flush,
    hasRoom,
    whenRoom: (listener) => void listeners.push(listener),
    look() {
      if (listeners.length > 0 && hasRoom()) tellListeners();
    },
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

/** A text of a turn that is longer than its result can hold. The updates of the session contain all of it. */
interface LongText {
  /** Of a multi-agent run: the step that wrote the text. */
  readonly stepIndex: number | undefined;
  /** The number of the update in which it begins. */
  readonly firstSeq: number;
  readonly length: number;
}

/** Remembers where the final texts of a turn begin: one text, or one for each step of a multi-agent run. */
interface OutputTrace {
  /** Takes an event before it is emitted; `nextSeq` is the number of its first update. */
  note(event: AgentEvent, nextSeq: number, step: StepMark | undefined): void;
  longTexts(): readonly LongText[];
}

interface TracedText {
  readonly stepIndex: number | undefined;
  readonly meter: TextMeter;
  firstSeq: number;
}

export function createOutputTrace(): OutputTrace {
  const texts: TracedText[] = [];
  const current = new Map<number | undefined, TracedText>();
  function begin(stepIndex: number | undefined): TracedText {
    const text = { stepIndex, meter: createTextMeter(), firstSeq: 0 };
    texts.push(text);
    current.set(stepIndex, text);
    return text;
  }
  return {
    note(event, nextSeq, step) {
      const stepIndex = step?.stepIndex;
      // Each turn of a conversation between agents has a text of its own.
      if (event.kind === 'stage' && event.event === 'multi_agent_step_started') begin(stepIndex);
      const text = current.get(stepIndex) ?? begin(stepIndex);
      if (text.meter.add(event) === 'first') text.firstSeq = nextSeq;
    },
    longTexts: () =>
      texts
        .map(({ stepIndex, meter, firstSeq }) => ({ stepIndex, firstSeq, length: meter.length() }))
        .filter(({ length }) => length > MAX_OUTPUT_LENGTH),
  };
}

export type ReadLongText = (sessionKey: string, text: LongText) => LongOutput;

/** Of a part of a long text, in characters. Each part is written by itself: of 100,000 updates, one part each took minutes. */
const MIN_PART_LENGTH = 64 * 1024;

/** Reads long texts from the stored updates, a page at a time: they are never in memory as a whole. */
export function createLongTextReader(
  log: Pick<UpdateLog, 'flush'>,
  store: Pick<UpdateStore, 'readManyAfter'>,
): ReadLongText {
  async function* read(sessionKey: string, { stepIndex, firstSeq, length }: LongText): AsyncGenerator<Uint8Array> {
    await log.flush();
    let left = length;
    let part = '';
    for (let last = firstSeq - 1; left > 0; ) {
      const chunks = await store.readManyAfter(sessionKey, last);
      if (chunks.length === 0) break;
      for (const { first_seq: first, last_seq: lastOfChunk, updates } of chunks) {
        const fresh = updates.split('\n').slice(Math.max(0, last + 1 - first));
        for (const stored of fresh) {
          const delta = readDelta(stored);
          if (left <= 0 || delta === undefined || delta.stepIndex !== stepIndex) continue;
          part += delta.text;
          left -= delta.text.length;
          if (part.length < MIN_PART_LENGTH) continue;
          // An update may end in the first half of a character: the next one has the other half.
          const whole = cutText(`${part}\n`, part.length);
          yield Buffer.from(whole);
          part = part.slice(whole.length);
        }
        last = lastOfChunk;
      }
    }
    if (part !== '') yield Buffer.from(part);
  }
  return (sessionKey, text) => ({
    label: text.stepIndex === undefined ? 'output' : `step-${text.stepIndex}-output`,
    chunks: read(sessionKey, text),
  });
}
