import { request } from './request.ts';

/** What operators see of the running program. */

type Figure = 'requests' | 'errors' | 'p95_ms' | 'in_flight' | 'sockets' | 'loop_busy' | 'rss_mb' | 'db_queue';

export interface SystemSeries {
  readonly step_s: number;
  readonly to: string;
  /** The latest figure is the last one. */
  readonly series: Readonly<Record<Figure, readonly number[]>>;
}

export interface SystemFindings {
  readonly ranAt: string;
  readonly findings: readonly {
    readonly name: string;
    readonly state: 'ok' | 'note' | 'broken';
    readonly text: string;
  }[];
}

export interface SystemInstances {
  readonly instances: readonly {
    readonly id: string;
    readonly version: string;
    readonly address: string;
    readonly startedAt: string;
    readonly heartbeatAt: string;
    readonly state: 'serving' | 'leaving' | 'silent';
    readonly clockDifferenceMs: number;
    readonly sessions: number;
    readonly sockets: number;
    readonly settingsDigest: string;
    readonly isThis: boolean;
  }[];
}

export interface SystemSettings {
  readonly settings: readonly {
    readonly path: string;
    readonly value: string;
    readonly source: string;
    readonly reloaded: boolean;
    readonly pending: boolean;
    readonly description: string;
  }[];
}

/** The other bridges that this one forwards calls to. */
export interface NodeList {
  readonly local_node_id: string;
  readonly hop_limit: number;
  readonly default_action: string;
  readonly nodes: readonly {
    readonly id: string;
    readonly role: string;
    readonly zone: string;
    readonly endpoint: string;
    readonly capabilities: readonly string[];
    readonly next_hop: string;
    /** `up`, or why it is down. */
    readonly state: string;
  }[];
}

/** Where a call would go, and why. */
interface Explanation {
  readonly action: 'local' | 'forward' | 'refuse';
  readonly reason: string;
  readonly code?: string;
  readonly candidates: readonly { readonly node_id: string; readonly next_hop: string; readonly endpoint: string }[];
}

export const listNodes = () => request<NodeList>('GET', '/api/bridge/nodes');
export const explainForward = (query: { readonly method: string; readonly sessionId?: string }) =>
  request<Explanation>('GET', '/api/bridge/nodes/explain', { query });
export const readSeries = () => request<SystemSeries>('GET', '/api/system/series');
export const readFindings = () => request<SystemFindings>('GET', '/api/system/doctor');
export const readInstances = () => request<SystemInstances>('GET', '/api/system/instances');
export const readSettings = () => request<SystemSettings>('GET', '/api/system/settings');
