const WORD = /"content":"(w\d+ )"/g;

/** The words of every stream of the paced model, by their number. */
export function wordOf(index: number): string {
  return `w${index} `;
}

/** Those words in the events of a stream, in the order in which they came. */
export function wordsIn(events: string): string[] {
  return Array.from(events.matchAll(WORD), ([, word = '']) => word);
}
