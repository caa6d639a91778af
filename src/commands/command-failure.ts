import { ConfigurationError, formatProblem } from '../platform/config/problem.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, platformErrors } from '../platform/errors/error-table.ts';
import { systemErrors } from '../system/errors.ts';

export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;
/** EX_CONFIG of sysexits.h. */
export const EXIT_CONFIGURATION = 78;

const errors = { ...platformErrors, ...systemErrors };
/** Only a change of the configuration fixes these. */
const CONFIGURATION_CODES: ReadonlySet<string> = new Set([
  'LISTEN_REFUSED',
  'DATA_DIRECTORY_UNUSABLE',
  'SECRET_KEY_INVALID',
  'SECRET_KEY_MISSING',
  'SECRET_KEY_MISMATCH',
]);

/** An error as a person at the terminal needs it: a line (all problems of a configuration, one each) and the exit code. */
export function describeFailure(error: unknown): { readonly exit: number; readonly text: string } {
  if (error instanceof ConfigurationError) {
    const lines = error.problems.map((problem) => `${formatProblem(problem)}\n`);
    return { exit: EXIT_CONFIGURATION, text: lines.join('') };
  }
  if (error instanceof AppError && Object.hasOwn(errors, error.code)) {
    const { code, message } = describeError(errors, error);
    const exit = CONFIGURATION_CODES.has(code) ? EXIT_CONFIGURATION : EXIT_FAILED;
    return { exit, text: `trestle: ${message}\n` };
  }
  const reason = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return { exit: EXIT_FAILED, text: `trestle: this should not have happened: ${reason.split('\n')[0]}\n` };
}
