import { asNumber, asObject, asText, type JsonObject } from '../json-value.ts';

/** The arguments of one call while they come in pieces (`partialArgs`), each a value and the path of its place. */
export interface PartialArguments {
  /** The number of the call among the calls of its answer. */
  readonly call: number;
  readonly value: JsonObject;
  /** How many characters and members were taken so far. */
  size: number;
  /** The path of the text that the next piece continues. */
  growing: string | undefined;
}

type Container = JsonObject | unknown[];

/** No call has arguments as large as this. */
const MAX_SIZE = 8 * 1024 * 1024;
const MAX_DEPTH = 64;
const MAX_INDEX = 10_000;
/** `.name`, `["name"]`, `['name']` or `[3]`. */
const STEP = /\.([^.[\]]{1,500})|\[(?:(\d{1,9})|"((?:[^"\\]|\\.){0,500})"|'((?:[^'\\]|\\.){0,500})')\]/y;

export function createPartialArguments(call: number): PartialArguments {
  return { call, value: {}, size: 0, growing: undefined };
}

/** Puts pieces in their places. Returns false for pieces without a place, and for too many of them. */
export function addPartialArguments(partial: PartialArguments, pieces: readonly unknown[]): boolean {
  for (const each of pieces) {
    const piece = asObject(each);
    const path = asText(piece?.jsonPath);
    if (piece === undefined || path === undefined || !addPiece(partial, path, piece)) return false;
  }
  return true;
}

function addPiece(partial: PartialArguments, path: string, piece: JsonObject): boolean {
  const steps = readPath(path);
  const last = steps?.at(-1);
  if (steps === undefined || last === undefined) return false;
  const text = asText(piece.stringValue);
  partial.size += steps.length + (text?.length ?? 1);
  if (partial.size > MAX_SIZE) return false;
  const holder = containerAt(partial.value, steps);
  if (holder === undefined) return false;
  const before = partial.growing === path ? read(holder, last) : undefined;
  write(holder, last, text === undefined ? plainValue(piece) : typeof before === 'string' ? before + text : text);
  partial.growing = piece.willContinue === true ? path : undefined;
  return true;
}

/** `$.recipe.items[0].name` as its steps; undefined for anything that is not such a path. */
function readPath(path: string): readonly (string | number)[] | undefined {
  if (!path.startsWith('$')) return undefined;
  const steps: (string | number)[] = [];
  STEP.lastIndex = 1;
  while (STEP.lastIndex < path.length) {
    const match = STEP.exec(path);
    if (match === null || steps.length >= MAX_DEPTH) return undefined;
    const [, name, index, quoted, single] = match;
    if (index !== undefined && Number(index) > MAX_INDEX) return undefined;
    steps.push(index === undefined ? (name ?? unescaped(quoted ?? single ?? '')) : Number(index));
  }
  return steps;
}

function unescaped(text: string): string {
  return text.replaceAll(/\\(.)/g, '$1');
}

/** The object or list that holds the last step, made on the way where it is missing. */
function containerAt(root: JsonObject, steps: readonly (string | number)[]): Container | undefined {
  let holder: Container = root;
  for (const [position, step] of steps.entries()) {
    if (Array.isArray(holder) !== (typeof step === 'number')) return undefined;
    const next = steps[position + 1];
    if (next === undefined) return holder;
    let inner = read(holder, step);
    if (inner === undefined) {
      inner = typeof next === 'number' ? [] : {};
      write(holder, step, inner);
    }
    if (typeof inner !== 'object' || inner === null) return undefined;
    holder = inner as Container;
  }
  return undefined;
}

function read(holder: Container, step: string | number): unknown {
  return Object.hasOwn(holder, step) ? (holder as JsonObject)[step] : undefined;
}

/** Defines a member of its own, whatever its name is: `__proto__` is a name like any other. */
function write(holder: Container, step: string | number, value: unknown): void {
  Object.defineProperty(holder, step, { value, enumerable: true, configurable: true, writable: true });
}

function plainValue(piece: JsonObject): unknown {
  if (typeof piece.boolValue === 'boolean') return piece.boolValue;
  return asNumber(piece.numberValue) ?? null;
}
