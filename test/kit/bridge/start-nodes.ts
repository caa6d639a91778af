import type { LookupFunction } from 'node:net';
import type { ForwardingLimits } from '../../../src/bridge/forwarding/create-forwarding.ts';
import type { Clock } from '../../../src/platform/clock/clock.ts';
import type { Scope } from '../running-program.ts';
import { createScriptedProvider, type ScriptedProvider, type TurnScript } from '../scripted-provider.ts';
import { timeLimit } from '../time.ts';
import { type BridgeUnderTest, MAIN_TOKEN, REVIEW_TOKEN, startBridge } from './start-bridge.ts';

export const FORWARD_TOKEN = 'forward-token-0c9e8d7f6a5b';

/** A waiting time that a test can afford; on a busy machine a node needs longer to answer. */
export const SHORT_LIMITS: Partial<ForwardingLimits> = {
  connectMs: timeLimit(2000),
  turnHeadersMs: timeLimit(1500),
  headersMs: timeLimit(1500),
  idleMs: timeLimit(1500),
  probeMs: 50,
};

export interface NodeUnderTest extends BridgeUnderTest {
  readonly agent: ScriptedProvider;
}

export interface NodeOptions {
  readonly id: string;
  /** Endpoints of other nodes by id, or with more about them. */
  readonly peers?: Readonly<Record<string, string | { readonly url: string; readonly more: string }>>;
  /** YAML of `distributed.forwarding`. */
  readonly forwarding?: string;
  /** YAML lines of `distributed`. */
  readonly more?: string;
  readonly script?: TurnScript;
  readonly after?: NodeUnderTest;
  readonly isOpen?: boolean;
  readonly forwardToken?: string;
  readonly limits?: Partial<ForwardingLimits>;
  readonly lookup?: LookupFunction;
  readonly clock?: Clock;
  readonly linkKey?: number;
  readonly settleMs?: () => number;
}

/** A bridge of a group, in this process, behind a real listener. */
export async function startNode(scope: Scope, options: NodeOptions): Promise<NodeUnderTest> {
  const { id, peers = {}, forwarding = '{}', more = '', after, isOpen = false, forwardToken = FORWARD_TOKEN } = options;
  const agent = after?.agent ?? createScriptedProvider(`agent-of-${id}`, options.script);
  const nodes = Object.entries(peers).map(([peer, place]) => {
    const { url, more: rest } = typeof place === 'string' ? { url: place, more: '' } : place;
    return `    - { id: ${peer}, bridge_endpoint: "${url}"${rest === '' ? '' : `, ${rest}`} }\n`;
  });
  const settings = [
    'distributed:\n',
    `  local_node_id: ${id}\n`,
    isOpen ? '' : `  task_forward_token: "${forwardToken}"\n`,
    nodes.length === 0 ? '' : `  nodes:\n${nodes.join('')}`,
    `  forwarding: ${forwarding}\n`,
    more,
  ].join('');
  const bridge = await startBridge(scope, {
    providers: [agent],
    settings,
    isGuarded: !isOpen,
    ...(after !== undefined && { after }),
    linkKey: options.linkKey,
    settleMs: options.settleMs,
    ...(options.clock !== undefined && { clock: options.clock }),
    forwarding: { limits: { ...SHORT_LIMITS, ...options.limits }, lookup: options.lookup },
  });
  return { ...bridge, agent };
}

/** All session methods go to that node. */
export const everythingTo = (node: string) => `{ rules: [{ methods: ["*"], target: { node_id: ${node} } }] }`;

export const asMain = { authorization: `Bearer ${MAIN_TOKEN}` };
export const asReview = { authorization: `Bearer ${REVIEW_TOKEN}` };
export const asNode = (more: Readonly<Record<string, string>> = {}) => ({
  authorization: `Bearer ${FORWARD_TOKEN}`,
  'x-app-bridge-forwarded': '1',
  'x-app-forward-source': 'other',
  'x-app-forward-target': 'b',
  'x-app-forward-hop': '1',
  ...more,
});

export const turn = (sessionId: string, taskPrompt = 'hello there') => ({ sessionId, taskPrompt });
