import type { EventFraming } from './chunk-reader.ts';
import { createEventSplitter } from './event-splitter.ts';
import { createEventReader } from './read-events.ts';

/** Server-sent events, whole or with the last blank line forgotten. */
export function createSseFraming(): EventFraming {
  const splitter = createEventSplitter();
  const readEvents = createEventReader();
  return {
    feed(chunk) {
      const piece = splitter.feed(chunk);
      return piece.length === 0 ? [] : readEvents(piece.toString('utf8'));
    },
    end() {
      const rest = splitter.rest();
      return rest.length === 0 ? [] : readEvents(`${rest.toString('utf8')}\n\n`);
    },
  };
}
