import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { Readable, Writable } from 'node:stream';
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk';
import type { Scope } from '../../test/e2e/running-program.ts';
import { openBridgeClient } from './bridge-client.ts';
import { SCRIPTED_AGENT, startScriptedBridge } from './scripted-bridge.ts';

/** Runs one turn of the scripted agent and tells how many pieces of text came. */
export type DriveTurn = (prompt: string) => Promise<number>;

/** The agent driven through the protocol's SDK, with nothing between. */
export async function driveDirectly(scope: Scope): Promise<DriveTurn> {
  const child = spawn(SCRIPTED_AGENT.command, SCRIPTED_AGENT.args, { stdio: ['pipe', 'pipe', 'ignore'] });
  scope.after(() => child.kill('SIGKILL'));
  let pieces = 0;
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>);
  const { agent } = client({ name: 'bench' })
    .onNotification(methods.client.session.update, () => {
      pieces += 1;
    })
    .connect(stream);
  await agent.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await agent.request(methods.agent.session.new, { cwd: tmpdir(), mcpServers: [] });
  return async (text) => {
    pieces = 0;
    await agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: 'text', text }] });
    return pieces;
  };
}

/** The same agent behind the bridge: one session on one WebSocket, with the event log on as always. */
export async function driveThroughBridge(scope: Scope): Promise<DriveTurn> {
  const program = await startScriptedBridge(scope);
  const bridge = await openBridgeClient(program.url);
  scope.after(() => bridge.close());
  let pieces = 0;
  bridge.onUpdate(({ type }) => {
    if (type === 'delta') pieces += 1;
  });
  const session = { sessionId: 'bench' };
  await bridge.call('session.start', { ...session, taskPrompt: 'echo ready' });
  return async (taskPrompt) => {
    pieces = 0;
    const { status, error } = await bridge.call('session.message', { ...session, taskPrompt });
    if (status !== 'completed') throw new Error(`the turn ended as ${String(status)}: ${String(error)}`);
    return pieces;
  };
}
