import { parseJson } from '../../platform/json/parse-json.ts';

/** Reads JSON of unknown shape: each function returns the wanted type or undefined, and never throws. */
export type JsonObject = Record<string, unknown>;

const NO_ITEMS: readonly unknown[] = Object.freeze([]);

export function asObject(value: unknown): JsonObject | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
}

export function asText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Text with something in it. */
export function asWords(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

export function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : NO_ITEMS;
}

/** A count of tokens: never negative, never a fraction. */
export function asCount(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

export function asNumber(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

/** The JSON object in an event's data; undefined when it holds anything else. */
export function parseEvent(data: string): JsonObject | undefined {
  try {
    return asObject(parseJson(data));
  } catch {
    return undefined;
  }
}
