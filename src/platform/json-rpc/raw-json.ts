/** A value that is already JSON text, such as a cached answer: it is put into messages as it stands. */
export class RawJson {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export function rawJson(text: string): RawJson {
  return new RawJson(text);
}

/** What JSON cannot say (`undefined` from a handler that returns nothing) becomes `{}`: a result is always there. */
export function toJsonText(value: unknown): string {
  return value instanceof RawJson ? value.text : (JSON.stringify(value) ?? '{}');
}
