import type { LookupFunction } from 'node:net';
import type { Clock } from '../../platform/clock/clock.ts';
import { withinTime } from '../../platform/clock/within-time.ts';
import type { Database } from '../../platform/database/database.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Dispatch, MethodCall } from '../../platform/json-rpc/method-call.ts';
import type { MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { Principal } from '../access.ts';
import type { BridgeClient } from '../bridge-client.ts';
import type { BridgeGroups } from '../settings.ts';
import type { BridgeSchema } from '../storage/bridge-schema.ts';
import { createSessionRouteStore } from '../storage/session-route-store.ts';
import { createSessionStore } from '../storage/session-store.ts';
import { type CallNames, readCallNames } from './call-names.ts';
import { createCallOrder } from './call-order.ts';
import { createCallPeer } from './call-peer.ts';
import { checkEndpointNames } from './check-endpoint-names.ts';
import { decideForward, type ForwardCandidate, type ForwardDecision } from './decide-forward.ts';
import { createForwardCall, type ForwardLimits, type OutgoingCall } from './forward-call.ts';
import { forwardHeaders } from './forward-headers.ts';
import { createNodeHealth } from './node-health.ts';
import { buildNodeMap } from './node-map.ts';
import { nodeControls } from './node-controls.ts';
import { createSessionRoutes, type Place } from './session-routes.ts';

/** Hands tasks to other bridges: spec/bridge 4.6, contract/bridge 9. */
export interface Forwarding {
  /** Serves calls that belong elsewhere from there, and all others by `dispatch`. */
  wrap(dispatch: Dispatch<BridgeClient>): Dispatch<BridgeClient>;
  readonly controls: readonly MethodRow<undefined>[];
  reload(settings: BridgeGroups): void;
  /** Takes no new turns; resolves when the calls under way are answered, or have had their time. */
  settle(): Promise<void>;
  stop(): Promise<void>;
}

export interface ForwardingOptions {
  readonly settings: BridgeGroups;
  readonly database: Database<BridgeSchema>;
  readonly contract: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly lookup?: LookupFunction | undefined;
  readonly limits?: Partial<ForwardingLimits> | undefined;
}

export interface ForwardingLimits extends ForwardLimits {
  readonly idleMs: number;
  readonly probeMs: number;
}

const LIMITS: ForwardingLimits = {
  connectMs: 4_500,
  turnHeadersMs: 30_000,
  headersMs: 120_000,
  idleMs: 45_000,
  probeMs: 5_000,
};
const PROBE_HEADERS_MS = 5_000;
/** Of the 30 seconds that a drain takes. */
const SETTLE_MS = 25_000;
const NEW_WORK: ReadonlySet<string> = new Set(['session.start', 'session.message', 'app.jobs.submit']);
const DEFAULT_PATH = '/acp/rpc';
