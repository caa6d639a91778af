import type { Readable } from 'node:stream';
import type { CommandContext } from './command-context.ts';
import { CommandExit } from './command-exit.ts';
import { EXIT_USAGE } from './command-failure.ts';

const LONGEST = 4096;

/** The first line of standard input: a password on the command line would stand in the history and in the process list. */
export async function readPassword(context: CommandContext, input: Readable = process.stdin): Promise<string> {
  let text = '';
  for await (const chunk of input.setEncoding('utf8')) {
    text += chunk;
    if (text.length > LONGEST) break;
  }
  const [line = ''] = text.split(/\r?\n/, 1);
  if (line !== '') return line;
  context.stderr('Give the password on standard input, as one line.\n');
  throw new CommandExit(EXIT_USAGE);
}
