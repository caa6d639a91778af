import type { Usage } from '../contract/chat.ts';
import type { UpstreamFailure } from '../dialects/dialect.ts';

/** What a part of an upstream's stream means for the caller. */
export interface Reading<Piece> {
  /** To be sent on; undefined when there is nothing to send. */
  readonly piece: Piece | undefined;
  /** There was an event among it, and not comments alone. */
  readonly hasEvent: boolean;
  /** The upstream gave up: what stands in `piece` comes before that. */
  readonly failure?: UpstreamFailure | undefined;
  /** The answer is whole: what follows is of no interest. */
  readonly done: boolean;
}

/** Reads one stream as it comes. What it throws means that the stream makes no sense. */
export interface StreamReader<Piece> {
  feed(chunk: Buffer): Reading<Piece>;
  /** The upstream has closed the connection. A reading that is neither done nor failed: the answer is incomplete. */
  end(): Reading<Piece>;
  /** What the answer has used up to here. */
  usage(): MeasuredUsage;
}

/** `estimated`: counted by us (contract/completions 4). */
export interface MeasuredUsage {
  readonly usage: Usage;
  readonly estimated: boolean;
}
