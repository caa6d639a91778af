import type { AgentEvent } from './agent-provider.ts';

/** The longest `output` of a result, in characters. The whole of a longer text is kept as an artifact. */
export const MAX_OUTPUT_LENGTH = 4_000_000;

/** Follows the final text of a turn without keeping it. */
export interface TextMeter {
  /** Returns which part of the final text the event is; undefined when it is not a part of it. */
  add(event: AgentEvent): 'first' | 'next' | undefined;
  length(): number;
}

/**
 * The final text of a turn is what the agent wrote after its last tool call. When a turn ends with a tool call, its final
 * text is what the agent wrote before that call.
 */
export function createTextMeter(): TextMeter {
  let length = 0;
  let hasCalledTool = false;
  return {
    add(event) {
      if (event.kind === 'tool_call') hasCalledTool = true;
      if (event.kind !== 'text') return undefined;
      if (hasCalledTool) length = 0;
      hasCalledTool = false;
      const part = length === 0 ? 'first' : 'next';
      length += event.text.length;
      return part;
    },
    length: () => length,
  };
}

/** Collects the final text of a turn, up to `MAX_OUTPUT_LENGTH`. */
export function createFinalText(): { add(event: AgentEvent): void; value(): string } {
  const meter = createTextMeter();
  let pieces: string[] = [];
  return {
    add(event) {
      const part = meter.add(event);
      if (part === undefined || event.kind !== 'text') return;
      if (part === 'first') pieces = [];
      const room = MAX_OUTPUT_LENGTH - (meter.length() - event.text.length);
      if (room > 0) pieces.push(cutText(event.text, room));
    },
    value() {
      const text = pieces.join('');
      // The pieces are not needed any more: a long text is in memory once.
      pieces = [text];
      return text;
    },
  };
}

/** Returns the beginning of a text, never half of a character that has two code units. */
export function cutText(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const last = text.charCodeAt(maxLength - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? maxLength - 1 : maxLength);
}
