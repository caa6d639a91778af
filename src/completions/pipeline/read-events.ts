import { createParser } from 'eventsource-parser';
import type { StreamEvent } from '../dialects/dialect.ts';

/** Reads server-sent events out of text that ends where an event ends. A line end that was cut in two does no harm. */
export function createEventReader(): (text: string) => readonly StreamEvent[] {
  let events: StreamEvent[] = [];
  const parser = createParser({
    onEvent: ({ event, data }) => events.push({ event, data }),
  });
  return (text) => {
    events = [];
    // The parser waits to see whether LF follows a CR; together they are the same line end as the CR alone.
    parser.feed(text.endsWith('\r') ? `${text}\n` : text);
    return events;
  };
}
