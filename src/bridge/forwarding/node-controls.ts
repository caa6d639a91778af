import { type Static, Type } from 'typebox';
import { defineMethod, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { DistributedSettings } from '../settings.ts';
import type { ForwardDecision } from './decide-forward.ts';
import type { NodeHealth } from './node-health.ts';
import type { NodeMap } from './node-map.ts';

const NodeEntry = Type.Object({
  id: Type.String(),
  role: Type.String(),
  zone: Type.String(),
  endpoint: Type.String(),
  capabilities: Type.Array(Type.String()),
  next_hop: Type.String({ description: 'The node that requests for it are handed to.' }),
  state: Type.String({ description: '`up`, or why it is down.' }),
});

const NodeList = Type.Object({
  local_node_id: Type.String(),
  hop_limit: Type.Integer(),
  default_action: Type.String(),
  nodes: Type.Array(NodeEntry),
});

const Explanation = Type.Object({
  method: Type.String(),
  action: Type.Enum(['local', 'forward', 'refuse']),
  reason: Type.String(),
  code: Type.Optional(Type.String()),
  candidates: Type.Array(Type.Object({ node_id: Type.String(), next_hop: Type.String(), endpoint: Type.String() })),
});

const ExplainParams = Type.Object({
  method: Type.String({ minLength: 1, maxLength: 128 }),
  session_id: Type.Optional(Type.String({ minLength: 1, maxLength: 256 })),
});

export interface NodeControlParts {
  readonly settings: DistributedSettings;
  readonly map: NodeMap;
  readonly health: Pick<NodeHealth, 'reasonOf'>;
  /** What would happen to a call of the holder of the main token. */
  decide(method: string, sessionId: string | undefined): Promise<ForwardDecision>;
}

/** What `trestle nodes` asks for. */
export function nodeControls({ settings, map, health, decide }: NodeControlParts): readonly MethodRow<undefined>[] {
  return [
    defineMethod({
      name: 'nodes.list',
      summary: 'The bridges that this one knows, and whether they could be reached lately.',
      params: Type.Object({}),
      result: NodeList,
      handle: () => ({
        local_node_id: map.localId,
        hop_limit: settings.forwarding.hop_limit,
        default_action: settings.forwarding.default_action,
        nodes: [...map.others.values()].map((node) => ({
          ...node,
          capabilities: [...node.capabilities],
          next_hop: map.nextHopOf(node.id),
          state: health.reasonOf(node.id) ?? 'up',
        })),
      }),
    }),
    defineMethod({
      name: 'nodes.explain',
      summary: 'Where a call would go, and why.',
      params: ExplainParams,
      result: Explanation,
      handle: async ({ method, session_id: sessionId }) => explain(method, await decide(method, sessionId)),
    }),
  ];
}

function explain(method: string, decision: ForwardDecision): Static<typeof Explanation> {
  const { kind: action, reason } = decision;
  const candidates = decision.kind === 'forward' ? decision.candidates : [];
  return {
    method,
    action,
    reason,
    ...(decision.kind === 'refuse' && { code: decision.code }),
    candidates: candidates.map(({ target, nextHop }) => ({
      node_id: target,
      next_hop: nextHop.id,
      endpoint: nextHop.endpoint,
    })),
  };
}
