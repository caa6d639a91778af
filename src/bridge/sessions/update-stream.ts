import type { MakeUpdate } from './update-text.ts';

/**
 * Numbers the updates of one session and releases them in order. An update is held until the store has reserved its number, so that
 * no number is used twice after a crash. Reserved numbers are never returned, because gaps are harmless.
 */
export interface UpdateStream {
  lastSeq(): number;
  /** The highest number that is reserved in the store. */
  reservedSeq(): number;
  /** The number of the last released update. Later ones are held until something is stored. */
  shownSeq(): number;
  emit(make: MakeUpdate): void;
  /** Whether updates wait for the store. */
  isHolding(): boolean;
  /** Whether the store takes more. */
  hasRoom(): boolean;
  /** Undefined while more may be emitted; otherwise resolves when the store, and those who read the updates, take more. */
  room(): Promise<void> | undefined;
  /** Releases the callers that wait for room. */
  giveRoom(): void;
  /** The store has numbers up to this one reserved. */
  noteReserved(upTo: number): void;
  /** A turn of the session has begun here: from now on more numbers are reserved as they are needed. */
  open(upTo: number): void;
  /** Holds further updates until that is stored, so that a crash cannot undo what a client has seen. */
  holdUntil(stored: Promise<unknown>): void;
  /**
   * Numbers the last update of a turn, after all that is held has left, and holds everything else until `resume`. The
   * caller stores it together with the end of the turn and publishes it then.
   */
  conclude(make: MakeUpdate): Promise<{ readonly seq: number; readonly text: string }>;
  /** Releases the updates that were held since `conclude`. Called when the end of the turn with that number is stored. */
  resume(seq: number): void;
  /** Stops reserving numbers. Called when no turn of the session runs or waits here. */
  close(): void;
  /** Drops what is held; its numbers are not used. */
  drop(): void;
  /** Another bridge has the session: what is held, and what is still emitted, is dropped until `restart`. */
  abandon(): void;
  isAbandoned(): boolean;
  /** Drops everything and continues after that number; for a session that another bridge may have used. */
  restart(lastSeq: number): void;
}

export interface UpdateStreamOptions {
  readonly lastSeq: number;
  /** Stores the update and sends it to the clients. */
  publish(seq: number, text: string): void;
  /** False while the log has no room. */
  hasRoom(): boolean;
  whenRoom(listener: () => void): void;
  /** Undefined while those who get the updates keep up; otherwise resolves soon. */
  receiversKeepUp(): Promise<void> | undefined;
  /** Resolves when the store has reserved numbers up to that one; however long that takes. */
  reserve(upTo: number): Promise<unknown>;
}

/** How many numbers are reserved when a turn begins. */
export const NUMBERS_AHEAD = 512;
/** Each further reservation of a turn is twice as large, up to this number, so that updates rarely wait for one. */
const MAX_NUMBERS_AHEAD = 8 * NUMBERS_AHEAD;
/** When held updates are longer than this, the emitter waits. */
const MAX_HELD_LENGTH = 1024 * 1024;

interface HeldUpdate {
  readonly seq: number;
  readonly text: string;
}

export function createUpdateStream(options: UpdateStreamOptions): UpdateStream {
  const { publish, hasRoom, whenRoom, receiversKeepUp, reserve } = options;
  let last = options.lastSeq;
  let reserved = options.lastSeq;
  let ahead = NUMBERS_AHEAD;
  let held: HeldUpdate[] = [];
  let heldLength = 0;
  /** What must be stored before anything else leaves. */
  let storing: unknown;
  /** Whether numbers may be reserved, and whether that is under way. */
  let reserving: 'closed' | 'open' | 'under way' = 'closed';
  let empty: PromiseWithResolvers<void> | undefined;
  let roomy: PromiseWithResolvers<void> | undefined;
  let listensForRoom = false;
  let abandoned = false;
  /** Whether the last number is that of the end of a turn that is being stored. */
  let isEnding = false;

  function emit(make: MakeUpdate): void {
    if (abandoned) return;
    last += 1;
    const text = make(last);
    if (held.length === 0 && mayLeave(last)) {
      publish(last, text);
    } else {
      held.push({ seq: last, text });
      heldLength += text.length;
    }
    reserveAhead();
  }

  function mayLeave(seq: number): boolean {
    return storing === undefined && seq <= reserved && logHasRoom();
  }

  function logHasRoom(): boolean {
    if (hasRoom()) return true;
    if (!listensForRoom) {
      listensForRoom = true;
      whenRoom(() => {
        listensForRoom = false;
        letOut();
      });
    }
    return false;
  }

  function letOut(): void {
    let count = 0;
    for (const { seq, text } of held) {
      if (!mayLeave(seq)) break;
      publish(seq, text);
      heldLength -= text.length;
      count += 1;
    }
    if (count > 0) held = held.slice(count);
    if (held.length === 0) empty?.resolve();
    if (roomy !== undefined && hasRoomForMore()) giveRoom();
  }

  function hasRoomForMore(): boolean {
    return heldLength <= MAX_HELD_LENGTH && logHasRoom();
  }

  function giveRoom(): void {
    roomy?.resolve();
    roomy = undefined;
  }

  /** Asks for more numbers when half of the last ones are used up. */
  function reserveAhead(): void {
    if (reserving !== 'open' || reserved - last >= ahead / 2) return;
    reserving = 'under way';
    ahead = Math.min(2 * ahead, MAX_NUMBERS_AHEAD);
    const upTo = last + ahead;
    void reserve(upTo).then(() => {
      if (reserving === 'under way') reserving = 'open';
      noteReserved(upTo);
    });
  }

  function noteReserved(upTo: number): void {
    if (upTo > reserved) reserved = upTo;
    letOut();
    reserveAhead();
  }

  function drop(): void {
    held = [];
    heldLength = 0;
    storing = undefined;
    letOut();
  }

  return {
    lastSeq: () => last,
    reservedSeq: () => reserved,
    shownSeq: () => (held[0]?.seq ?? (isEnding ? last : last + 1)) - 1,
    emit,
    isHolding: () => held.length > 0,
    hasRoom: hasRoomForMore,
    room() {
      if (hasRoomForMore()) return receiversKeepUp();
      roomy ??= Promise.withResolvers<void>();
      return roomy.promise;
    },
    giveRoom,
    noteReserved,
    open(upTo) {
      if (reserving === 'closed') reserving = 'open';
      noteReserved(upTo);
    },
    holdUntil(stored) {
      storing = stored;
      void stored.then(() => {
        if (storing !== stored) return;
        storing = undefined;
        letOut();
      });
    },
    async conclude(make) {
      if (held.length > 0) {
        empty = Promise.withResolvers<void>();
        // A turn that ended before it began: nothing else will ask for numbers.
        if (reserving === 'closed') {
          const upTo = last;
          void reserve(upTo).then(() => noteReserved(upTo));
        }
        await empty.promise;
        empty = undefined;
      }
      storing = make;
      // A number that is stored together with the end of the turn needs no reservation.
      last += 1;
      isEnding = true;
      return { seq: last, text: make(last) };
    },
    resume(seq) {
      // All that came before the end of the turn is stored too.
      storing = undefined;
      isEnding = false;
      noteReserved(seq);
    },
    close() {
      reserving = 'closed';
      ahead = NUMBERS_AHEAD;
    },
    drop,
    abandon() {
      abandoned = true;
      reserving = 'closed';
      drop();
      giveRoom();
    },
    isAbandoned: () => abandoned,
    restart(lastSeq) {
      abandoned = false;
      isEnding = false;
      last = lastSeq;
      reserved = lastSeq;
      reserving = 'closed';
      drop();
    },
  };
}
