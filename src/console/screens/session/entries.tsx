import { memo } from 'react';
import type { Turn } from '../../data/bridge.ts';
import type { Decider, Group, Item, ToolCall } from '../../live/fold-updates.ts';
import { DiffView } from '../../parts/diff.tsx';
import { Markdown } from '../../parts/markdown.tsx';
import { TerminalText } from '../../parts/terminal-text.tsx';
import { countOf, moneyText, spanText, visible } from '../../parts/text.ts';
import { useOwnName } from '../../shell/console-context.ts';
import { useOwnerText } from '../teams/own-teams.ts';

/** What can be done with a turn that has ended. Undefined where it cannot be done with this turn. */
export interface TurnActions {
  /** Copies the session up to the turn. */
  readonly onFork?: ((turnId: string) => void) | undefined;
  /** Puts the files of the turn back. */
  readonly onUndo?: ((turnId: string) => void) | undefined;
  /** Goes on with a turn that was interrupted. */
  readonly onContinue?: (() => void) | undefined;
}

interface EntryProps extends TurnActions {
  readonly item: Item | Group;
  readonly turn: Turn | undefined;
  /** Where the agent works. */
  readonly folder: string;
}

/** One item of a conversation. */
export const Entry = memo(function Entry({ item, turn, folder, ...actions }: EntryProps) {
  switch (item.kind) {
    case 'start':
      return <Prompt text={turn?.prompt ?? item.prompt} attachments={turn?.attachments ?? []} />;
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
    case 'group':
      return (
        <details className="call group">
          <summary>{looksText(item.calls)}</summary>
          {item.calls.map((call) => (
            <Call key={call.toolCallId} call={call} folder={folder} />
          ))}
        </details>
      );
    case 'note':
      return (
        <p className={`note ${item.tone}`}>
          {visible(item.text)}
          {item.isUnsent && turn !== undefined ? <UnsentText text={turn.prompt} /> : null}
          {item.decidedBy === undefined ? null : <DecidedBy {...item.decidedBy} />}
        </p>
      );
    case 'end':
      return <TurnEnd item={item} turn={turn} {...actions} />;
  }
});

const MAX_UNSENT = 300;

/** A message that was not sent is not lost: its beginning is shown, the key c copies all of it, and the arrow up calls it back. */
function UnsentText({ text }: { readonly text: string }) {
  const shown = text.length > MAX_UNSENT ? `${text.slice(0, MAX_UNSENT)} …` : text;
  return <q className="unsent">{visible(shown)}</q>;
}

/** Who or what has decided about a permission. */
function DecidedBy({ answeredBy, rule }: Decider) {
  const own = useOwnName();
  const ownerText = useOwnerText();
  if (rule !== undefined) {
    const whose = rule.ruleId === undefined ? 'by a rule of the server' : 'by a remembered answer';
    return (
      <span className="quiet">
        {' '}
        · {whose}: <code>{visible(rule.text)}</code>
      </span>
    );
  }
  if (answeredBy === undefined) return null;
  return <span className="quiet"> · by {answeredBy === own ? 'you' : ownerText(answeredBy)}</span>;
}

function Prompt({ text, attachments }: { readonly text: string } & Pick<Turn, 'attachments'>) {
  if (text === '' && attachments.length === 0) return null;
  return (
    <div className="prompt">
      <pre>{visible(text)}</pre>
      {attachments.length === 0 ? null : (
        <p className="quiet">With {attachments.map(({ name }) => visible(name)).join(', ')}</p>
      )}
    </div>
  );
}

interface TurnEndProps extends TurnActions, Pick<EntryProps, 'turn'> {
  readonly item: Extract<Item, { kind: 'end' }>;
}

function TurnEnd({ item, turn, onFork, onUndo, onContinue }: TurnEndProps) {
  const tokens = turn?.usage?.totalTokens;
  const facts = [
    item.status,
    turn?.endedAt == null ? undefined : spanText(turn.endedAt - turn.createdAt),
    tokens === undefined ? undefined : countOf(tokens, 'token'),
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
      {onContinue === undefined || turn?.code !== 'TURN_INTERRUPTED' ? null : (
        <p>
          <button type="button" title="Asks the agent to continue" onClick={onContinue}>
            Continue
          </button>
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
        {onUndo === undefined ? null : (
          <button
            type="button"
            className="plain"
            title="Restores the files that this turn has changed"
            onClick={() => onUndo(item.turnId)}
          >
            Undo this turn …
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

/** `12 reads`, `1 read, 2 searches`. */
function looksText(calls: readonly ToolCall[]): string {
  const count = (kind: string) => calls.filter(({ toolKind }) => toolKind === kind).length;
  const [reads, searches] = [count('read'), count('search')];
  const parts = [
    reads === 0 ? '' : countOf(reads, 'read'),
    searches === 0 ? '' : countOf(searches, 'search', 'searches'),
  ];
  return parts.filter(Boolean).join(', ');
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

/** What `c` copies of an item. */
export function copyText(item: Item | Group, turn: Turn | undefined): string {
  if (item.kind === 'start') return turn?.prompt ?? item.prompt;
  if (item.kind === 'note' && item.isUnsent) return turn?.prompt ?? item.text;
  if (item.kind === 'end') return turn?.output ?? item.message;
  if (item.kind === 'group') return item.calls.map(({ title }) => title).join('\n');
  if (item.kind === 'tool') return [item.call.title, outputText(item.call.output)].filter(Boolean).join('\n');
  return item.text;
}
