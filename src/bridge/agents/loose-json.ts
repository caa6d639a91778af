/** A JSON object from outside; anything else is an empty one. */
export function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
}

/** Text from outside; anything else is none. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Anything from outside as text to show. Objects are left out: `{"toString": null}` would make `String(...)` throw. */
export function shownText(value: unknown): string {
  return value === undefined || typeof value === 'object' ? '' : String(value);
}
