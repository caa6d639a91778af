import { Type } from 'typebox';
import { defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { EditorSessions } from './editor-sessions.ts';

type Call = MethodCall<BridgeClient>;

/** The only version of the Agent Client Protocol that is spoken here. */
const PROTOCOL_VERSION = 1;

const sessionId = Type.String({ minLength: 1, maxLength: 256 });
const cwd = Type.String({ minLength: 1, description: 'An absolute path inside the allowed roots.' });
const mcpServers = Type.Optional(Type.Array(Type.Unknown()));
const Answer = Type.Object({});

/** The agent's side of the Agent Client Protocol (contract/bridge 10): what an editor may call. */
export function editorMethods(sessions: EditorSessions, version: string): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'initialize',
      summary: 'What this agent can do.',
      params: Type.Object({ protocolVersion: Type.Number() }),
      result: Answer,
      handle: () => ({
        protocolVersion: PROTOCOL_VERSION,
        agentInfo: { name: 'trestle', title: 'Trestle', version },
        agentCapabilities: {
          loadSession: true,
          promptCapabilities: { embeddedContext: true },
          sessionCapabilities: { resume: {}, close: {} },
        },
        authMethods: [],
      }),
    }),
    defineMethod({
      name: 'authenticate',
      summary: 'Nothing to do: who can start this program may use it.',
      params: Type.Object({}),
      result: Answer,
      handle: () => ({}),
    }),
    defineMethod({
      name: 'session/new',
      summary: 'Opens a session in a folder.',
      params: Type.Object({ cwd, mcpServers }),
      result: Answer,
      handle: (params) => sessions.open(params.cwd, params.mcpServers ?? []),
    }),
    defineMethod({
      name: 'session/load',
      summary: 'Takes up an earlier session, and tells first what was said in it.',
      params: Type.Object({ sessionId, cwd, mcpServers }),
      result: Answer,
      handle: (params) => sessions.takeUp(params.sessionId, params.cwd, params.mcpServers ?? [], true),
    }),
    defineMethod({
      name: 'session/resume',
      summary: 'Takes up an earlier session without telling it again.',
      params: Type.Object({ sessionId, cwd, mcpServers }),
      result: Answer,
      handle: (params) => sessions.takeUp(params.sessionId, params.cwd, params.mcpServers ?? [], false),
    }),
    defineMethod({
      name: 'session/set_config_option',
      summary: 'Chooses the agent of a session that has not begun.',
      params: Type.Object({ sessionId, configId: Type.String(), value: Type.Unknown() }),
      result: Answer,
      handle: (params) => sessions.choose(params.sessionId, params.configId, params.value),
    }),
    defineMethod({
      name: 'session/prompt',
      summary: 'Runs one turn.',
      params: Type.Object({ sessionId, prompt: Type.Array(Type.Unknown(), { minItems: 1 }) }),
      result: Answer,
      handle: (params, call: Call) => sessions.prompt(params.sessionId, params.prompt, call),
    }),
    defineMethod({
      name: 'session/cancel',
      summary: 'Stops the turn that runs.',
      params: Type.Object({ sessionId }),
      result: Answer,
      handle: (params, call: Call) => sessions.cancel(params.sessionId, call),
    }),
    defineMethod({
      name: 'session/close',
      summary: 'Ends a session and removes its state.',
      params: Type.Object({ sessionId }),
      result: Answer,
      handle: (params, call: Call) => sessions.close(params.sessionId, call),
    }),
  ];
}
