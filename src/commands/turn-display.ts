import { styleText } from 'node:util';
import type { SessionUpdate, StructuredEvent, Turn } from '../client/trestle-client.ts';
import type { CommandContext } from './command-context.ts';

type TurnResult = Awaited<Turn['result']>;
type ToolCall = Extract<StructuredEvent, { kind: 'tool_call' }>;
type Change = NonNullable<ToolCall['changes']>[number];

/** Shows one turn as it happens. */
export interface TurnDisplay {
  show(update: SessionUpdate): void;
  end(result: TurnResult): void;
}

const MAX_TITLE = 200;
/** Lines of a change that are shown while a turn runs. */
const MAX_FOLDED = 8;
const MAX_REASON = 500;

/** Writes the agent's text to standard output and its tool calls, one line each, to standard error. */
export function createTurnDisplay(context: Pick<CommandContext, 'stdout' | 'stderr' | 'color'>): TurnDisplay {
  const { stdout, stderr, color } = context;
  const dim = (text: string) => (color ? styleText('dim', text) : text);
  const red = (text: string) => (color ? styleText('red', text) : text);
  /** The calls that have their line. */
  const shown = new Set<string>();
  /** The calls whose changes were shown. */
  const folded = new Set<string>();
  /** What the last character was written for: a line of another kind begins on a new line. */
  let open: 'text' | 'thinking' | undefined;

  function endLine(): void {
    if (open === 'text') stdout('\n');
    if (open === 'thinking') stderr('\n');
    open = undefined;
  }

  function showText(text: string): void {
    if (open === 'thinking') endLine();
    stdout(printable(text));
    open = text.endsWith('\n') ? undefined : 'text';
  }

  function showThinking(text: string): void {
    if (!color) return;
    if (open === 'text') endLine();
    stderr(dim(printable(text)));
    open = text.endsWith('\n') ? undefined : 'thinking';
  }

  function showCall(call: ToolCall): void {
    const { toolCallId, title, status } = call;
    const name = oneLine(title, MAX_TITLE);
    if (!shown.has(toolCallId)) {
      shown.add(toolCallId);
      endLine();
      stderr(`${dim('>')} ${name}\n`);
    }
    if (status === 'completed' && !folded.has(toolCallId)) {
      folded.add(toolCallId);
      for (const change of call.changes ?? []) showChange(change);
    }
    if (status === 'failed') {
      endLine();
      stderr(`${red('x')} ${name}${reasonOf(call)}\n`);
    }
  }

  /** A line for each file and, on a terminal, the first changed lines. */
  function showChange(change: Change): void {
    endLine();
    stderr(`  ${oneLine(change.path, MAX_TITLE)} +${change.added} -${change.removed}\n`);
    if (!color) return;
    const lines = changedLines(change);
    for (const line of lines.slice(0, MAX_FOLDED)) stderr(`    ${colored(oneLine(line, MAX_TITLE))}\n`);
    if (lines.length > MAX_FOLDED) stderr(`    ${dim(`... ${lines.length - MAX_FOLDED} more lines`)}\n`);
  }

  return {
    show(update) {
      const { delta, structuredEvent: event } = update;
      if (delta !== undefined) showText(delta);
      else if (event?.kind === 'thinking') showThinking(event.text);
      else if (event?.kind === 'tool_call') showCall(event);
      else if (event?.kind === 'status' && event.status === 'permission_denied') {
        endLine();
        stderr(`${red('denied')} ${oneLine(event.text.replace(/^Denied: /, ''), MAX_TITLE)}\n`);
      }
    },
    end({ status, error, code, artifacts, usage }) {
      endLine();
      for (const { relativePath, sizeBytes } of artifacts)
        stderr(`${dim('file')} ${oneLine(relativePath, MAX_TITLE)} (${sizeBytes} bytes)\n`);
      if (status === 'cancelled') stderr('cancelled\n');
      else if (status !== 'completed')
        stderr(`${red('failed')} ${printable(error ?? status)}${code === undefined ? '' : ` (${code})`}\n`);
      const { totalTokens, costUsd } = usage ?? {};
      const spent = [
        ...(totalTokens === undefined ? [] : [`${totalTokens} tokens`]),
        ...(costUsd === undefined ? [] : [`${costUsd.toFixed(4)} USD`]),
      ];
      if (color && spent.length > 0) stderr(`${dim(spent.join(', '))}\n`);
    },
  };
}

/** A unified diff with its colours. */
export function coloredDiff(unified: string): string {
  return unified.split('\n').map(colored).join('\n');
}

function colored(line: string): string {
  if (line.startsWith('+++') || line.startsWith('---')) return styleText('bold', line);
  if (line.startsWith('+')) return styleText('green', line);
  if (line.startsWith('-')) return styleText('red', line);
  return line.startsWith('@@') ? styleText('cyan', line) : line;
}

/** The lines that a change removes and adds. */
function changedLines({ unified, oldText = '', newText = '', added, removed }: Change): readonly string[] {
  if (unified !== undefined) return unified.split('\n').filter((line) => /^[+-](?![+-]{2})/.test(line));
  const [before, after] = [oldText.split('\n'), newText.split('\n')];
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  return [
    ...before.slice(start, start + removed).map((line) => `-${line}`),
    ...after.slice(start, start + added).map((line) => `+${line}`),
  ];
}

/** Removes control characters: what an agent or a caller writes must not move the cursor or change the terminal. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is removed
  return text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
}

/** Text as one line without control characters, shortened to a limit. */
export function oneLine(text: string, limit: number): string {
  const line = printable(text).replaceAll(/\s+/g, ' ').trim();
  // Half of a character that takes two places is not kept.
  return line.length <= limit ? line : `${line.slice(0, limit - 1).replace(/[\uD800-\uDBFF]$/, '')}…`;
}

/** The first line of what a failed call says. */
function reasonOf({ output }: ToolCall): string {
  const text = typeof output === 'string' ? output : output === undefined ? '' : JSON.stringify(output);
  return text === '' ? '' : `: ${oneLine(text.split('\n', 1)[0] ?? '', MAX_REASON)}`;
}
