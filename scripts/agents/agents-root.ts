import { homedir } from 'node:os';
import { join } from 'node:path';

/** Where the agents for tests are installed: outside the project, so that they are shared by its checkouts. */
export function agentsRoot(environment: Readonly<Record<string, string | undefined>>): string {
  return (
    environment.TRESTLE_AGENTS_FOLDER ?? join(environment.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'trestle-agents')
  );
}
