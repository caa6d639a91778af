import { createParser } from 'eventsource-parser';
import type { StreamEvent } from '../dialects/dialect.ts';
import { parseEvent } from '../dialects/json-value.ts';

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

/** Whether what came after the last blank line of a stream is an event all the same, and not one that was cut short. */
export function isWholeEvent(rest: Buffer): boolean {
  if (rest.length === 0) return false;
  const [message] = createEventReader()(`${rest.toString('utf8')}\n\n`);
  if (message === undefined) return false;
  return message.event === 'error' || message.data.trim() === '[DONE]' || parseEvent(message.data) !== undefined;
}
