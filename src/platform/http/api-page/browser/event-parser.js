/** @import { StreamEvent } from './openapi-types.d.ts' */

const LARGEST_EVENT = 4 * 1024 * 1024;

/**
 * Reads `text/event-stream` bytes, however they are cut, and calls back for each event.
 * @param {(event: StreamEvent) => void} onEvent
 * @returns {{ push(bytes: Uint8Array): void }}
 */
export function createEventParser(onEvent) {
  const decoder = new TextDecoder();
  let rest = '';
  let afterReturn = false;
  let event = '';
  let id = '';
  /** @type {string[]} */
  let data = [];
  let size = 0;

  /** @param {string} line */
  function takeLine(line) {
    if (line === '') {
      if (data.length > 0) onEvent({ event: event || 'message', id, data: data.join('\n') });
      event = '';
      data = [];
      size = 0;
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') {
      data.push(value);
      size += value.length + 1;
    } else if (field === 'event') event = value;
    else if (field === 'id' && !value.includes('\0')) id = value;
  }

  return {
    push(bytes) {
      let text = decoder.decode(bytes, { stream: true });
      if (text === '') return;
      // A line feed after a carriage return that ended the chunk before belongs to that line end.
      if (afterReturn && text.startsWith('\n')) text = text.slice(1);
      afterReturn = text === '' ? false : text.endsWith('\r');
      const lines = (rest + text).split(/\r\n|\n|\r/);
      rest = lines.pop() ?? '';
      for (const line of lines) takeLine(line);
      if (size + rest.length > LARGEST_EVENT) throw new Error('An event is too large to show.');
    },
  };
}
