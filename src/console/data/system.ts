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

export const readSeries = () => request<SystemSeries>('GET', '/api/system/series');
export const readFindings = () => request<SystemFindings>('GET', '/api/system/doctor');
export const readInstances = () => request<SystemInstances>('GET', '/api/system/instances');
export const readSettings = () => request<SystemSettings>('GET', '/api/system/settings');
