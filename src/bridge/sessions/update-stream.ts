import type { MakeUpdate } from './update-text.ts';

/**
 * Gives the updates of one session their numbers and lets them out in order. A number is used only once the store has
 * reserved it, so that no crash can lead to its being used twice; whatever comes sooner is held.
 */
export interface UpdateStream {
  lastSeq(): number;
  /** The highest number that is reserved in the store. */
  reservedSeq(): number;
  emit(make: MakeUpdate): void;
  /** Whether updates wait for the store. */
  isHolding(): boolean;
  /** Numbers up to this one are reserved now. */
  grant(upTo: number): void;
  /** Holds what comes next until that is stored: what a client has seen must not be undone by a crash. */
  holdUntil(stored: Promise<void>): void;
  /**
   * Numbers the last update of a turn, after all that is held has left, and holds everything else until `resume`. The
   * caller stores it together with the end of the turn and publishes it then.
   */
  conclude(make: MakeUpdate): Promise<{ readonly seq: number; readonly text: string }>;
  /** Lets go of what was held since `conclude`. With `exact`, no number beyond the last one is reserved any more. */
  resume(exact: boolean): void;
  /** Forgets everything and goes on after that number; for a session that another bridge may have used. */
  restart(lastSeq: number): void;
}

export interface UpdateStreamOptions {
  readonly lastSeq: number;
  /** Stores the update and sends it to the clients. */
  publish(seq: number, text: string): void;
  /** False while the log has no room. */
  hasRoom(): boolean;
  whenRoom(listener: () => void): void;
  /** Resolves when the store has reserved numbers up to that one; however long that takes. */
  reserve(upTo: number): Promise<void>;
  /** Told when more is held than memory should hold; once, until all has left. */
  onOverflow(): void;
}

/** Numbers that are reserved with the beginning of a turn. */
export const FIRST_BLOCK = 128;
const LARGEST_BLOCK = 4096;
const MOST_HELD = 16 * 1024 * 1024;

interface HeldUpdate {
  readonly seq: number;
  readonly text: string;
}

export function createUpdateStream(options: UpdateStreamOptions): UpdateStream {
  const { publish, hasRoom, whenRoom, reserve, onOverflow } = options;
  let last = options.lastSeq;
  let reserved = options.lastSeq;
  let block = FIRST_BLOCK;
  let held: HeldUpdate[] = [];
  let heldSize = 0;
  /** False until the beginning of a turn has brought the first numbers. */
  let isGranted = false;
  let isReserving = false;
  let isConcluding = false;
  let isWaiting = false;
  /** Grows when reservations under way stop counting. */
  let epoch = 0;
  let waitsForRoom = false;
  let whenEmpty: (() => void) | undefined;

  function emit(make: MakeUpdate): void {
    last += 1;
    const text = make(last);
    if (held.length > 0 || !mayLeave(last)) hold({ seq: last, text });
    else publish(last, text);
    reserveAhead();
  }

  function mayLeave(seq: number): boolean {
    if (isConcluding || isWaiting || seq > reserved) return false;
    if (hasRoom()) return true;
    if (!waitsForRoom) {
      waitsForRoom = true;
      whenRoom(() => {
        waitsForRoom = false;
        letOut();
      });
    }
    return false;
  }

  function hold(update: HeldUpdate): void {
    held.push(update);
    const before = heldSize;
    heldSize += update.text.length;
    if (heldSize > MOST_HELD && before <= MOST_HELD) onOverflow();
  }

  function letOut(): void {
    let count = 0;
    for (const { seq, text } of held) {
      if (!mayLeave(seq)) break;
      publish(seq, text);
      heldSize -= text.length;
      count += 1;
    }
    if (count > 0) held = held.slice(count);
    if (held.length === 0) whenEmpty?.();
  }

  /** Asks for more numbers when half of the last ones are used up. */
  function reserveAhead(): void {
    if (reserved - last >= block / 2 || isReserving || isConcluding || !isGranted) return;
    isReserving = true;
    block = Math.min(block * 2, LARGEST_BLOCK);
    const upTo = last + block;
    const asked = epoch;
    void reserve(upTo).then(() => {
      isReserving = false;
      if (asked === epoch) grant(upTo);
    });
  }

  function grant(upTo: number): void {
    isGranted = true;
    if (upTo > reserved) reserved = upTo;
    letOut();
    reserveAhead();
  }

  return {
    lastSeq: () => last,
    reservedSeq: () => reserved,
    emit,
    isHolding: () => held.length > 0,
    grant,
    holdUntil(stored) {
      const asked = epoch;
      isWaiting = true;
      void stored.then(() => {
        if (asked !== epoch) return;
        isWaiting = false;
        letOut();
      });
    },
    async conclude(make) {
      if (held.length > 0) {
        const { promise, resolve } = Promise.withResolvers<void>();
        whenEmpty = resolve;
        // A turn that ended before it began: nothing else will ask for numbers.
        if (!isGranted) void reserve(last).then(() => grant(last));
        await promise;
        whenEmpty = undefined;
      }
      isConcluding = true;
      last += 1;
      return { seq: last, text: make(last) };
    },
    resume(exact) {
      isConcluding = false;
      // The end of the turn is stored, and so is all that came before it.
      isWaiting = false;
      if (exact) {
        reserved = held[0] === undefined ? last : held[0].seq - 1;
        block = FIRST_BLOCK;
        isGranted = false;
        epoch += 1;
      }
      letOut();
    },
    restart(lastSeq) {
      last = lastSeq;
      reserved = lastSeq;
      block = FIRST_BLOCK;
      isGranted = false;
      isConcluding = false;
      isWaiting = false;
      epoch += 1;
      held = [];
      heldSize = 0;
    },
  };
}
