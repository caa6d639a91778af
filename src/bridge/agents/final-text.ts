import type { AgentEvent } from './agent-provider.ts';

const MOST_CHARACTERS = 4_000_000;

/**
 * The final text of a turn: what the agent said after the last thing it did. An agent that ends with a deed keeps the
 * text before it.
 */
export function createFinalText(): { add(event: AgentEvent): void; value(): string } {
  let pieces: string[] = [];
  let length = 0;
  let didSomething = false;
  return {
    add(event) {
      if (event.kind === 'tool_call') didSomething = true;
      if (event.kind !== 'text') return;
      if (didSomething) {
        pieces = [];
        length = 0;
      }
      didSomething = false;
      length += event.text.length;
      if (length <= MOST_CHARACTERS) pieces.push(event.text);
    },
    value: () => pieces.join(''),
  };
}
