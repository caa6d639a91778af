import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ProgramOptions, Scope } from './running-program.ts';
import { START_ARGUMENTS } from './start-command.ts';
import { until } from './until.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export interface Terminal {
  /** Everything that the terminal has shown, with its control sequences. */
  screen(): string;
  /** Types text; `\r` is the Enter key, `\x03` Ctrl-C. */
  type(text: string): void;
  /** Changes the size of the window. */
  resize(columns: number): Promise<void>;
  /** Resolves when the text has been shown. */
  shows(text: string): Promise<void>;
  /** Resolves with the exit code of the program. */
  readonly ended: Promise<number | null>;
}

/** Runs a command of the program in a pseudo-terminal, which `script` of util-linux provides. */
export function startInTerminal(
  scope: Scope,
  args: readonly string[],
  options: ProgramOptions & { readonly columns?: number } = {},
): Terminal {
  const { environment = {}, workingDirectory = '/tmp', columns = 80 } = options;
  const { PATH = '', HOME = '/tmp' } = process.env;
  const program = START_ARGUMENTS.map((argument) => (argument.startsWith('--') ? argument : join(ROOT, argument)));
  const command = [process.execPath, ...program, ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
  /** Where the name of the device is written, by which others reach the terminal. */
  const nameFile = join(tmpdir(), `trestle-terminal-${randomUUID()}`);
  const sized = `stty cols ${columns} rows 24; tty > ${nameFile}; exec ${command}`;
  const child = spawn('script', ['--quiet', '--return', '--command', sized, '/dev/null'], {
    cwd: workingDirectory,
    env: { PATH, HOME, TERM: 'xterm', SHELL: '/bin/sh', ...environment },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  scope.after(async () => {
    child.kill('SIGKILL');
    await rm(nameFile, { force: true });
  });
  // What is typed when the program has ended goes nowhere.
  child.stdin.on('error', () => undefined);
  let screen = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    screen += text;
  });
  return {
    screen: () => screen,
    type: (text) => child.stdin.write(text),
    async resize(width) {
      const name = (await readFile(nameFile, 'utf8')).trim();
      await promisify(execFile)('stty', ['-F', name, 'cols', String(width)]);
    },
    async shows(text) {
      await until(`the terminal to show ${JSON.stringify(text)}`, () => screen.includes(text)).catch(
        async (error: Error) => {
          const processes = await processesBelow(child.pid);
          throw new Error(`${error.message}; it shows ${JSON.stringify(screen.slice(-2000))}; it runs ${processes}`);
        },
      );
    },
    ended: once(child, 'close').then(([code]) => code as number | null),
  };
}

/** The processes that a process has started, with their states: what a terminal that shows nothing is waiting for. */
async function processesBelow(pid: number | undefined): Promise<string> {
  const run = promisify(execFile);
  const listed = await run('ps', ['-eo', 'pid,ppid,stat,wchan:20,etimes,args']).catch(() => ({ stdout: '' }));
  const rows = listed.stdout.split('\n').map((row) => ({ row, words: row.trim().split(/\s+/) }));
  const below = new Set([String(pid)]);
  for (const { words } of rows) if (below.has(words[1] ?? '')) below.add(words[0] ?? '');
  const found = rows.filter(({ words }) => below.has(words[0] ?? ''));
  return found.length === 0 ? 'nothing' : found.map(({ row }) => row.trim().slice(0, 300)).join(' | ');
}
