import type { ProbeEffects } from '../bridge/agents/agent-probe.ts';
import { childEnvironment } from '../platform/child-process/child-environment.ts';
import { findExecutable } from '../platform/child-process/find-executable.ts';
import { runToEnd } from '../platform/child-process/run-to-end.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const VERSION_TIMEOUT_MS = 10_000;
const VERSION_OUTPUT_BYTES = 4096;

/** Looks for agents on this machine: in the folders of PATH, with the few variables that children get. */
export function createProbeEffects(
  environment: Environment,
  homeDirectory: string,
  journalFolder: string,
): ProbeEffects {
  return {
    findProgram: (command) => findExecutable(command, environment.PATH ?? ''),
    run: (command, args, extra) =>
      runToEnd({
        command,
        args,
        cwd: homeDirectory,
        env: childEnvironment(environment, extra),
        journalFolder,
        timeoutMs: VERSION_TIMEOUT_MS,
        maxOutputBytes: VERSION_OUTPUT_BYTES,
      }),
  };
}
