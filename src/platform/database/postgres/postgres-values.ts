import type { CustomTypesConfig } from 'pg';
import type { SqlValue } from '../statement.ts';

/** Object ids of PostgreSQL's own types; they never change. */
const BOOLEAN = 16;
const BYTES = 17;
const NUMERIC = 1700;
const INTEGERS = new Set([20, 21, 23]);
const FLOATS = new Set([700, 701]);

/** Values come back as SQLite gives them: exact integers, flags as 1 and 0, plain byte arrays, all else as text. */
export const portableTypes: CustomTypesConfig = {
  getTypeParser: (type: number) => (text: string | Buffer) => parseValue(type, String(text)),
};

function parseValue(type: number, text: string): SqlValue {
  if (INTEGERS.has(type)) return parseInteger(text);
  if (FLOATS.has(type)) return Number(text);
  // The sum of 64-bit integers has this type.
  if (type === NUMERIC) return /^-?\d+$/.test(text) ? parseInteger(text) : Number(text);
  if (type === BOOLEAN) return text === 't' ? 1 : 0;
  if (type === BYTES) return Uint8Array.from(Buffer.from(text.slice(2), 'hex'));
  return text;
}

function parseInteger(text: string): number | bigint {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}
