import { useEffect, useRef } from 'react';

/** THE TABLE of keys, besides those of the navigation, which has its own. The palette, the sheet and the buttons read it. */
export const SHORTCUTS = {
  palette: { keys: 'Mod k', what: 'Search screens, sessions and actions' },
  newSession: { keys: 'n', what: 'New session' },
  search: { keys: '/', what: 'Search this list' },
  help: { keys: '?', what: 'These keys' },
  close: { keys: 'Escape', what: 'Close' },
  allow: { keys: 'y', what: 'Allow once what an agent asks for' },
  allowSession: { keys: 'a', what: 'Allow it for this session' },
  deny: { keys: 'd', what: 'Deny it' },
  stop: { keys: 'Escape Escape', what: 'Stop what runs' },
  nextItem: { keys: 'j', what: 'Next row of the list, or item of the conversation' },
  previousItem: { keys: 'k', what: 'Previous row or item' },
  previousTurn: { keys: '[', what: 'Previous turn' },
  nextTurn: { keys: ']', what: 'Next turn' },
  nextEdit: { keys: 'e', what: 'Next change of a file' },
  copyItem: { keys: 'c', what: 'Copy the item of the conversation' },
  latest: { keys: 'l', what: 'Latest item of the conversation' },
  write: { keys: 'm', what: 'Write a message' },
} as const satisfies Readonly<Record<string, { readonly keys: string; readonly what: string }>>;

export type ShortcutName = keyof typeof SHORTCUTS;

/** What can be done on the page that is shown. */
export interface Action {
  readonly keys: string;
  readonly what: string;
  run(): void;
}

/** Keys as people read them: `Esc Esc`, `⌘K` on a Mac. */
export function keysText(keys: string): string {
  const isMac = typeof navigator === 'object' && /^Mac|^iP/.test(navigator.platform);
  return keys.replaceAll('Escape', 'Esc').replace(/^Mod (.)$/, (_, key: string) => {
    return isMac ? `⌘${key.toUpperCase()}` : `Ctrl ${key.toUpperCase()}`;
  });
}

/** The words for the tooltip of a button that does the same as a key. */
export const tipOf = (name: ShortcutName) => `${SHORTCUTS[name].what} (${keysText(SHORTCUTS[name].keys)})`;

const CHORD_MS = 1000;

interface Pressed {
  readonly key: string;
  readonly at: number;
}

/**
 * Finds what a key does: two keys within a second (`g b`) come before one, and the parts of the page that were shown last before
 * the others. A key that only begins chords takes the next key with it, whatever that does alone: `g a` must not allow a command.
 */
export function actionFor(
  layers: readonly (readonly Action[])[],
  before: Pressed | undefined,
  now: Pressed,
): Action | undefined {
  const find = (keys: string) =>
    layers.findLast((layer) => layer.some((one) => one.keys === keys))?.find((one) => one.keys === keys);
  const isRecent = before !== undefined && now.at - before.at < CHORD_MS;
  if (!isRecent) return find(now.key);
  const chord = find(`${before.key} ${now.key}`);
  if (chord !== undefined) return chord;
  const opensChord = layers.some((layer) => layer.some(({ keys }) => keys.startsWith(`${before.key} `)));
  return opensChord && find(before.key) === undefined && before.key !== 'Escape' ? undefined : find(now.key);
}

/** Keys that do what they do again and again while they are held down. */
const HELD: ReadonlySet<string> = new Set([SHORTCUTS.nextItem.keys, SHORTCUTS.previousItem.keys]);

const layers = new Set<{ readonly current: readonly Action[] }>();
let before: Pressed | undefined;

/** All actions of the page that is shown, each key once: for what was shown last. */
export function activeActions(): readonly Action[] {
  const all = [...layers].flatMap(({ current }) => current);
  return [...new Map(all.map((action) => [action.keys, action])).values()];
}

function onKey(event: KeyboardEvent): void {
  const { key, target } = event;
  const isTyping = target instanceof HTMLElement && target.closest('input, textarea, select, dialog') !== null;
  const isCommand = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
  if (['Control', 'Meta', 'Alt', 'Shift'].includes(key)) return;
  // A key that is held down goes on through a list, and does everything else once: held, Escape is not pressed twice.
  if (event.repeat && !HELD.has(key)) return;
  if (event.altKey || ((event.ctrlKey || event.metaKey) && !isCommand)) return;
  if (key === 'Escape' && isTyping) {
    // A dialog takes it, and a field that has something to clear. Neither is the first of two that stop an agent.
    const isCleared = target instanceof HTMLInputElement && target.type === 'search' && target.value !== '';
    if (target.closest('dialog') !== null || isCleared) {
      before = undefined;
      return;
    }
    target.blur();
  }
  // While someone types, only what no text has in it counts.
  if (isTyping && key !== 'Escape' && !isCommand) return;
  const pressed = { key: isCommand ? `Mod ${key.toLowerCase()}` : key, at: Date.now() };
  const action = actionFor(
    [...layers].map(({ current }) => current),
    before,
    pressed,
  );
  before = action === undefined ? pressed : undefined;
  if (action === undefined) return;
  event.preventDefault();
  action.run();
}

/** What a row of a list or a card opens. */
const ROWS = 'article.card > a:first-of-type, table.list > tbody > tr';
const OPENS = 'a[href], button';

/** Moves the focus to the row after (1) or before (-1) the one that has it. */
function goToRow(direction: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>(ROWS)];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at === -1 ? (direction === 1 ? 0 : rows.length - 1) : at + direction];
  (next?.matches(OPENS) ? next : next?.querySelector<HTMLElement>(OPENS))?.focus();
}

/** Goes through the rows of the list that is shown. Drawn before the screen, so that keys of the screen come first. */
export function RowKeys() {
  useShortcuts({ nextItem: () => goToRow(1), previousItem: () => goToRow(-1) });
  return null;
}

/** Offers actions by key and in the palette while the part of the page is shown. */
export function useActions(actions: readonly Action[]): void {
  const layer = useRef(actions);
  useEffect(() => {
    layer.current = actions;
  });
  useEffect(() => {
    if (layers.size === 0) window.addEventListener('keydown', onKey);
    layers.add(layer);
    return () => {
      layers.delete(layer);
      if (layers.size === 0) window.removeEventListener('keydown', onKey);
    };
  }, []);
}

/** Offers actions of the table. */
export function useShortcuts(actions: Partial<Readonly<Record<ShortcutName, () => void>>>): void {
  useActions(
    Object.entries(actions).flatMap(([name, run]) =>
      run === undefined ? [] : [{ ...SHORTCUTS[name as ShortcutName], run }],
    ),
  );
}
