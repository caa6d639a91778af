import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { Readable, Writable } from 'node:stream';
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk';
import type { RunningProgram, Scope } from '../../test/kit/running-program.ts';
import { openBridgeClient } from './bridge-client.ts';
import { SCRIPTED_AGENT, startScriptedBridge } from './scripted-bridge.ts';

/** What was seen of a turn: how many pieces of text came, and when the first of them did (as `performance.now()`). */
export interface SeenTurn {
  readonly pieces: number;
  readonly firstAt: number;
}

/** Runs one turn of the scripted agent. */
export type DriveTurn = (prompt: string) => Promise<SeenTurn>;

/** The agent driven through the protocol's SDK, with nothing between. */
export async function driveDirectly(scope: Scope): Promise<DriveTurn> {
  const child = spawn(SCRIPTED_AGENT.command, SCRIPTED_AGENT.args, { stdio: ['pipe', 'pipe', 'ignore'] });
  scope.after(() => child.kill('SIGKILL'));
  let seen = { pieces: 0, firstAt: 0 };
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>);
  const { agent } = client({ name: 'bench' })
    .onNotification(methods.client.session.update, () => {
      if (seen.pieces === 0) seen.firstAt = performance.now();
      seen.pieces += 1;
    })
    .connect(stream);
  await agent.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await agent.request(methods.agent.session.new, { cwd: tmpdir(), mcpServers: [] });
  return async (text) => {
    seen = { pieces: 0, firstAt: 0 };
    await agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: 'text', text }] });
    return seen;
  };
}

export interface DrivenBridge {
  readonly drive: DriveTurn;
  /** Commits of its database since it started. */
  commits(): Promise<number>;
}

/** The same agent behind the bridge: one session on one WebSocket, with the event log on as always. */
export async function driveThroughBridge(
  scope: Scope,
  starting: RunningProgram | Promise<RunningProgram> = startScriptedBridge(scope),
): Promise<DrivenBridge> {
  const program = await starting;
  const bridge = await openBridgeClient(program.url);
  scope.after(() => bridge.close());
  let seen = { pieces: 0, firstAt: 0 };
  bridge.onUpdate(({ type }) => {
    if (type !== 'delta') return;
    if (seen.pieces === 0) seen.firstAt = performance.now();
    seen.pieces += 1;
  });
  const session = { sessionId: 'bench' };
  const begun = await bridge.call('session.start', { ...session, taskPrompt: 'echo ready' });
  if (begun.status !== 'completed') throw new Error(`the session did not start: ${String(begun.error)}`);
  const drive: DriveTurn = async (taskPrompt) => {
    seen = { pieces: 0, firstAt: 0 };
    const { status, error } = await bridge.call('session.message', { ...session, taskPrompt });
    if (status !== 'completed') throw new Error(`the turn ended as ${String(status)}: ${String(error)}`);
    return seen;
  };
  return { drive, commits: () => readCommits(program.url) };
}

async function readCommits(url: string): Promise<number> {
  const response = await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(10_000) });
  const [, count] = /^\w*database_commits\{database="bridge"\} (\d+)$/m.exec(await response.text()) ?? [];
  if (count === undefined) throw new Error('/metrics has no commits of the bridge');
  return Number(count);
}
