import { useQuery } from '@tanstack/react-query';
import { useEffect, useId, useMemo, useRef, useState } from 'react';
import { useLocation } from 'wouter';
import { listUsers } from '../data/administration.ts';
import { listSessions, sessionAddress } from '../data/bridge.ts';
import { listKeys } from '../data/completions.ts';
import { Dialog } from '../parts/parts.tsx';
import { shortPath, titleText, visible } from '../parts/text.ts';
import { useConsole } from './console-context.ts';
import { type Action, keysText, SHORTCUTS } from './shortcuts.ts';

/** One line of the palette. */
interface Choice {
  readonly id: string;
  readonly group: 'Screen' | 'Session' | 'Key' | 'User' | 'Action';
  readonly label: string;
  readonly hint: string;
  run(): void;
}

interface PaletteProps {
  readonly screens: readonly { readonly path: string; readonly label: string; readonly keys: string }[];
  /** What can be done on the page behind the palette. */
  readonly actions: readonly Action[];
  /** The owner of the person's own sessions. */
  readonly own: string;
  readonly onClose: () => void;
}

/** So many sessions are offered: the newest, or the newest with the text in their titles. */
const SESSIONS = 8;
const USERS = 5;
/** Not offered: they would only open or close the palette itself, or move in it. */
const LEFT_OUT: ReadonlySet<string> = new Set([SHORTCUTS.palette.keys, SHORTCUTS.close.keys]);

/** The own keys and, for those who may see them, the users with the text in their names or addresses. */
function usePeopleAndKeys(search: string): readonly Choice[] {
  const [, go] = useLocation();
  const { person, system } = useConsole();
  const keys = useQuery({
    queryKey: ['keys'],
    queryFn: listKeys,
    enabled: person !== undefined && system.services.includes('completions') && search !== '',
  });
  const users = useQuery({
    queryKey: ['users', 'palette', search],
    queryFn: () => listUsers({ search, limit: USERS }),
    placeholderData: (before) => before,
    enabled: person?.permissions.includes('admin.users.list.read') === true && search !== '',
  });
  if (search === '') return [];
  const isFound = (text: string) => text.toLowerCase().includes(search.toLowerCase());
  return [
    ...(keys.data ?? [])
      .filter(({ name }) => fits(name, search))
      .map(({ id, name, hint }) => ({
        ...{ id, group: 'Key' as const, label: visible(name), hint: visible(hint) },
        run: () => go('/console/keys'),
      })),
    // Until the server has looked for the text, those of the last search that fit are offered.
    ...(users.data?.users ?? [])
      .filter(({ id, name, email }) => !users.isPlaceholderData || isFound(`${name} ${email} ${id}`))
      .map(({ id, name, email }) => ({
        ...{ id, group: 'User' as const, label: visible(name), hint: visible(email) },
        run: () => go(`/console/users?search=${encodeURIComponent(email)}`),
      })),
  ];
}

/** Goes to a screen, a session, a key or a user, or does what a key of the keyboard does, by a few letters of its name. */
export default function Palette({ screens, actions, own, onClose }: PaletteProps) {
  const [, go] = useLocation();
  const { hasAgents } = useConsole();
  const id = useId();
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const search = text.trim();
  const sessions = useQuery({
    queryKey: ['sessions', 'palette', search],
    queryFn: () => listSessions({ limit: SESSIONS, ...(search !== '' && { search }) }),
    placeholderData: (before) => before,
    enabled: hasAgents,
  });
  const peopleAndKeys = usePeopleAndKeys(search);
  const found = useMemo(() => {
    const ofScreens = screens.map(({ path, label, keys }) => ({
      ...{ id: path, group: 'Screen' as const, label, hint: keysText(keys) },
      run: () => go(path),
    }));
    const ofActions = actions
      .filter(({ keys, what }) => !LEFT_OUT.has(keys) && !screens.some(({ label }) => label === what))
      .map(({ keys, what, run }) => ({ id: keys, group: 'Action' as const, label: what, hint: keysText(keys), run }));
    // The server looks for the text in titles and ids. Until it has, those of the last search that fit are offered.
    const known = (sessions.data?.sessions ?? []).filter(
      ({ title, sessionId }) =>
        !sessions.isPlaceholderData || `${title} ${sessionId}`.toLowerCase().includes(search.toLowerCase()),
    );
    const ofSessions = known.map((session) => ({
      id: `${session.owner}/${session.sessionId}`,
      group: 'Session' as const,
      label: titleText(session.title),
      hint: `${session.state.replace('_', ' ')} · ${visible(shortPath(session.folder))}`,
      run: () => go(sessionAddress(session, own)),
    }));
    const fitting = (all: readonly Choice[]) => all.filter(({ label }) => fits(label, search));
    return { places: [...fitting(ofScreens), ...ofSessions], actions: fitting(ofActions) };
  }, [screens, actions, sessions.data, sessions.isPlaceholderData, search, own, go]);
  const choices = [...found.places, ...peopleAndKeys, ...found.actions];
  const current = Math.min(chosen, choices.length - 1);
  const field = useRef<HTMLInputElement>(null);
  // When the dialog is open.
  useEffect(() => field.current?.focus(), []);
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.children[current]?.scrollIntoView({ block: 'nearest' });
  }, [current]);
  function take(choice: Choice | undefined): void {
    if (choice === undefined) return;
    onClose();
    // When the dialog is gone, so that an action can move the focus.
    setTimeout(() => choice.run(), 0);
  }
  return (
    <Dialog title="Go to" onClose={onClose}>
      <div className="palette">
        <input
          role="combobox"
          aria-label="Screen, session or action"
          aria-expanded="true"
          aria-controls={`${id}-list`}
          aria-activedescendant={choices[current] === undefined ? undefined : `${id}-${current}`}
          autoComplete="off"
          spellCheck={false}
          ref={field}
          placeholder="Screen, session or action"
          value={text}
          onChange={({ target }) => {
            setText(target.value);
            setChosen(0);
          }}
          onKeyDown={(event) => {
            const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (step !== undefined) {
              event.preventDefault();
              setChosen((current + step + choices.length) % Math.max(1, choices.length));
            } else if (event.key === 'Enter') {
              event.preventDefault();
              take(choices[current]);
            }
          }}
        />
        <div role="listbox" ref={list} id={`${id}-list`} aria-label="Found">
          {choices.map((choice, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the input above
            <div
              key={`${choice.group} ${choice.id}`}
              id={`${id}-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === current}
              onClick={() => take(choice)}
            >
              <small>{choice.group}</small> <span>{choice.label}</span> <small>{choice.hint}</small>
            </div>
          ))}
        </div>
        {choices.length === 0 && !sessions.isFetching ? <p className="quiet">Nothing has this name.</p> : null}
      </div>
    </Dialog>
  );
}

/** Whether every word of the search begins a word of the label. */
export function fits(label: string, search: string): boolean {
  const words = label.toLowerCase().split(/\s+/);
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((part) => part === '' || words.some((word) => word.startsWith(part)));
}
