import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { Turn } from '../../data/bridge.ts';
import type { Item, ToolCall } from '../../live/fold-updates.ts';
import { DiffView } from '../../parts/diff.tsx';
import { Markdown } from '../../parts/markdown.tsx';
import { TerminalText } from '../../parts/terminal-text.tsx';
import { countText, moneyText, spanText, visible } from '../../parts/text.ts';

interface ConversationProps {
  readonly items: readonly Item[];
  readonly turns: readonly Turn[];
  /** Where the agent works. */
  readonly folder: string;
  readonly hasEarlier: boolean;
  readonly isLoading: boolean;
  readonly isRunning: boolean;
  readonly onEarlier: () => void;
  /** Copies the session up to a turn; undefined where its agent cannot. */
  readonly onFork: ((turnId: string) => void) | undefined;
  /** The only turn up to which the session can be copied. Undefined: any turn. */
  readonly onlyFork?: string | undefined;
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

/** The updates of a session as a list that draws only what can be seen. */
export function Conversation(props: ConversationProps) {
  const { items: all, turns, folder, hasEarlier, isLoading, isRunning, onEarlier, onFork, onlyFork } = props;
  const [filter, setFilter] = useState<Filter>('all');
  const items = useMemo(() => all.filter((item) => matches(item, filter)), [all, filter]);
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
  const last = items.at(-1);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the last item grows while its length stays
  useLayoutEffect(() => {
    if (isFollowing && length > 0) list.scrollToIndex(length - 1, { align: 'end' });
  }, [length, last, isFollowing]);
  function onScroll(): void {
    const element = place.current;
    if (element === null) return;
    setFollowing(element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END);
    if (element.scrollTop < NEAR_END && hasEarlier && !isLoading) onEarlier();
  }
  return (
    <section className="conversation" aria-label="Conversation">
      <fieldset className="choice filters">
        <legend className="hidden-label">Show</legend>
        {FILTERS.map(({ name, label }) => (
          <button key={name} type="button" aria-pressed={filter === name} onClick={() => setFilter(name)}>
            {label}
          </button>
        ))}
      </fieldset>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a list that scrolls must be reachable by keyboard */}
      <div className="log" role="log" aria-live="off" aria-label="Updates" ref={place} onScroll={onScroll} tabIndex={0}>
        {isLoading ? <p className="quiet">Loading …</p> : null}
        {!isLoading && length === 0 ? <p className="quiet">Nothing yet.</p> : null}
        <Sized height={list.getTotalSize()}>
          {list.getVirtualItems().map(({ index, key, start }) => {
            const item = items[index];
            return item === undefined ? null : (
              <Placed key={key} index={index} start={start} measure={list.measureElement}>
                <Entry
                  item={item}
                  turn={byId.get(item.turnId)}
                  folder={folder}
                  onFork={onlyFork === undefined || onlyFork === item.turnId ? onFork : undefined}
                />
              </Placed>
            );
          })}
        </Sized>
      </div>
      <p className="hidden-label" role="status">
        {isRunning ? 'The agent is working.' : 'The agent has finished.'}
      </p>
      {isFollowing ? null : (
        <button type="button" className="latest" onClick={() => setFollowing(true)}>
          Latest ↓
        </button>
      )}
    </section>
  );
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
  measure: (element: Element | null) => void;
  children: React.ReactNode;
}) {
  const { index, start, measure, children } = props;
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (element.current !== null) element.current.style.transform = `translateY(${start}px)`;
  }, [start]);
  useEffect(() => {
    measure(element.current);
  }, [measure]);
  return (
    <div className="placed" ref={element} data-index={index}>
      {children}
    </div>
  );
}

function matches(item: Item, filter: Filter): boolean {
  if (filter === 'all') return true;
  if (filter === 'failed') {
    return (
      (item.kind === 'tool' && item.call.status === 'failed') || (item.kind === 'end' && item.status !== 'completed')
    );
  }
  if (item.kind !== 'tool') return false;
  return filter === 'commands' ? item.call.toolKind === 'execute' : (item.call.changes ?? []).length > 0;
}

interface EntryProps extends Pick<ConversationProps, 'folder' | 'onFork'> {
  readonly item: Item;
  readonly turn: Turn | undefined;
}

const Entry = memo(function Entry({ item, turn, folder, onFork }: EntryProps) {
  switch (item.kind) {
    case 'start':
      return turn === undefined ? null : (
        <div className="prompt">
          <pre>{visible(turn.prompt)}</pre>
        </div>
      );
    case 'text':
      return <Markdown text={item.text} />;
    case 'thinking':
      return (
        <details className="thinking">
          <summary>Thought for {spanText(item.until - item.at)}</summary>
          <Markdown text={item.text} />
        </details>
      );
    case 'tool':
      return <Call call={item.call} folder={folder} />;
    case 'note':
      return <p className={`note ${item.tone}`}>{visible(item.text)}</p>;
    case 'end':
      return <TurnEnd item={item} turn={turn} onFork={onFork} />;
  }
});

interface TurnEndProps extends Pick<EntryProps, 'turn' | 'onFork'> {
  readonly item: Extract<Item, { kind: 'end' }>;
}

function TurnEnd({ item, turn, onFork }: TurnEndProps) {
  const tokens = turn?.usage?.totalTokens;
  const facts = [
    item.status,
    turn?.endedAt == null ? undefined : spanText(turn.endedAt - turn.createdAt),
    tokens === undefined ? undefined : `${countText(tokens)} tokens`,
    turn?.costUsd == null ? undefined : moneyText(turn.costUsd),
  ].filter(Boolean);
  return (
    <div className={`turn-end ${item.status}`}>
      <hr />
      {item.status === 'completed' ? null : (
        <p className="failed">
          {visible(turn?.error || item.message)} {turn?.code === undefined || turn.code === '' ? '' : `(${turn.code})`}
        </p>
      )}
      <p className="quiet">
        {facts.join(' · ')}
        {onFork === undefined ? null : (
          <button
            type="button"
            className="plain"
            title="Copies the conversation up to here into a new session"
            onClick={() => onFork(item.turnId)}
          >
            Fork from here
          </button>
        )}
      </p>
    </div>
  );
}

const DONE: Readonly<Record<ToolCall['status'], string>> = {
  pending: 'waits',
  in_progress: 'runs',
  completed: 'done',
  failed: 'failed',
};

function Call({ call, folder }: { readonly call: ToolCall; readonly folder: string }) {
  const { title, status, toolKind, changes = [], output, exitCode, durationMs } = call;
  const text = outputText(output);
  return (
    <div className={`call ${status}`}>
      <details>
        <summary>
          <span className={`dot ${status}`} role="img" aria-label={DONE[status]} />
          <code>{visible(title)}</code> <span className="quiet">{toolKind}</span>
          {durationMs === undefined ? null : <span className="quiet"> {spanText(durationMs)}</span>}
          {exitCode === undefined || exitCode === 0 ? null : <span className="failed"> exit {exitCode}</span>}
        </summary>
        {text === '' ? null : <TerminalText text={text} />}
        {changes.length > 0 || text !== '' ? null : <pre className="terminal">{inputText(call.input)}</pre>}
      </details>
      {changes.map((change) => (
        <DiffView key={change.path} change={change} folder={folder} />
      ))}
    </div>
  );
}

/** Agents give output as text, as blocks with text, or as any JSON. */
export function outputText(output: unknown): string {
  if (output === undefined || output === null) return '';
  if (typeof output === 'string') return output;
  if (Array.isArray(output)) return output.map(outputText).filter(Boolean).join('\n');
  if (typeof output === 'object') {
    const { text, content, output: inner } = output as Record<string, unknown>;
    if (typeof text === 'string') return text;
    if (content !== undefined) return outputText(content);
    if (inner !== undefined) return outputText(inner);
  }
  return JSON.stringify(output, undefined, 2);
}

const MAX_INPUT = 4000;

function inputText(input: unknown): string {
  if (input === undefined) return 'No output.';
  return visible((typeof input === 'string' ? input : JSON.stringify(input, undefined, 2)).slice(0, MAX_INPUT));
}
