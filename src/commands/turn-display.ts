import { styleText } from 'node:util';
import type { SessionUpdate, StructuredEvent, TrestleClient, Turn } from '../client/trestle-client.ts';
import { type Clock, pause } from '../platform/clock/clock.ts';
import type { CommandContext } from './command-context.ts';

type TurnResult = Awaited<Turn['result']>;
type ToolCall = Extract<StructuredEvent, { kind: 'tool_call' }>;
type Change = NonNullable<ToolCall['changes']>[number];

/** Shows one turn as it happens. */
export interface TurnDisplay {
  show(update: SessionUpdate): void;
  /** A line that is not the agent's. */
  say(line: string): void;
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
    say(line) {
      endLine();
      stderr(`${dim(line)}\n`);
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

type SessionView = Awaited<ReturnType<TrestleClient['sessions']['get']>>;

interface WaitNoticeOptions {
  readonly trestle: Pick<TrestleClient, 'sessions'>;
  readonly sessionId: string;
  /** Whether questions of the agent are shown elsewhere. */
  readonly isAsked: boolean;
  readonly clock: Pick<Clock, 'after'>;
  say(line: string): void;
}

const SILENT_MS = 400;
const CONFIRM_MS = 300;
const LOOK_AGAIN_MS = 700;
/** The pause between reads grows, because a turn can be silent for an hour, and each read is a request and a line in the server's log. */
const MAX_LOOK_AGAIN_MS = 10_000;
const LOOK_TIMEOUT_MS = 10_000;

/** Says what a turn waits for, once for each reason: a question, another turn of its session, or a limit. */
export function createWaitNotices(options: WaitNoticeOptions): { seen(update: SessionUpdate): void; stop(): void } {
  const stopped = new AbortController();
  const { signal } = stopped;
  let updates = 0;
  let hasBegun = false;

  /** Undefined: the server did not answer, and the turn itself notices that. */
  async function look(): Promise<string | undefined> {
    const { trestle, sessionId } = options;
    try {
      return waitReason(
        await trestle.sessions.get(sessionId, {}, { signal, timeoutMs: LOOK_TIMEOUT_MS }),
        hasBegun,
        options,
      );
    } catch (error) {
      const isUnknown = (error as { readonly code?: unknown }).code === 'SESSION_NOT_FOUND';
      return isUnknown && !hasBegun ? NOT_BEGUN : undefined;
    }
  }

  async function watch(): Promise<void> {
    let said: string | undefined;
    let found: string | undefined;
    let pauseMs = SILENT_MS;
    let againMs = LOOK_AGAIN_MS;
    while (!signal.aborted) {
      const before = updates;
      await pause(options.clock, pauseMs, signal);
      const reason = signal.aborted || updates !== before ? undefined : await look();
      const isSilent = updates === before && !signal.aborted;
      // Print a reason only if two reads in a row agree, because a state that has just changed may change again.
      if (isSilent && reason !== undefined && reason === found && reason !== said) {
        said = reason;
        options.say(reason);
      }
      const isSame = isSilent && reason === found;
      pauseMs = isSame ? againMs : isSilent ? CONFIRM_MS : SILENT_MS;
      againMs = isSame ? Math.min(againMs * 2, MAX_LOOK_AGAIN_MS) : LOOK_AGAIN_MS;
      found = isSilent ? reason : undefined;
    }
  }

  void watch();
  return {
    seen({ event }) {
      updates += 1;
      hasBegun ||= event !== 'queued';
    },
    stop: () => stopped.abort(),
  };
}

const NO_PLACE = 'the server is at its limit of running turns (trestle sessions lists them)';
const NOT_BEGUN = `waiting: the turn is being prepared, or ${NO_PLACE}`;

function waitReason(
  { session: { state }, permissions: [question] }: SessionView,
  hasBegun: boolean,
  { sessionId, isAsked }: WaitNoticeOptions,
): string | undefined {
  const asks =
    question === undefined || isAsked
      ? undefined
      : `${question.form === null ? 'permission' : 'an answer'}: ${oneLine(question.title, MAX_TITLE)}\n  answer with: trestle sessions follow ${printable(sessionId)} --ask`;
  if (hasBegun) return asks === undefined ? undefined : `waiting for ${asks}`;
  if (state === 'waiting') return `waiting: ${NO_PLACE}`;
  if (state !== 'running' && state !== 'needs_you') return NOT_BEGUN;
  return `waiting for the turn that runs in this session${asks === undefined ? '' : `, which waits for ${asks}`}`;
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
