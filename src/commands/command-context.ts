import { homedir } from 'node:os';

/** What a command may touch of the world outside. The program's real ones come from the system; tests bring their own. */
export interface CommandContext {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly workingDirectory: string;
  readonly homeDirectory: string;
  /** Writes as given: a line brings its own line end. */
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Whether colours may be used: a terminal, and NO_COLOR is not set. */
  readonly color: boolean;
}

/** The real world: this process, its terminal and its user. */
export function createCommandContext(environment: CommandContext['environment']): CommandContext {
  return {
    environment,
    workingDirectory: process.cwd(),
    homeDirectory: homedir(),
    stdout: (text) => process.stdout.write(text),
    stderr: (text) => process.stderr.write(text),
    color: process.stdout.isTTY === true && (environment.NO_COLOR ?? '') === '' && environment.TERM !== 'dumb',
  };
}
