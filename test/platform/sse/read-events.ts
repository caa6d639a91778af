export interface ReadEvent {
  readonly id: string;
  readonly data: string;
}

/** Reads a whole event stream as the HTML standard says (9.2.6), apart from event names. */
export function readEvents(stream: string): ReadEvent[] {
  const events: ReadEvent[] = [];
  let id = '';
  let data: string[] = [];
  for (const line of stream.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(':');
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (line === '') {
      if (data.length > 0) events.push({ id, data: data.join('\n') });
      data = [];
    } else if (name === 'data') {
      data.push(value);
    } else if (name === 'id') {
      id = value;
    }
  }
  return events;
}
