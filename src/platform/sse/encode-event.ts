import { AppError } from '../errors/app-error.ts';

export interface StreamEvent {
  readonly data: string;
  readonly id?: string;
  readonly event?: string;
}

const LINE_BREAK = /\r\n|\r|\n/;
const NOT_IN_A_FIELD = /[\r\n\0]/;

/** One event of `text/event-stream`. Data may have line breaks of any kind; the reader gets them as line feeds. */
export function encodeEvent({ data, id, event }: StreamEvent): string {
  const head = `${field('id', id)}${field('event', event)}`;
  const lines = LINE_BREAK.test(data) ? data.split(LINE_BREAK).join('\ndata: ') : data;
  return `${head}data: ${lines}\n\n`;
}

/** The same event in parts, for large data: bytes, because Node allocates three times the length of a string it writes. */
export function encodeInParts(whole: StreamEvent): readonly (string | Buffer)[] {
  const { data, id, event } = whole;
  if (LINE_BREAK.test(data)) return [encodeEvent(whole)];
  return [`${field('id', id)}${field('event', event)}data: `, Buffer.from(data), '\n\n'];
}

/** A line that readers ignore; it only shows that the stream lives. */
export function encodeComment(text: string): string {
  return `: ${text.split(LINE_BREAK).join('\n: ')}\n\n`;
}

/** A line break in a field would start a field, or an event, of the sender's choosing. */
function field(name: string, value: string | undefined): string {
  if (value === undefined) return '';
  if (NOT_IN_A_FIELD.test(value)) {
    throw new AppError('INVALID_REQUEST', { reason: `the ${name} of an event must be one line` });
  }
  return `${name}: ${value}\n`;
}
