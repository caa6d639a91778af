import { type KeyboardEvent, memo, type PointerEvent, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { SessionName, Turn } from '../../data/bridge.ts';
import { BASE } from '../../data/request.ts';
import type { Folded, Update } from '../../live/fold-updates.ts';
import { Moment, useFilters } from '../../parts/parts.tsx';
import { TerminalText } from '../../parts/terminal-text.tsx';
import { countOf, countText, visible } from '../../parts/text.ts';
import { ChangesPane, useChangedFiles } from './changes-pane.tsx';
import { outputText } from './entries.tsx';

interface SidePaneProps {
  readonly name: SessionName;
  readonly folded: Folded;
  /** The updates that are kept, in order. */
  readonly updates: readonly Update[];
  readonly turns: readonly Turn[];
  /** Where the agent works. */
  readonly folder: string;
  /** Changes when the agent may have changed files. */
  readonly mark: string;
}

const TABS = ['changes', 'plan', 'terminal', 'files', 'events'] as const;
const LABELS = { changes: 'Changes', plan: 'Plan', terminal: 'Terminal', files: 'Files', events: 'Events' } as const;

/** What the session has changed, its plan, its commands, its files, and its updates as they are. */
export const SidePane = memo(function SidePane(props: SidePaneProps) {
  const { name, folded, updates, turns, folder, mark } = props;
  const { items, plan } = folded;
  const [given, change] = useFilters();
  const tab = TABS.find((one) => one === given.get('pane')) ?? 'changes';
  /** On a narrow screen the pane is closed until one of its tabs is chosen, here or by the link to the page. */
  const [isOpen, setOpen] = useState(() => given.has('pane'));
  const calls = useMemo(() => items.flatMap((item) => (item.kind === 'tool' ? [item.call] : [])), [items]);
  const [scope, setScope] = useState<'session' | 'turn'>('session');
  const turnId = scope === 'turn' ? (turns[0]?.turnId ?? '') : undefined;
  const { files: changes, isSaved } = useChangedFiles(name, items, turnId, mark);
  const commands = calls.filter(({ toolKind }) => toolKind === 'execute');
  const files = turns.flatMap(({ artifacts }) => artifacts);
  const done = plan.filter(({ status }) => status === 'completed').length;
  const counts = {
    changes: changes.length === 0 ? '' : `${changes.length}`,
    plan: plan.length === 0 ? '' : `${done}/${plan.length}`,
    terminal: commands.length === 0 ? '' : `${commands.length}`,
    files: files.length === 0 ? '' : `${files.length}`,
    events: '',
  };
  function choose(chosen: (typeof TABS)[number]): void {
    setOpen(!(isOpen && chosen === tab));
    change('pane', chosen === 'changes' ? '' : chosen);
  }
  return (
    <aside className={isOpen ? 'side open' : 'side'} aria-label="Work of the session">
      <Divider />
      <div role="tablist" aria-label="Work of the session">
        {TABS.map((one) => (
          <button key={one} type="button" role="tab" aria-selected={tab === one} onClick={() => choose(one)}>
            {LABELS[one]} {counts[one]}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-label={LABELS[tab]} className="panel">
        {tab === 'changes' ? (
          <ChangesPane
            name={name}
            folder={folder}
            mark={mark}
            turnId={turnId}
            files={changes}
            isSaved={isSaved}
            onScope={setScope}
          />
        ) : null}
        {tab === 'plan' ? (
          plan.length === 0 ? (
            <p className="quiet">The agent has no plan.</p>
          ) : (
            <ol className="plan">
              {plan.map(({ content, status }) => (
                <li key={content} className={status}>
                  {visible(content)}
                </li>
              ))}
            </ol>
          )
        ) : null}
        {tab === 'terminal' ? (
          commands.length === 0 ? (
            <p className="quiet">No command was run.</p>
          ) : (
            commands.map(({ toolCallId, title, output }) => (
              <div key={toolCallId} className="command">
                <code>$ {visible(title)}</code>
                <TerminalText text={outputText(output)} />
              </div>
            ))
          )
        ) : null}
        {tab === 'files' ? (
          files.length === 0 ? (
            <p className="quiet">There are no files.</p>
          ) : (
            <ul>
              {files.map((file) => (
                <li key={file.relativePath}>
                  {file.downloadUrl === undefined ? (
                    visible(file.relativePath)
                  ) : (
                    <a
                      href={file.downloadUrl.startsWith('/') ? `${BASE}${file.downloadUrl}` : file.downloadUrl}
                      download
                    >
                      {visible(file.relativePath)}
                    </a>
                  )}{' '}
                  <span className="quiet">{countOf(file.sizeBytes ?? 0, 'byte')}</span>
                </li>
              ))}
            </ul>
          )
        ) : null}
        {tab === 'events' ? <Events updates={updates} lastSeq={folded.lastSeq} /> : null}
      </div>
    </aside>
  );
});

const WIDTH = 'trestle.pane';
const USUAL = 42;
const [NARROWEST, WIDEST] = [20, 75];
const STEP = 2;

/** Between the conversation and the pane: dragged, or moved by arrow keys. The browser keeps the place. */
function Divider() {
  const element = useRef<HTMLDivElement>(null);
  const [part, setPart] = useState(() => within(Number(localStorage.getItem(WIDTH) ?? USUAL)));
  useLayoutEffect(() => {
    element.current?.closest<HTMLElement>('.panes')?.style.setProperty('--side', `${part}%`);
  }, [part]);
  function move(next: number): void {
    const place = within(next);
    localStorage.setItem(WIDTH, `${place}`);
    setPart(place);
  }
  function drag(event: PointerEvent<HTMLDivElement>): void {
    const panes = event.currentTarget.closest('.panes')?.getBoundingClientRect();
    if (panes === undefined || !event.currentTarget.hasPointerCapture(event.pointerId)) return;
    move(((panes.right - event.clientX) / panes.width) * 100);
  }
  function press(event: KeyboardEvent): void {
    const steps = { ArrowLeft: STEP, ArrowRight: -STEP, Home: WIDEST, End: -WIDEST }[event.key];
    if (steps === undefined) return;
    event.preventDefault();
    move(part + steps);
  }
  return (
    // biome-ignore lint/a11y/useSemanticElements: a rule cannot be moved
    <div
      ref={element}
      className="divider"
      role="separator"
      tabIndex={0}
      title="Drag to resize, double-click for the usual width"
      aria-label="Width of the pane"
      aria-orientation="vertical"
      aria-valuenow={Math.round(part)}
      aria-valuemin={NARROWEST}
      aria-valuemax={WIDEST}
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={drag}
      onDoubleClick={() => move(USUAL)}
      onKeyDown={press}
    />
  );
}

const within = (part: number) => Math.min(WIDEST, Math.max(NARROWEST, Number.isFinite(part) ? part : USUAL));

/** So many updates are shown, the last ones. */
const MAX_EVENTS = 200;

/** The updates as the server has sent them. `lastSeq` changes with them. */
function Events({ updates, lastSeq }: { readonly updates: readonly Update[]; readonly lastSeq: number }) {
  const [kind, setKind] = useState('');
  // biome-ignore lint/correctness/useExhaustiveDependencies: the list grows in place, and its last number with it
  const found = useMemo(() => updates.filter((one) => kind === '' || one.kind === kind), [updates, kind, lastSeq]);
  const kinds = [...new Set(updates.map((one) => one.kind))].sort();
  const shown = found.slice(-MAX_EVENTS);
  return (
    <>
      <select aria-label="Kind of updates" value={kind} onChange={({ target }) => setKind(target.value)}>
        <option value="">All kinds</option>
        {kinds.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
      {found.length > shown.length ? (
        <p className="quiet">
          The last {countText(shown.length)} of {countText(found.length)}
        </p>
      ) : null}
      {shown.map((update) => (
        <details key={update.seq} className="event">
          <summary>
            <code>{update.seq}</code> {update.kind}{' '}
            <span className="quiet">
              <Moment at={update.at} shown="time" />
            </span>
          </summary>
          <pre>{visible(JSON.stringify(update, undefined, 2))}</pre>
        </details>
      ))}
    </>
  );
}
