import { useVirtualizer, type Virtualizer } from '@tanstack/react-virtual';
import { type RefObject, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { Turn } from '../../data/bridge.ts';
import { type Group, groupLooks, type Item } from '../../live/fold-updates.ts';
import { useFilters } from '../../parts/parts.tsx';
import { tipOf, useShortcuts } from '../../shell/shortcuts.ts';
import { copyText, Entry, type TurnActions } from './entries.tsx';

interface ConversationProps {
  readonly items: readonly Item[];
  readonly turns: readonly Turn[];
  /** Where the agent works. */
  readonly folder: string;
  readonly hasEarlier: boolean;
  readonly isLoading: boolean;
  readonly isRunning: boolean;
  readonly onEarlier: () => void;
  /** What can be done with an ended turn. The same function as long as its answers are the same. */
  readonly actionsOf: (turnId: string) => TurnActions;
}

const FILTERS = [
  { name: 'all', label: 'All' },
  { name: 'edits', label: 'Edits' },
  { name: 'commands', label: 'Commands' },
  { name: 'failed', label: 'Failed' },
] as const;
type Filter = (typeof FILTERS)[number]['name'];

/** Within so many pixels of its end the list follows what comes. */
const NEAR_END = 80;

/** So long the list stays where it is while earlier items are measured. */
const SETTLED_MS = 1000;

const SAID_MS = 4000;

/**
 * Keeps what is read in its place when earlier items come above it. The second item counts: the first one may be the rest of an
 * item that now has its beginning. Returns what notes its place while they are waited for, and what gives the list free.
 */
function useKeptPlace(
  place: RefObject<HTMLElement | null>,
  list: Pick<Virtualizer<HTMLDivElement, Element>, 'measurementsCache'>,
  items: readonly (Item | Group)[],
) {
  const noted = useRef<{ readonly key: string; readonly below: number }>(undefined);
  const kept = useRef<typeof noted.current>(undefined);
  const first = items[0]?.key;
  function note(element: HTMLElement): void {
    const { scrollTop } = element;
    const index = items.findIndex((_, at) => at > 0 && (list.measurementsCache[at]?.end ?? 0) > scrollTop);
    const key = items[index]?.key;
    const { start = 0 } = list.measurementsCache[index] ?? {};
    noted.current = key === undefined ? undefined : { key, below: start - scrollTop };
  }
  useLayoutEffect(() => {
    kept.current = first === undefined ? undefined : noted.current;
    noted.current = undefined;
    const timer = setTimeout(() => {
      kept.current = undefined;
    }, SETTLED_MS);
    return () => clearTimeout(timer);
  }, [first]);
  useLayoutEffect(() => {
    const element = place.current;
    const { current } = kept;
    if (element === null) return;
    if (current !== undefined) {
      const { start } = list.measurementsCache[items.findIndex(({ key }) => key === current.key)] ?? {};
      if (start !== undefined) element.scrollTop = start - current.below;
    }
    // Items get other heights when they are drawn for the first time.
    else if (noted.current !== undefined) note(element);
  });
  return {
    note,
    free(): void {
      kept.current = undefined;
    },
  };
}

/** The updates of a session as a list that draws only what can be seen. */
export function Conversation(props: ConversationProps) {
  const { items: all, turns, folder, hasEarlier, isLoading, isRunning, onEarlier, actionsOf } = props;
  const [given, change] = useFilters();
  const filter: Filter = FILTERS.find(({ name }) => name === given.get('show'))?.name ?? 'all';
  const items = useMemo<readonly (Item | Group)[]>(
    () => (filter === 'all' ? groupLooks(all) : all.filter((item) => matches(item, filter))),
    [all, filter],
  );
  const place = useRef<HTMLDivElement>(null);
  const [isFollowing, setFollowing] = useState(true);
  const byId = useMemo(() => new Map(turns.map((turn) => [turn.turnId, turn])), [turns]);
  const list = useVirtualizer({
    count: items.length,
    getScrollElement: () => place.current,
    estimateSize: () => 60,
    getItemKey: (index) => items[index]?.key ?? index,
    overscan: 8,
  });
  const length = items.length;
  const kept = useKeptPlace(place, list, items);
  const last = items.at(-1);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the last item grows while its length stays
  useLayoutEffect(() => {
    if (isFollowing && length > 0) list.scrollToIndex(length - 1, { align: 'end' });
  }, [length, last, isFollowing]);
  // A page of updates that does not fill the list cannot be scrolled, so that the page before it is read right away.
  // biome-ignore lint/correctness/useExhaustiveDependencies: more items fill more of the list
  useEffect(() => {
    const element = place.current;
    if (element === null || !hasEarlier || isLoading) return;
    if (element.scrollHeight - element.clientHeight < NEAR_END) onEarlier();
  }, [hasEarlier, isLoading, length]);
  /** The key of the item that the keys have gone to. */
  const [current, setCurrent] = useState<string>();
  const copied = useCopied();
  /** Goes to the next item of a kind, before (-1) or after (1) the current one, or from the end of the list. */
  function step(direction: 1 | -1, isSought: (item: Item | Group) => boolean): void {
    const at = items.findIndex(({ key }) => key === current);
    const rest = direction === 1 ? items.slice(at + 1) : items.slice(0, at === -1 ? length : at);
    const found = direction === 1 ? rest.find(isSought) : rest.findLast(isSought);
    if (found === undefined) return;
    const { scrollHeight = 0, clientHeight = 0 } = place.current ?? {};
    if (scrollHeight - clientHeight > NEAR_END) setFollowing(false);
    setCurrent(found.key);
    list.scrollToIndex(items.indexOf(found), { align: 'center' });
  }
  useShortcuts({
    nextItem: () => step(1, () => true),
    previousItem: () => step(-1, () => true),
    nextTurn: () => step(1, ({ kind }) => kind === 'start'),
    previousTurn: () => step(-1, ({ kind }) => kind === 'start'),
    nextEdit: () => step(1, (item) => matches(item, 'edits')),
    copyItem: () => {
      const item = items.find(({ key }) => key === current) ?? last;
      if (item !== undefined) copied.copy(copyText(item, byId.get(item.turnId)));
    },
    latest: () => {
      setCurrent(undefined);
      setFollowing(true);
    },
  });
  function onScroll(): void {
    const element = place.current;
    if (element === null) return;
    setFollowing(element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END);
    if (!hasEarlier || (!isLoading && element.scrollTop >= NEAR_END)) return;
    kept.note(element);
    if (!isLoading) onEarlier();
  }
  return (
    <section className="conversation" aria-label="Conversation">
      <fieldset className="choice filters">
        <legend className="hidden-label">Show</legend>
        {FILTERS.map(({ name, label }) => (
          <button
            key={name}
            type="button"
            aria-pressed={filter === name}
            onClick={() => change('show', name === 'all' ? '' : name)}
          >
            {label}
          </button>
        ))}
      </fieldset>
      <div
        className="log"
        role="log"
        aria-live="off"
        aria-label="Updates"
        ref={place}
        onScroll={onScroll}
        onWheel={kept.free}
        onPointerDown={kept.free}
        onKeyDown={kept.free}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a list that scrolls must be reachable by keyboard
        tabIndex={0}
      >
        {isLoading ? <p className={length === 0 ? 'quiet' : 'quiet earlier'}>Loading …</p> : null}
        {!isLoading && length === 0 ? <p className="quiet">Nothing yet.</p> : null}
        <Sized height={list.getTotalSize()}>
          {list.getVirtualItems().map(({ index, key, start }) => {
            const item = items[index];
            return item === undefined ? null : (
              <Placed
                key={key}
                index={index}
                start={start}
                isCurrent={item.key === current}
                measure={list.measureElement}
              >
                <Entry
                  item={item}
                  turn={byId.get(item.turnId)}
                  folder={folder}
                  {...(item.kind === 'end' && actionsOf(item.turnId))}
                />
              </Placed>
            );
          })}
        </Sized>
      </div>
      <p className="hidden-label" role="status">
        {isRunning ? 'The agent is working.' : 'The agent has finished.'}
      </p>
      <p className="copied" role="status">
        {copied.said}
      </p>
      {isFollowing ? null : (
        <button type="button" className="latest" title={tipOf('latest')} onClick={() => setFollowing(true)}>
          Latest ↓
        </button>
      )}
    </section>
  );
}

/** Copies by a key, which has no button that could say whether it worked. */
function useCopied(): { readonly said: string; copy(text: string): void } {
  const [said, setSaid] = useState('');
  useEffect(() => {
    if (said === '') return;
    const timer = setTimeout(() => setSaid(''), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return {
    said,
    copy(text) {
      if (!('clipboard' in navigator)) setSaid('This browser copies on https addresses and on localhost only.');
      else
        navigator.clipboard.writeText(text).then(
          () => setSaid('Copied'),
          () => setSaid('Not copied'),
        );
    },
  };
}

/** Sizes are set by script, because the policy of the page forbids styles in markup. */
function Sized({ height, children }: { readonly height: number; readonly children: React.ReactNode }) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (element.current !== null) element.current.style.height = `${height}px`;
  }, [height]);
  return (
    <div className="sized" ref={element}>
      {children}
    </div>
  );
}

function Placed(props: {
  index: number;
  start: number;
  isCurrent: boolean;
  measure: (element: Element | null) => void;
  children: React.ReactNode;
}) {
  const { index, start, isCurrent, measure, children } = props;
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (element.current !== null) element.current.style.transform = `translateY(${start}px)`;
  }, [start]);
  useEffect(() => {
    measure(element.current);
  }, [measure]);
  useEffect(() => {
    if (isCurrent) element.current?.focus({ preventScroll: true });
  }, [isCurrent]);
  return (
    <div className="placed" ref={element} data-index={index} tabIndex={-1}>
      {children}
    </div>
  );
}

function matches(item: Item | Group, filter: Filter): boolean {
  if (filter === 'all') return true;
  if (filter === 'failed') {
    return (
      (item.kind === 'tool' && item.call.status === 'failed') || (item.kind === 'end' && item.status !== 'completed')
    );
  }
  if (item.kind !== 'tool') return false;
  return filter === 'commands' ? item.call.toolKind === 'execute' : (item.call.changes ?? []).length > 0;
}
