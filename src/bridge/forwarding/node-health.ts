import type { Clock } from '../../platform/clock/clock.ts';

/** Which nodes could be reached lately. A node that nothing is known of counts as reachable. */
export interface NodeHealth {
  isUp(nodeId: string): boolean;
  /** Why a node is down; undefined while it is up. */
  reasonOf(nodeId: string): string | undefined;
  /** From now on the node is looked at until it answers. */
  markDown(nodeId: string, reason: string): void;
  markUp(nodeId: string): void;
  stop(): void;
}

export interface NodeHealthOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly probeMs: number;
  /** Whether the node answers. Must come to an end by itself. */
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
