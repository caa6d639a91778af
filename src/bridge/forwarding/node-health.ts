import { type Static, Type } from 'typebox';
import type { Clock } from '../../platform/clock/clock.ts';
import { defineMethod, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { DistributedSettings } from '../settings.ts';
import { type ForwardDecision, type NodeMap, usedNodes } from './decide-forward.ts';

/** Records which nodes could be reached recently. A node without a record counts as reachable. */
export interface NodeHealth {
  isUp(nodeId: string): boolean;
  /** Why a node is down; undefined while it is up. */
  reasonOf(nodeId: string): string | undefined;
  /** Marks a node as down, and probes it until it answers. */
  markDown(nodeId: string, reason: string): void;
  markUp(nodeId: string): void;
  stop(): void;
}

interface NodeHealthOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly probeMs: number;
  /** Whether the node answers. Must end without being cancelled. */
  probe(nodeId: string): Promise<boolean>;
}

interface DownNode {
  reason: string;
  cancelProbe: () => void;
}

export function createNodeHealth({ clock, probeMs, probe }: NodeHealthOptions): NodeHealth {
  const down = new Map<string, DownNode>();
  let isStopped = false;

  function probeLater(nodeId: string, node: DownNode): void {
    if (isStopped) return;
    node.cancelProbe = clock.after(probeMs, () => {
      void probe(nodeId)
        .catch(() => false)
        .then((answers) => {
          if (down.get(nodeId) !== node) return;
          if (answers) down.delete(nodeId);
          else probeLater(nodeId, node);
        });
    });
  }

  return {
    isUp: (nodeId) => !down.has(nodeId),
    reasonOf: (nodeId) => down.get(nodeId)?.reason,
    markDown(nodeId, reason) {
      const known = down.get(nodeId);
      if (known !== undefined) {
        known.reason = reason;
        return;
      }
      const node: DownNode = { reason, cancelProbe: () => undefined };
      down.set(nodeId, node);
      probeLater(nodeId, node);
    },
    markUp(nodeId) {
      down.get(nodeId)?.cancelProbe();
      down.delete(nodeId);
    },
    stop() {
      isStopped = true;
      for (const { cancelProbe } of down.values()) cancelProbe();
    },
  };
}

const NodeEntry = Type.Object({
  id: Type.String(),
  role: Type.String(),
  zone: Type.String(),
  endpoint: Type.String(),
  capabilities: Type.Array(Type.String()),
  next_hop: Type.String({ description: 'The node to which its requests are forwarded.' }),
  state: Type.String({ description: '`up`, or why it is down.' }),
});

export const NodeList = Type.Object({
  local_node_id: Type.String(),
  hop_limit: Type.Integer(),
  default_action: Type.String(),
  nodes: Type.Array(NodeEntry),
});

export const Explanation = Type.Object({
  method: Type.String(),
  action: Type.Enum(['local', 'forward', 'refuse']),
  reason: Type.String(),
  code: Type.Optional(Type.String()),
  candidates: Type.Array(Type.Object({ node_id: Type.String(), next_hop: Type.String(), endpoint: Type.String() })),
});

export const ExplainParams = Type.Object({
  method: Type.String({ minLength: 1, maxLength: 128 }),
  session_id: Type.Optional(Type.String({ minLength: 1, maxLength: 256 })),
});

interface NodeReportParts {
  readonly settings: DistributedSettings;
  readonly map: NodeMap;
  readonly health: Pick<NodeHealth, 'reasonOf'>;
  /** What would happen to a call of the holder of the main token. */
  decide(method: string, sessionId: string | undefined): Promise<ForwardDecision>;
}

/** Reports what is known about the other bridges, and where calls would go. */
export interface NodeReports {
  list(): Static<typeof NodeList>;
  explain(method: string, sessionId: string | undefined): Promise<Static<typeof Explanation>>;
}

export function createNodeReports({ settings, map, health, decide }: NodeReportParts): NodeReports {
  return {
    list: () => ({
      local_node_id: map.localId,
      hop_limit: settings.forwarding.hop_limit,
      default_action: settings.forwarding.default_action,
      nodes: usedNodes(settings, map).map((node) => ({
        ...node,
        capabilities: [...node.capabilities],
        next_hop: map.nextHopOf(node.id),
        state: health.reasonOf(node.id) ?? 'up',
      })),
    }),
    explain: async (method, sessionId) => explain(method, await decide(method, sessionId)),
  };
}

/** What each method returns. Commands have their types from here. */
export const nodeControlResults = { 'nodes.list': NodeList, 'nodes.explain': Explanation };

/** The methods that `trestle nodes` calls. */
export function nodeControls(reports: NodeReports): readonly MethodRow<undefined>[] {
  return [
    defineMethod({
      name: 'nodes.list',
      summary: 'The bridges that this one knows, and whether they could be reached lately.',
      params: Type.Object({}),
      result: nodeControlResults['nodes.list'],
      handle: reports.list,
    }),
    defineMethod({
      name: 'nodes.explain',
      summary: 'Where a call would go, and why.',
      params: ExplainParams,
      result: nodeControlResults['nodes.explain'],
      handle: ({ method, session_id: sessionId }) => reports.explain(method, sessionId),
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
