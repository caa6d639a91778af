import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { installPeer } from '../../test/kit/install-peer.ts';
import { type Scope, temporaryFolder } from '../../test/kit/running-program.ts';
import type { DriveTurn } from './agent-drivers.ts';
import { SCRIPTED_AGENT } from './scripted-bridge.ts';

const PACKAGE = 'acpx';
const VERSION = '0.19.1';

/** What is used of the peer's own interface for programs, `acpx/runtime`. */
interface AcpxModule {
  createFileSessionStore(options: { stateDir: string }): unknown;
  createAgentRegistry(options: { overrides: Record<string, readonly string[]> }): unknown;
  createAcpRuntime(options: {
    cwd: string;
    sessionStore: unknown;
    agentRegistry: unknown;
    permissionMode: 'deny-all';
  }): AcpxRuntime;
}

interface AcpxRuntime {
  ensureSession(session: { sessionKey: string; agent: string; mode: 'persistent'; cwd: string }): Promise<object>;
  startTurn(turn: { handle: object; text: string; mode: 'prompt'; requestId: string }): {
    readonly events: AsyncIterable<{ readonly type: string }>;
    readonly result: Promise<{ readonly status: string }>;
  };
  close(session: { handle: object; reason: string }): Promise<void>;
  shutdown(): Promise<void>;
}

/**
 * The same agent driven by acpx, which keeps sessions too: in this process, by its interface for programs. Its command line
 * starts a process for every prompt and would measure that. Undefined where acpx cannot be had.
 */
export async function driveThroughAcpx(scope: Scope): Promise<DriveTurn | undefined> {
  const installed = await installPeer(PACKAGE, VERSION);
  if (installed === undefined) return undefined;
  const acpx = (await import(pathToFileURL(join(installed, 'dist', 'runtime.js')).href)) as AcpxModule;
  const folder = await temporaryFolder(scope);
  const runtime = acpx.createAcpRuntime({
    cwd: folder,
    sessionStore: acpx.createFileSessionStore({ stateDir: join(folder, 'state') }),
    agentRegistry: acpx.createAgentRegistry({
      overrides: { scripted: [SCRIPTED_AGENT.command, ...SCRIPTED_AGENT.args] },
    }),
    permissionMode: 'deny-all',
  });
  scope.after(() => runtime.shutdown());
  const session = { sessionKey: 'bench', agent: 'scripted', mode: 'persistent', cwd: folder } as const;
  const handle = await runtime.ensureSession(session);
  scope.after(() => runtime.close({ handle, reason: 'measured' }));
  let turns = 0;
  return async (text) => {
    turns += 1;
    const turn = runtime.startTurn({ handle, text, mode: 'prompt', requestId: `turn-${turns}` });
    let [pieces, firstAt] = [0, 0];
    for await (const { type } of turn.events) {
      if (type !== 'text_delta') continue;
      if (pieces === 0) firstAt = performance.now();
      pieces += 1;
    }
    const { status } = await turn.result;
    if (status !== 'completed') throw new Error(`the turn through acpx ended as ${status}`);
    return { pieces, firstAt };
  };
}
