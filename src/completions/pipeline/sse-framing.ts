import type { EventFraming } from './chunk-reader.ts';
import { createEventSplitter } from './event-splitter.ts';
import { createEventReader, isWholeEvent } from './read-events.ts';

/** Server-sent events, whole or with the last blank line forgotten. */
export function createSseFraming(maxEventBytes?: number): EventFraming {
  const splitter = createEventSplitter(maxEventBytes);
  const readEvents = createEventReader();
  return {
    feed(chunk) {
      const piece = splitter.feed(chunk);
      return piece.length === 0 ? [] : readEvents(piece.toString('utf8'));
    },
    end() {
      const rest = splitter.rest();
      return isWholeEvent(rest) ? readEvents(`${rest.toString('utf8')}\n\n`) : [];
    },
  };
}
