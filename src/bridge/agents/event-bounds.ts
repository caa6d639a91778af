const MOST_CHARACTERS = 65_536;

/** Inputs and outputs of tools can be whole files; an event carries the beginning of them. */
export function withinBounds(value: unknown): unknown {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (text === undefined || text.length <= MOST_CHARACTERS) return value;
  return `${text.slice(0, MOST_CHARACTERS)}… (${text.length} characters)`;
}
