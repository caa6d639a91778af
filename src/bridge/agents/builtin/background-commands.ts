import type { RunningProcess } from '../../../platform/child-process/start-process.ts';
import { type Clock, pause, repeat } from '../../../platform/clock/clock.ts';
import type { Payer } from '../../../platform/identity/owner.ts';
import { refuse } from './tools/confinement.ts';
import { characterBounds } from './tools/run-command.ts';
import type { BackgroundCommand, ConversationCommands } from './tools/tool.ts';

export interface BackgroundCommands {
  of(reference: string, payer: Payer): ConversationCommands;
  /** Ends the commands of a conversation that is over; resolves when they are gone. */
  end(reference: string): Promise<void>;
  /** Ends the commands of those who may not work any more. */
  endWhere(isMeant: (payer: Payer) => boolean): void;
  stop(): Promise<void>;
}

interface BackgroundOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** Then a command is ended. */
  readonly timeoutMs: number;
  /** Whether a conversation is still there: another instance may have closed its session. */
  isKept(reference: string): Promise<boolean>;
}

/** Commands of one conversation, those included that have ended and were not forgotten. */
const MAX_OF_CONVERSATION = 8;
const MAX_OF_OWNER = 32;
const MAX_OF_ALL = 256;
const MAX_KEPT_BYTES = 32 * 1024;
/** A command that prints without end would keep the bridge busy. */
const MAX_PRINTED_BYTES = 64 * 1024 * 1024;
/** Within the second in which everything of a paused person ends. */
const GRACE_MS = 500;
const LOOK_MS = 30_000;

interface Conversation {
  readonly reference: string;
  readonly payer: Payer;
  readonly commands: Map<number, BackgroundCommand>;
  started: number;
  /** Its commands were ended: one that is being started now is ended too. */
  isOver: boolean;
}

/** Keeps programs that run beside turns. Each belongs to a conversation and ends with it at the latest. */
export function createBackgroundCommands({ clock, timeoutMs, isKept }: BackgroundOptions): BackgroundCommands {
  const conversations = new Map<string, Conversation>();
  /** Of all conversations, those included that are being started. */
  let starting = 0;
  let isStopped = false;
  const looking = repeat({ clock, pauseMs: LOOK_MS, work: endForgotten, onError: () => undefined });

  function running(isMeant: (one: Conversation) => boolean = () => true): number {
    const meant = [...conversations.values()].filter(isMeant);
    return meant.flatMap(({ commands }) => [...commands.values()]).filter((one) => one.isRunning()).length;
  }

  async function endForgotten(): Promise<void> {
    for (const { reference, commands } of conversations.values()) {
      if (commands.size > 0 && !(await isKept(reference))) await end(reference);
    }
  }

  async function end(reference: string): Promise<void> {
    const found = conversations.get(reference);
    if (found === undefined) return;
    found.isOver = true;
    conversations.delete(reference);
    await Promise.all([...found.commands.values()].map((one) => one.stop()));
  }

  /** Makes room by forgetting the oldest command that has ended. */
  function makeRoom({ payer, commands }: Conversation): void {
    const ended = [...commands.values()].find((one) => !one.isRunning());
    if (commands.size >= MAX_OF_CONVERSATION && ended !== undefined) commands.delete(ended.id);
    if (commands.size >= MAX_OF_CONVERSATION) {
      refuse(`${MAX_OF_CONVERSATION} commands run in the background already; end one with stop_command.`);
    }
    if (running((one) => one.payer.owner === payer.owner) + starting >= MAX_OF_OWNER) {
      refuse(`${MAX_OF_OWNER} commands of this owner run in the background already; end one with stop_command.`);
    }
    if (running() + starting >= MAX_OF_ALL) refuse('Too many commands run in the background here; try again later.');
  }

  return {
    of(reference, payer) {
      const own = conversations.get(reference) ?? newConversation(reference, payer);
      return {
        async start(title, launch) {
          if (isStopped || own.isOver) refuse('This conversation is over.');
          makeRoom(own);
          conversations.set(reference, own);
          starting += 1;
          try {
            const process = await launch();
            own.started += 1;
            const command = keepCommand(own.started, title, process, { clock, timeoutMs });
            own.commands.set(command.id, command);
            if (!isStopped && !own.isOver) return command;
            await command.stop();
            return refuse('This conversation is over.');
          } finally {
            starting -= 1;
          }
        },
        find: (id) => own.commands.get(id),
        all: () => [...own.commands.values()],
      };
    },
    end,
    endWhere(isMeant) {
      for (const { reference, payer } of conversations.values()) if (isMeant(payer)) void end(reference);
    },
    async stop() {
      isStopped = true;
      await looking.stop();
      await Promise.all([...conversations.keys()].map(end));
    },
  };
}

function newConversation(reference: string, payer: Payer): Conversation {
  return { reference, payer, commands: new Map(), started: 0, isOver: false };
}

function keepCommand(
  id: number,
  title: string,
  process: RunningProcess,
  { clock, timeoutMs }: Pick<BackgroundOptions, 'clock' | 'timeoutMs'>,
): BackgroundCommand {
  const ring = createRing(MAX_KEPT_BYTES);
  const waiting = new Set<() => void>();
  let state = '';
  let exitCode: number | undefined;
  let readErrors = '';
  const tell = (): void => {
    for (const listener of waiting) listener();
  };
  const endFor = (why: string): void => {
    if (state !== '') return;
    state = why;
    void process.stop({ graceMs: GRACE_MS });
  };
  process.stdin.end();
  process.stdout.on('data', (chunk: Buffer) => {
    ring.add(chunk);
    if (ring.size() > MAX_PRINTED_BYTES) endFor(`ended, because it printed more than ${MAX_PRINTED_BYTES} bytes`);
    tell();
  });
  const stopTimer = clock.after(timeoutMs, () => endFor(`ended after ${timeoutMs} ms`));
  let isRunning = true;
  void process.exited.then(({ code, signal }) => {
    isRunning = false;
    stopTimer();
    exitCode = code ?? undefined;
    state ||= signal === null ? `exit code ${code}` : `ended by ${signal}`;
    tell();
  });
  return {
    id,
    title,
    isRunning: () => isRunning,
    read(all) {
      const errors = process.stderrTail();
      const isNew = all || errors !== readErrors;
      readErrors = errors;
      const { text: output, lost } = ring.read(all, !isRunning);
      const how = { state: isRunning ? 'running' : state, ...(exitCode !== undefined && { exitCode }) };
      return { ...how, output, lost, errors: isNew ? errors : '' };
    },
    async news(ms, signal) {
      const told = new AbortController();
      const listener = () => told.abort();
      waiting.add(listener);
      signal.addEventListener('abort', listener);
      if (!isRunning || ring.hasUnread() || signal.aborted) listener();
      await pause(clock, ms, told.signal);
      waiting.delete(listener);
      signal.removeEventListener('abort', listener);
    },
    async stop() {
      state ||= 'ended by stop_command';
      await process.stop({ graceMs: GRACE_MS });
    },
  };
}

/** The last bytes of a stream, and how far they were read. */
function createRing(maxBytes: number) {
  let chunks: Buffer[] = [];
  let kept = 0;
  let size = 0;
  let readUpTo = 0;
  return {
    size: () => size,
    hasUnread: () => readUpTo < size,
    add(chunk: Buffer): void {
      chunks.push(chunk);
      kept += chunk.length;
      size += chunk.length;
      if (kept < 2 * maxBytes) return;
      chunks = [Buffer.concat(chunks).subarray(-maxBytes)];
      kept = maxBytes;
    },
    /** A character that has not come as a whole is left for the next time, unless no more comes. */
    read(all: boolean, isOver: boolean): { readonly text: string; readonly lost: number } {
      const from = all ? 0 : readUpTo;
      const first = Math.max(from, size - Math.min(kept, maxBytes));
      const bytes = first === size ? Buffer.alloc(0) : Buffer.concat(chunks).subarray(first - size);
      const { start, end } = characterBounds(bytes);
      const last = isOver ? bytes.length : end;
      readUpTo = size - (bytes.length - last);
      return { text: bytes.toString('utf8', first > from ? start : 0, last), lost: first - from };
    },
  };
}
