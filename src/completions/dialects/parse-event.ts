import { parseJson } from '../../platform/json/parse-json.ts';
import { asObject, type JsonObject } from './json-value.ts';

/** The JSON object in an event's data; undefined when it holds anything else. */
export function parseEvent(data: string): JsonObject | undefined {
  try {
    return asObject(parseJson(data));
  } catch {
    return undefined;
  }
}
