import { useEffect } from 'react';

/** Keys besides those of the navigation, which has its own table. */
export const SHORTCUTS: readonly { readonly keys: string; readonly what: string }[] = [
  { keys: 'n', what: 'New session' },
  { keys: '/', what: 'Search' },
  { keys: '?', what: 'These keys' },
  { keys: 'y', what: 'Allow once what an agent asks for' },
  { keys: 'a', what: 'Allow it for this session' },
  { keys: 'd', what: 'Deny it' },
  { keys: 'Esc Esc', what: 'Stop the running turn' },
  { keys: 'Ctrl Enter', what: 'Send' },
];

const CHORD_MS = 1000;

/** Runs an action for a key, or for two keys within a second (`g b`, `Escape Escape`). Not while someone types a text. */
export function useShortcuts(actions: Readonly<Record<string, () => void>>): void {
  useEffect(() => {
    let before = '';
    let beforeAt = 0;
    function onKey(event: KeyboardEvent): void {
      const { key, target } = event;
      const isTyping = target instanceof HTMLElement && target.closest('input, textarea, select, dialog') !== null;
      if (event.ctrlKey || event.metaKey || event.altKey || (isTyping && key !== 'Escape')) return;
      const chord = Date.now() - beforeAt < CHORD_MS ? `${before} ${key}` : '';
      const action = actions[chord] ?? actions[key];
      before = key;
      beforeAt = Date.now();
      if (action === undefined) return;
      event.preventDefault();
      before = '';
      action();
    }
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [actions]);
}
