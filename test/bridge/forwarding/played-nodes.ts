import type { TestContext } from 'node:test';
import type { BridgeCaller } from '../../../src/bridge/access.ts';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import type { ForwardedRequest } from '../../../src/bridge/forwarding/call-node.ts';
import { createForwarding, type ForwardingOptions } from '../../../src/bridge/forwarding/create-forwarding.ts';
import { MAIN } from '../../../src/bridge/principal.ts';
import type { BridgeGroups } from '../../../src/bridge/settings.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import type { databasePlaces } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { type SeenRequest, startScriptedHttp } from '../../kit/scripted-http.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

/** What a node that the test plays answers; undefined: the test answers itself, or nobody does. */
export type Answer = (request: SeenRequest) => { readonly status?: number; readonly result?: unknown } | undefined;

const selector = { role: '', zone: '', capability: '' };
export const rule = (methods: readonly string[], target: object) => ({
  methods,
  target: { node_id: '', selector, strategy: 'round_robin', ...target },
});
const client = (caller: Partial<BridgeCaller> = {}, changes: Partial<BridgeClient> = {}): BridgeClient => ({
  caller: { principal: MAIN, ...caller },
  sink: undefined,
  stays: false,
  resume: { afterSeq: undefined, idempotencyKey: '' },
  ...changes,
});
/** What another bridge `x` says of a call for node `c`. */
export const fromNode = (changes: Partial<ForwardedRequest> = {}): ForwardedRequest => ({
  ...{ source: 'x', target: 'c', hop: 1, trace: 'trace-x', owner: 'ann', person: '', team: '', path: '/gateway/c' },
  ...changes,
});

/** A bridge `a` with nodes that answer as the test says; calls of all methods go to them by turns. */
export async function startForwarding(
  context: TestContext,
  places: ReturnType<typeof databasePlaces>,
  nodes: Readonly<Record<string, Answer>>,
  forwarding: { readonly peer?: string; readonly [setting: string]: unknown } = {},
  options: Partial<ForwardingOptions> = {},
) {
  const { peer = '', ...changed } = forwarding;
  const clock = createFakeClock();
  const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
  const peers: Record<string, Awaited<ReturnType<typeof startScriptedHttp>>> = {};
  for (const [id, answer] of Object.entries(nodes)) {
    peers[id] = await startScriptedHttp(context, (request) => {
      const answered = answer(request);
      if (answered === undefined) return;
      const { status = 200, result = {} } = answered;
      const { id: callId = null } = request.body === '' ? {} : JSON.parse(request.body);
      const text = JSON.stringify({ jsonrpc: '2.0', id: callId, result });
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      request.response.writeHead(status, headers).end(text);
    });
  }
  const settings = {
    bridge: { auth_token: 'main-token', method_prefix_aliases: ['acme'] },
    distributed: {
      ...{ local_node_id: 'a', task_forward_peer_id: peer, task_forward_token: 'forward-token' },
      nodes: Object.entries(peers).map(([id, { url }]) => ({
        ...{ id, role: 'exec', zone: '', capabilities: [], bridge_endpoint: url },
      })),
      forwarding: {
        ...{ hop_limit: 3, default_action: 'execute_local', routes: [] },
        rules: [rule(['*'], { selector: { ...selector, role: 'exec' } })],
        ...changed,
      },
    },
  } as unknown as BridgeGroups;
  const made = await createForwarding({
    settings,
    database,
    links: { relay: (place, path) => `/relayed/${place}${path}` },
    contract: '1.0.0',
    withFiles: async (_owner, params) => params,
    clock,
    logger: silentLogger,
    ...options,
  });
  context.after(() => made.stop());
  const here: string[] = [];
  const dispatch = made.wrap(({ method }) => {
    here.push(method);
    return { jobs: [], summary: {}, nextCursor: null };
  });
  const call = async (
    method: string,
    params: object = {},
    from: Partial<BridgeCaller> = {},
    changes: Partial<BridgeClient> = {},
  ): Promise<unknown> => {
    const caller = client(from, changes);
    const given = { method, params, id: 1, requestId: 'req-1', caller, notify() {}, accept() {} };
    const answer = await dispatch(given as unknown as MethodCall<BridgeClient>);
    const { text } = answer as { readonly text?: string };
    return text === undefined ? answer : JSON.parse(text);
  };
  const asked = (id: string) => (peers[id]?.requests ?? []).map(({ body }) => JSON.parse(body).method as string);
  return { made, call, clock, peers, here, asked, settings };
}
