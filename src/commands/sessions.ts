import { once } from 'node:events';
import type { Command } from 'commander';
import type { TrestleClient } from '../client/trestle-client.ts';
import {
  type CommandContext,
  CommandExit,
  EXIT_INTERRUPTED,
  EXIT_USAGE,
  fail,
  type Options,
  print,
} from './command-context.ts';
import { type Needs, withServer, withTeamOption } from './load-settings.ts';
import { coloredDiff, createTurnDisplay, oneLine, printable } from './turn-display.ts';

type Work = (trestle: TrestleClient, command: Command, options: Options) => Promise<void>;
type SessionSummary = Awaited<ReturnType<TrestleClient['sessions']['list']>>['sessions'][number];

const SESSION = 'the id of the session';
const STATES = ['needs_you', 'running', 'waiting', 'idle', 'archived'];
const MAX_TITLE = 60;

/** Returns the action of a command that calls a server: it gets the arguments, a client of the server, the command and its options. */
export function commandAction(context: CommandContext): Action {
  return (run, needs = 'data') =>
    (...given) => {
      const command = given.at(-1) as Command;
      const options = command.optsWithGlobals<Options>();
      const words = given.filter((word): word is string => typeof word === 'string');
      return withServer(options, context, (trestle) => run(...words)(trestle, command, options), needs);
    };
}

type Action = (run: (...words: string[]) => Work, needs?: Needs) => (...given: unknown[]) => Promise<void>;

/** `trestle sessions`. */
export function registerSessions(program: Command, context: CommandContext): void {
  const action = commandAction(context);
  const sessions = withTeamOption(program.command('sessions'))
    .summary('list, show, follow, steer, fork, undo, merge, export, archive and close sessions')
    .description('Lists the sessions of the running server, the newest first.')
    .option('--state <state>', STATES.join(', '))
    .option('--search <text>', 'in title and session id')
    .option('--limit <count>', 'how many to list at most (default: 20)')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle sessions --state running\n  trestle sessions follow my-session\n  trestle sessions steer my-session "Use tabs, please"\n  trestle sessions changes my-session --diff\n  trestle sessions undo my-session\n  trestle sessions export my-session > session.md',
    );
  const list = action(() => async (trestle, command, { state, search, limit }) => {
    const page = await trestle.sessions.list({
      limit: wholeNumber(limit ?? 20, '--limit', context),
      ...(state !== undefined && { state: oneOf(state, STATES, '--state', context) as SessionSummary['state'] }),
      ...(typeof search === 'string' && { search }),
    });
    print(command, context, page, sessionTable(page.sessions, Date.now()));
  });
  sessions.action(list);
  sessions.command('list').description('Does the same as trestle sessions, with the same options.').action(list);
  sessions
    .command('show')
    .description('Shows a session with its last turns.')
    .argument('<session>', SESSION)
    .addHelpText('after', '\nExamples:\n  trestle sessions show my-session\n  trestle sessions show my-session --json')
    .action(
      action((sessionId = '') => async (trestle, command) => {
        const { session } = await trestle.sessions.get(sessionId);
        const { turns } = await trestle.sessions.turns(sessionId, { limit: 20 });
        print(command, context, { session, turns }, sessionText(session, turns));
      }),
    );
  sessions
    .command('follow')
    .description('Shows the updates of a session as they happen, until Ctrl-C.')
    .argument('<session>', SESSION)
    .option('--ask', 'show the questions of the agent, and answer them with a key')
    .addHelpText('after', '\nExamples:\n  trestle sessions follow my-session --ask')
    .action(
      action((sessionId = '') => async (trestle, _command, { json, ask }) => {
        const { session } = await trestle.sessions.get(sessionId);
        const display = createTurnDisplay(context);
        const stop = new AbortController();
        process.once('SIGINT', () => stop.abort());
        const follow = trestle.session(sessionId).follow({ afterSeq: session.lastSeq, signal: stop.signal });
        const { whileAnswering, terminalKeys } = await import('./answer-permissions.ts');
        const { owner } = session;
        const answers = { trestle, session, owner, context, keys: terminalKeys, isAsked: ask === true };
        try {
          await whileAnswering(answers, async () => {
            for await (const update of follow) {
              if (json === true) context.stdout(`${JSON.stringify(update)}\n`);
              else display.show(update);
            }
          });
        } catch (error) {
          if (!stop.signal.aborted) throw error;
          throw new CommandExit(EXIT_INTERRUPTED);
        }
      }),
    );
  sessions
    .command('steer')
    .description(
      'Sends a message to the running turn of a session, if the agent supports it. Otherwise use trestle run --session, which waits for the turn to end.',
    )
    .argument('<session>', SESSION)
    .argument('<message>', 'what to tell the agent')
    .addHelpText('after', '\nExamples:\n  trestle sessions steer my-session "Use tabs, please"')
    .action(
      action((sessionId = '', text = '') => async (trestle, command) => {
        const steered = await trestle.sessions.steer(sessionId, text);
        print(command, context, steered, `Sent to the turn ${steered.turnId}.\n`);
      }),
    );
  sessions
    .command('fork')
    .description('Copies a session with its conversation, and prints the id of the copy; continue it with --session.')
    .argument('<session>', SESSION)
    .option('--turn <turn>', 'the last turn that the copy has (default: all turns)')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle sessions fork my-session\n  trestle sessions fork my-session --turn turn-01m7rnfnkwk2m3p7s0afscqzsj',
    )
    .action(
      action((sessionId = '') => async (trestle, command, { turn }) => {
        const copy = await trestle.sessions.fork(sessionId, typeof turn === 'string' ? { turnId: turn } : {});
        print(command, context, copy, `${copy.sessionId}\n`);
      }),
    );
  sessions
    .command('changes')
    .description('Lists the files that the turns of a session have changed; --diff shows the changes.')
    .argument('<session>', SESSION)
    .option('--turn <turn>', 'since the beginning of this turn (default: of the session)')
    .option('--diff', 'show the changes of each file')
    .addHelpText('after', '\nExamples:\n  trestle sessions changes my-session --diff')
    .action(
      action((sessionId = '') => async (trestle, command, { turn, diff }) => {
        const since = typeof turn === 'string' ? { turnId: turn } : {};
        const { files, base } = await trestle.sessions.changes(sessionId, since);
        const diffs: Awaited<ReturnType<TrestleClient['sessions']['diff']>>[] = [];
        if (diff === true)
          for (const { path } of files) diffs.push(await trestle.sessions.diff(sessionId, path, since));
        const texts = diffs.map(({ path, unified, truncated }) => {
          const shown = printable(unified === '' ? `(${path}: no lines to show)\n` : unified);
          const text = context.color && process.stdout.isTTY ? coloredDiff(shown) : shown;
          return `\n${text}${truncated ? '(the rest is left out)\n' : ''}`;
        });
        const value = { files, base, ...(diff === true && { diffs }) };
        print(command, context, value, `${changesText(files)}${texts.join('')}`);
      }),
    );
  sessions
    .command('undo')
    .description('Restores the files that a turn has changed to their state before the turn.')
    .argument('<session>', SESSION)
    .argument('[turn]', 'the id of the turn (default: the last one)')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle sessions undo my-session\n  trestle sessions undo my-session turn-01m7rnfnkwk2m3p7s0afscqzsj',
    )
    .action(
      action((sessionId = '', given = '') => async (trestle, command) => {
        const turns = given === '' ? (await trestle.sessions.turns(sessionId, { limit: 2 })).turns : [];
        const turnId = given || (turns[0]?.turnId ?? '');
        const undone = await trestle.sessions.undo(sessionId, turnId).catch(nameFiles('changed since', context));
        const lines = undone.files.map(({ path, action }) => pathLines(action, [path]));
        print(command, context, undone, lines.join('') || nothingUndone(sessionId, turns.length > 1));
      }),
    );
  sessions
    .command('merge')
    .description('Merges the worktree of a session into the branch that is checked out in its repository.')
    .argument('<session>', SESSION)
    .option('--step <number>', 'of a parallel run or a race: the step to merge (default: the winner of the race)')
    .addHelpText('after', '\nExamples:\n  trestle sessions merge my-session')
    .action(
      action((sessionId = '') => async (trestle, command, { step }) => {
        if (step !== undefined && !/^\d{1,3}$/.test(String(step))) fail(context, '--step takes a number', EXIT_USAGE);
        const chosen = step === undefined ? {} : { step: Number(step) };
        const merged = await trestle.sessions.merge(sessionId, chosen).catch(nameFiles('in the way', context));
        print(command, context, merged, pathLines('merged', merged.files) || 'There was nothing to merge.\n');
      }),
    );
  sessions
    .command('export')
    .description('Prints a whole session as Markdown, or with --json as JSON.')
    .argument('<session>', SESSION)
    .addHelpText('after', '\nExamples:\n  trestle sessions export my-session > session.md')
    .action(
      action((sessionId = '') => async (trestle, _command, { json }) => {
        const form = json === true ? 'json' : 'markdown';
        for await (const part of trestle.sessions.export(sessionId, { form })) {
          context.stdout(process.stdout.isTTY ? printable(part) : part);
          // The next page is read when this one is written.
          if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
        }
      }),
    );
  for (const [name, archived] of [
    ['archive', true],
    ['unarchive', false],
  ] as const) {
    sessions
      .command(name)
      .description(
        archived
          ? 'Hides a session from lists without deleting anything.'
          : 'Shows an archived session in lists again.',
      )
      .argument('<session>', SESSION)
      .action(
        action((sessionId = '') => async (trestle, command) => {
          await trestle.sessions.update(sessionId, { archived });
          const text = `${archived ? 'Archived' : 'Unarchived'} ${sessionId}.\n`;
          print(command, context, { sessionId, archived }, text);
        }),
      );
  }
  for (const [name, done, description] of [
    ['cancel', 'Cancelled', 'Cancels the running turn of a session and all waiting turns.'],
    ['close', 'Closed', 'Ends a session and deletes all its data.'],
  ] as const) {
    sessions
      .command(name)
      .description(description)
      .argument('<session>', SESSION)
      .action(
        action((sessionId = '') => async (trestle, command) => {
          await trestle.sessions.get(sessionId);
          await trestle.session(sessionId)[name]();
          print(command, context, { sessionId, [done.toLowerCase()]: true }, `${done} ${sessionId}.\n`);
        }),
      );
  }
}

export function wholeNumber(given: unknown, flag: string, context: CommandContext): number {
  if (/^[1-9]\d{0,2}$/.test(String(given))) return Number(given);
  return fail(context, `${flag} takes a number from 1 to 999`, EXIT_USAGE);
}

export function oneOf(given: unknown, values: readonly string[], flag: string, context: CommandContext): string {
  const found = values.find((value) => value === given);
  if (found !== undefined) return found;
  return fail(context, `${flag} takes one of ${values.join(', ')}`, EXIT_USAGE);
}

function sessionTable(sessions: readonly SessionSummary[], now: number): string {
  if (sessions.length === 0) return 'There are no sessions; start one with: trestle run "..."\n';
  return table(
    sessions.map(({ state, updatedAt, sessionId, providerId, turns, costUsd, title, doing }) => [
      state,
      when(updatedAt, now),
      sessionId,
      providerId,
      `${turns} ${turns === 1 ? 'turn' : 'turns'}`,
      costUsd === null ? '' : `${costUsd.toFixed(2)} USD`,
      oneLine(state === 'running' && doing !== '' ? `${title}: ${doing}` : title, MAX_TITLE),
    ]),
  );
}

/** The files of a session may all be of earlier turns, which are undone only by their ids. */
function nothingUndone(sessionId: string, hasEarlierTurns: boolean): string {
  if (!hasEarlierTurns) return 'There was nothing to undo.\n';
  const id = printable(sessionId);
  return `The last turn changed no files: there was nothing to undo. To undo an earlier turn, name it: trestle sessions undo ${id} <turn>\n(trestle sessions show ${id} lists them)\n`;
}

function sessionText(
  { sessionId, title, state, providerId, model, folder, usage, costUsd }: SessionSummary,
  turns: Awaited<ReturnType<TrestleClient['sessions']['turns']>>['turns'],
): string {
  const facts = [
    ['session', sessionId],
    ['title', oneLine(title, 200)],
    ['state', state],
    ['agent', model === '' ? providerId : `${providerId} (${model})`],
    ['folder', folder === '' ? 'private' : folder],
    ['tokens', `${usage.totalTokens}${costUsd === null ? '' : `, ${costUsd.toFixed(4)} USD`}`],
  ];
  const lines = [...turns]
    .reverse()
    .flatMap(({ turnId, prompt, status, output, error }) => [
      '',
      turnId,
      `> ${oneLine(prompt, 500)}`,
      ...(output === '' ? [] : [oneLine(output, 1000)]),
      ...(status === 'completed' ? [] : [`[${status}${error === '' ? '' : `: ${oneLine(error, 500)}`}]`]),
    ]);
  return `${table(facts)}${lines.map((line) => `${line}\n`).join('')}`;
}

const MARKS = { added: 'A', modified: 'M', deleted: 'D' } as const;

function changesText(files: Awaited<ReturnType<TrestleClient['sessions']['changes']>>['files']): string {
  if (files.length === 0) return 'No files were changed.\n';
  return table(
    files.map(({ path, status, added, removed, binary }) => [
      MARKS[status],
      oneLine(path, 500),
      binary ? 'binary' : `+${added} -${removed}`,
    ]),
  );
}

/** Aligns the columns of rows, to the right from `firstNumber` on. Removes control characters, because callers choose ids. */
export function table(given: readonly (readonly string[])[], firstNumber = Number.POSITIVE_INFINITY): string {
  const rows = given.map((row) => row.map(printable));
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell[column < firstNumber ? 'padEnd' : 'padStart'](widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

/** A time in a list: `5 min ago`, `in 6 h`. */
export function when(time: number | string, now: number): string {
  const seconds = Math.round((new Date(time).getTime() - now) / 1000);
  return seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

function span(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.round(seconds / 3600);
  return hours < 24 ? `${hours} h` : `${Math.round(seconds / 86_400)} d`;
}

/** A time outside of lists: `2030-01-31 08:00 UTC`. */
export function moment(time: number | string): string {
  return new Date(time).toISOString().slice(0, 16).replace('T', ' ').concat(' UTC');
}

/** Prints the files that prevented a call, from the details of its error, and throws the error again. */
function nameFiles(label: string, context: CommandContext): (error: unknown) => never {
  return (error) => {
    const { files } = (error as { data?: { files?: unknown } }).data ?? {};
    if (Array.isArray(files)) context.stderr(pathLines(`${label}:`, files.map(String)));
    throw error;
  };
}

function pathLines(label: string, paths: readonly string[]): string {
  return paths.map((path) => `${label} ${printable(path)}\n`).join('');
}
