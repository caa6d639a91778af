import { createHash } from 'node:crypto';
import type { FileChange, PlanEntry } from '../contract/session-update.ts';
import { asObject, cutText, objectsIn, shownText, textOf } from './agent-text.ts';

/** The most characters of the changes of one tool call. */
const MAX_CHANGES_LENGTH = 65_536;
const MAX_CHANGES = 100;

/** A file as it was and as it is. The lines between the equal beginning and the equal end count as changed. */
export function changeOfTexts(path: string, oldText: string | undefined, newText: string): FileChange {
  const before = linesOf(oldText ?? '');
  const after = linesOf(newText);
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  return {
    path,
    ...(oldText !== undefined && { oldText }),
    newText,
    added: after.length - start - end,
    removed: before.length - start - end,
    truncated: false,
  };
}

/** A change that the agent tells as a unified diff. */
export function changeOfDiff(path: string, unified: string): FileChange {
  const lines = unified.split('\n');
  const count = (mark: string) =>
    lines.filter((line) => line.startsWith(mark) && !line.startsWith(mark.repeat(3))).length;
  return { path, unified, added: count('+'), removed: count('-'), truncated: false };
}

/** The changes of one call, of which only so much is kept. What does not fit keeps its figures. */
export function withinChangeBounds(changes: readonly FileChange[]): readonly FileChange[] {
  let room = MAX_CHANGES_LENGTH;
  return changes.slice(0, MAX_CHANGES).map((change) => {
    const { oldText = '', newText = '', unified = '' } = change;
    const length = oldText.length + newText.length + unified.length;
    room -= length;
    if (room >= 0) return change;
    const { path, added, removed } = change;
    const kept = room + length;
    room = 0;
    const beginning = unified === '' || kept <= 0 ? {} : { unified: cutText(unified, kept) };
    return { path, ...beginning, added, removed, truncated: true };
  });
}

export function linesOf(text: string): readonly string[] {
  if (text === '') return [];
  return (text.endsWith('\n') ? text.slice(0, -1) : text).split('\n');
}

export interface FileLocation {
  readonly path: string;
  readonly line?: number;
}

export function readLocations(value: unknown): readonly FileLocation[] | undefined {
  if (!Array.isArray(value) || value.length === 0) return undefined;
  return value.flatMap((location: unknown) => {
    const { path, line } = asObject(location);
    if (typeof path !== 'string') return [];
    return typeof line === 'number' ? [{ path, line }] : [{ path }];
  });
}

/** The diffs among the contents of a tool call. */
export function readDiffs(value: unknown): readonly FileChange[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const changes = value.flatMap((entry: unknown) => {
    const { type, path, oldText, newText } = asObject(entry);
    if (type !== 'diff' || typeof path !== 'string' || typeof newText !== 'string') return [];
    return [changeOfTexts(path, typeof oldText === 'string' ? oldText : undefined, newText)];
  });
  return changes.length === 0 ? undefined : withinChangeBounds(changes);
}

/** The files that a tool call is about, and those that it changes. */
export function pathsOf({ locations, content }: Readonly<Record<string, unknown>>): readonly string[] {
  const diffs = objectsIn(content).filter(({ type }) => type === 'diff');
  return [...objectsIn(locations), ...diffs].map(({ path }) => textOf(path)).filter(Boolean);
}

const MAX_PLAN_ENTRIES = 200;
const MAX_ENTRY_LENGTH = 1000;
const PRIORITIES: ReadonlySet<unknown> = new Set(['high', 'medium', 'low']);

/** A plan from outside. Agents call an entry `content` or `step`, and write its status in two ways. */
export function readPlan(value: unknown): readonly PlanEntry[] {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MAX_PLAN_ENTRIES).flatMap((entry: unknown) => {
    const { content, step, status, priority } = asObject(entry);
    const text = cutText(shownText(content ?? step), MAX_ENTRY_LENGTH);
    if (text === '') return [];
    const isStarted = status === 'in_progress' || status === 'inProgress';
    return [
      {
        content: text,
        status: status === 'completed' ? 'completed' : isStarted ? 'in_progress' : 'pending',
        priority: PRIORITIES.has(priority) ? (priority as PlanEntry['priority']) : 'medium',
      } satisfies PlanEntry,
    ];
  });
}

/** The members of inputs in which agents name files. */
export const PATH_MEMBERS: readonly string[] = [
  ...['path', 'file_path', 'filePath', 'file', 'abs_path', 'notebook_path'],
  ...['from', 'to', 'grantRoot', 'paths'],
];

/** The members of inputs in which agents name a command and its folder. */
export const COMMAND_MEMBERS: readonly string[] = ['command', 'cmd', 'args'];
export const FOLDER_MEMBERS: readonly string[] = ['cwd', 'workdir', 'working_directory'];

/** In characters of JSON. Of a larger input, only what rules read is kept for a question that does not repeat it. */
const MAX_KEPT_INPUT = 1024 * 1024;
/** Linux starts no longer command. Of one that is longer nevertheless, rules see the beginning, and allow nothing. */
const MAX_KEPT_COMMAND = 2 * 1024 * 1024;

/** What is kept of the input of a tool call until it has ended; undefined where there is none. */
export function keptInput(input: unknown): unknown {
  if (input === undefined || input === null) return undefined;
  const text = JSON.stringify(input);
  if (text.length <= MAX_KEPT_INPUT) return input;
  const fields = asObject(input);
  const read = [...COMMAND_MEMBERS, ...FOLDER_MEMBERS].filter((name) => fields[name] !== undefined);
  const kept = Object.fromEntries(read.map((name) => [name, fields[name]]));
  const words = JSON.stringify(kept);
  return {
    ...(words.length <= MAX_KEPT_COMMAND ? kept : { command: cutText(words, MAX_KEPT_COMMAND) }),
    paths: pathsIn(input),
    // A remembered answer counts for this input alone.
    inputSha256: createHash('sha256').update(text).digest('hex'),
  };
}

/** The files that an input names. */
export function pathsIn(input: unknown): readonly string[] {
  const fields = asObject(input);
  return PATH_MEMBERS.flatMap((name) => [fields[name]].flat()).filter(
    (path): path is string => typeof path === 'string' && path !== '',
  );
}

/** An input with the files that an agent names beside it, so that rules and people see them. */
export function withPaths(input: unknown, paths: readonly string[]): unknown {
  const fields = isPlainObject(input) ? input : input === undefined || input === null ? {} : { input };
  const named = new Set(PATH_MEMBERS.flatMap((name) => [fields[name]].flat()));
  const further = [...new Set(paths)].filter((path) => !named.has(path));
  return further.length === 0 ? input : { ...fields, paths: [...[fields.paths ?? []].flat(), ...further] };
}

function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
