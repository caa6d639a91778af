import type { Interface } from 'node:readline';
import { PassThrough, Writable } from 'node:stream';
import type { Command } from 'commander';
import type { TrestleClient } from '../client/trestle-client.ts';
import type { Keys } from './answer-permissions.ts';
import { type CommandContext, EXIT_INTERRUPTED, EXIT_USAGE, fail } from './command-context.ts';
import { type ConnectedServer, withServer } from './load-settings.ts';
import {
  checkPermissionOptions,
  newSessionId,
  readFiles,
  readMcpFiles,
  showTurn,
  type TurnCommandOptions,
  taskFolder,
  turnDefaults,
  uploadFiles,
  withTurnOptions,
} from './run.ts';
import { oneLine, printable } from './turn-display.ts';

const PROMPT = '> ';
const MAX_SHOWN_LINE = 2000;
/** Errors after which the conversation cannot continue. */
const FATAL: ReadonlySet<string> = new Set(['UNAUTHORIZED', 'CONNECTION_LOST', 'CLIENT_CLOSED']);

/** `trestle chat`. */
export function registerChat(program: Command, context: CommandContext): void {
  withTurnOptions(
    program
      .command('chat')
      .summary('talk with an agent on the terminal')
      .description(
        'Starts a conversation with an agent in this folder. Each line is a turn; a line that is typed while a turn runs is the next one. Ctrl-C cancels the turn, a second Ctrl-C ends the command; Ctrl-D, or Ctrl-C while nothing runs, ends the conversation, which --session continues later.',
      ),
  )
    .addHelpText('after', '\nExamples:\n  trestle chat --ask\n  trestle chat --agent opencode --session notes')
    .action(async (_given: unknown, command: Command) => {
      const options = command.optsWithGlobals<TurnCommandOptions>();
      checkPermissionOptions(options, context);
      if (!process.stdin.isTTY) {
        fail(context, 'chat needs a terminal; use trestle run "..." in scripts', EXIT_USAGE);
      }
      const files = await readFiles(options.attach, context);
      const mcpServers = await readMcpFiles(options.mcp, context);
      await withServer({ ...options }, context, async (trestle, server) => {
        const attachments = await uploadFiles(trestle, files);
        await talk({ trestle, server, options, context, attachments, mcpServers });
      });
    });
}

interface Conversation {
  readonly trestle: TrestleClient;
  readonly server: ConnectedServer;
  readonly options: TurnCommandOptions;
  readonly context: CommandContext;
  /** Are sent with the first line. */
  readonly attachments: Awaited<ReturnType<typeof uploadFiles>>;
  readonly mcpServers: Awaited<ReturnType<typeof readMcpFiles>>;
}

async function talk({ trestle, server, options, context, attachments, mcpServers }: Conversation): Promise<void> {
  const { TrestleError } = await import('../client/trestle-client.ts');
  const { whileAnswering } = await import('./answer-permissions.ts');
  const sessionId = options.session ?? newSessionId();
  const folder = taskFolder(options, context, server);
  const session = trestle.session(sessionId, turnDefaults(options, folder));
  let interrupts = 0;
  const terminal = await openTerminal(() => {
    if (!terminal.isBusy()) return terminal.close();
    interrupts += 1;
    if (interrupts > 1) process.exit(EXIT_INTERRUPTED);
    session.cancel().catch(() => undefined);
  });
  const place = { trestle, session, context, isInterrupted: () => interrupts > 0 };
  const answers = { trestle, session, context, keys: terminal.keys, isAsked: options.ask === true };
  let named = options.session;
  let files = attachments;
  try {
    for await (const prompt of terminal.lines()) {
      interrupts = 0;
      const continued = {
        ...(named !== undefined && { session: named }),
        ...(options.ask === true && { ask: options.ask }),
      };
      try {
        await whileAnswering(answers, () =>
          showTurn(place, { prompt, attachments: files, folder, mcpServers }, continued),
        );
        named = sessionId;
        files = [];
      } catch (error) {
        if (!(error instanceof TrestleError) || FATAL.has(error.code)) throw error;
        context.stderr(`trestle: ${printable(error.message)} (${error.code})\n`);
      }
    }
  } finally {
    terminal.close();
  }
  context.stderr(`\ncontinue with: trestle chat --session ${sessionId}\n`);
}

interface ChatTerminal {
  /** Lines that are typed, without empty ones. */
  lines(): AsyncIterable<string>;
  readonly keys: Keys;
  /** Whether the reader of the lines works on one. */
  isBusy(): boolean;
  close(): void;
}

/**
 * A line editor that shares the terminal with the turn: it draws nothing while a turn writes, and keys are answers while the
 * agent asks.
 */
async function openTerminal(onInterrupt: () => void): Promise<ChatTerminal> {
  const { createInterface } = await import('node:readline');
  const { terminalKeys } = await import('./answer-permissions.ts');
  const { stdin, stdout } = process;
  let isBusy = false;
  let isOpen = true;
  let takeKeys: ((typed: string) => void) | undefined;
  const typed = new PassThrough();
  const drawn = new Writable({
    write(chunk: Buffer, _encoding, done) {
      if (!isBusy) stdout.write(chunk);
      done();
    },
  });
  Object.defineProperty(drawn, 'columns', { get: () => stdout.columns });
  const editor = createInterface({ input: typed, output: drawn, terminal: true, prompt: PROMPT });
  const onResize = () => void drawn.emit('resize');
  const onData = (data: Buffer) => {
    if (takeKeys === undefined) typed.write(data);
    else takeKeys(data.toString());
  };
  /** Whether each line that waits was shown while it was typed. */
  const wereShown: boolean[] = [];
  editor.on('line', () => wereShown.push(!isBusy));
  editor.on('SIGINT', onInterrupt);
  editor.on('close', () => {
    isOpen = false;
    stdin.off('data', onData).pause();
    stdin.setRawMode(false);
    stdout.off('resize', onResize);
  });
  // After Ctrl-D during a turn the terminal sends a signal again.
  process.on('SIGINT', onInterrupt);
  stdin.setRawMode(true);
  stdin.on('data', onData);
  stdout.on('resize', onResize);

  async function* lines(): AsyncGenerator<string> {
    editor.prompt();
    for await (const line of editor) {
      const wasShown = wereShown.shift();
      const text = line.trim();
      let unfinished = '';
      if (text !== '') {
        if (wasShown !== true) stdout.write(`${PROMPT}${oneLine(text, MAX_SHOWN_LINE)}\n`);
        isBusy = true;
        yield text;
        unfinished = isOpen ? takeUnfinished(editor) : '';
        isBusy = false;
      }
      // The lines that were typed before Ctrl-D are still answered.
      if (!isOpen) continue;
      if (wereShown.length === 0) editor.prompt();
      if (unfinished !== '') editor.write(unfinished);
    }
  }

  return {
    lines,
    keys: {
      take(listener) {
        if (!isOpen) return terminalKeys.take(listener);
        takeKeys = listener;
        return () => {
          takeKeys = undefined;
        };
      },
      interrupt: onInterrupt,
    },
    isBusy: () => isBusy,
    close() {
      process.off('SIGINT', onInterrupt);
      editor.close();
    },
  };
}

/** Removes what was typed of the next line while nothing was drawn: the editor would draw it over the answer. */
function takeUnfinished(editor: Interface): string {
  const { line } = editor;
  for (const name of ['u', 'k']) editor.write(null, { ctrl: true, name });
  return line;
}
