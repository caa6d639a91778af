import { useMemo, useState } from 'react';
import type { Turn } from '../../data/bridge.ts';
import { BASE } from '../../data/request.ts';
import type { Item, PlanEntry } from '../../live/fold-updates.ts';
import { DiffView } from '../../parts/diff.tsx';
import type { FileChange } from '../../parts/diff-lines.ts';
import { TerminalText } from '../../parts/terminal-text.tsx';
import { countText, visible } from '../../parts/text.ts';
import { outputText } from './conversation.tsx';

interface SidePaneProps {
  readonly items: readonly Item[];
  readonly plan: readonly PlanEntry[];
  readonly turns: readonly Turn[];
  /** Where the agent works. */
  readonly folder: string;
}

const TABS = ['changes', 'plan', 'terminal', 'files'] as const;
const LABELS = { changes: 'Changes', plan: 'Plan', terminal: 'Terminal', files: 'Files' } as const;

/** What the session has changed, its plan, its commands and its files. */
export function SidePane({ items, plan, turns, folder }: SidePaneProps) {
  /** On a narrow screen the pane is closed until one of its tabs is chosen. */
  const [isOpen, setOpen] = useState(false);
  const [tab, setTab] = useState<(typeof TABS)[number]>('changes');
  const calls = useMemo(() => items.flatMap((item) => (item.kind === 'tool' ? [item.call] : [])), [items]);
  const changes = useMemo(() => latestChanges(calls.flatMap((call) => call.changes ?? [])), [calls]);
  const commands = calls.filter(({ toolKind }) => toolKind === 'execute');
  const files = turns.flatMap(({ artifacts }) => artifacts);
  const done = plan.filter(({ status }) => status === 'completed').length;
  const counts = {
    changes: changes.length === 0 ? '' : `${changes.length}`,
    plan: plan.length === 0 ? '' : `${done}/${plan.length}`,
    terminal: commands.length === 0 ? '' : `${commands.length}`,
    files: files.length === 0 ? '' : `${files.length}`,
  };
  function choose(name: (typeof TABS)[number]): void {
    setOpen(!(isOpen && name === tab));
    setTab(name);
  }
  return (
    <aside className={isOpen ? 'side open' : 'side'} aria-label="Work of the session">
      <div role="tablist" aria-label="Work of the session">
        {TABS.map((name) => (
          <button key={name} type="button" role="tab" aria-selected={tab === name} onClick={() => choose(name)}>
            {LABELS[name]} {counts[name]}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-label={LABELS[tab]} className="panel">
        {tab === 'changes' ? (
          changes.length === 0 ? (
            <p className="quiet">No file was changed.</p>
          ) : (
            changes.map((change) => (
              <DiffView key={change.path} change={change} folder={folder} open={changes.length <= 3} />
            ))
          )
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
            <p className="quiet">No file was handed over.</p>
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
                  <span className="quiet">{countText(file.sizeBytes ?? 0)} bytes</span>
                </li>
              ))}
            </ul>
          )
        ) : null}
      </div>
    </aside>
  );
}

/** One entry for each file: from what it was at first to what it is now. Diffs without texts are kept as they are. */
function latestChanges(changes: readonly FileChange[]): readonly FileChange[] {
  const byPath = new Map<string, FileChange>();
  for (const change of changes) {
    const before = byPath.get(change.path);
    byPath.set(change.path, before === undefined ? change : joined(before, change));
  }
  return [...byPath.values()];
}

function joined(before: FileChange, after: FileChange): FileChange {
  const added = before.added + after.added;
  const removed = before.removed + after.removed;
  if (before.unified !== undefined && after.unified !== undefined) {
    return { ...after, unified: `${before.unified}\n${after.unified}`, added, removed };
  }
  return { ...after, ...(before.oldText !== undefined && { oldText: before.oldText }), added, removed };
}
