import { performance } from 'node:perf_hooks';
import { Type } from 'typebox';
import type { Bridge } from '../bridge/create-bridge.ts';
import { type Clock, type Repeated, repeat } from '../platform/clock/clock.ts';
import { changedSettings, isWithin, maskSettings, settingEntries } from '../platform/config/setting-declaration.ts';
import type { HttpTotals } from '../platform/http/http-metrics.ts';
import { defineRoute, type Route } from '../platform/http/surface.ts';
import { Instances } from './cluster.ts';
import type { Finding } from './doctor/findings.ts';
import { type Settings, settingsDeclaration } from './settings.ts';

/** The state of the running program for operators: findings of the doctor, instances, and the figures of the last hour. */

const STEP_MS = 10_000;
const MAX_SAMPLES = 360;
/** Findings are not older than this: the doctor starts programs, so it does not run for each request. */
const FINDINGS_MS = 30_000;
const MEGABYTE = 1024 * 1024;
const FIGURES = [
  'requests',
  'errors',
  'p50_ms',
  'p95_ms',
  'in_flight',
  'sockets',
  'loop_busy',
  'rss_mb',
  'heap_mb',
  'db_queue',
] as const;
type Sample = Readonly<Record<(typeof FIGURES)[number], number>>;

const Series = Type.Object(
  {
    step_s: Type.Integer({ description: 'Seconds between two values.' }),
    to: Type.String({ description: 'When the latest values were recorded.' }),
    series: Type.Object(
      Object.fromEntries(FIGURES.map((name) => [name, Type.Array(Type.Number())])) as Record<
        (typeof FIGURES)[number],
        ReturnType<typeof Type.Array<ReturnType<typeof Type.Number>>>
      >,
      {
        description:
          'The last value is the newest. `loop_busy` is the fraction of time in which the event loop was busy.',
      },
    ),
  },
  { $id: 'SystemSeries' },
);

const Findings = Type.Object(
  {
    ranAt: Type.String(),
    findings: Type.Array(
      Type.Object({
        name: Type.String(),
        state: Type.Enum(['ok', 'note', 'broken']),
        text: Type.String(),
      }),
    ),
  },
  { $id: 'SystemFindings' },
);

const InForce = Type.Object(
  {
    settings: Type.Array(
      Type.Object({
        path: Type.String(),
        value: Type.String({ description: 'The value as in trestle.yaml, in JSON; secrets are masked.' }),
        source: Type.String({ description: '`default`, `trestle.yaml:12`, `env NAME` or `flag --name`.' }),
        reloaded: Type.Boolean({ description: 'Whether SIGHUP changes it. False: only a restart does.' }),
        pending: Type.Boolean({
          description: 'The configuration was read again; this value takes effect after a restart.',
        }),
        description: Type.String(),
      }),
    ),
  },
  { $id: 'SystemSettings' },
);

/** The settings that the program runs with, and where each value comes from. */
export interface SettingsInForce {
  readonly settings: Settings;
  /** Those that the program has started with. */
  readonly started: Settings;
  /** By path, as the configuration was loaded. */
  readonly sources: Readonly<Record<string, string>>;
}

export interface SystemStatusOptions {
  readonly clock: Clock;
  readonly bridge: Pick<Bridge, 'forOperators' | 'instances' | 'runners'>;
  totals(): HttpTotals;
  /** Returns how many writes wait for the databases. */
  queued(): number;
  diagnose(): Promise<readonly Finding[]>;
  inForce(): SettingsInForce;
  onError(error: unknown): void;
}

export interface SystemStatus {
  readonly routes: readonly Route[];
  stop(): Promise<void>;
}

interface Diagnosis {
  /** On the monotonic clock. */
  readonly startedAt: number;
  readonly ranAt: Date;
  readonly findings: Promise<readonly Finding[]>;
}

export function startSystemStatus(options: SystemStatusOptions): SystemStatus {
  const { clock, bridge } = options;
  const series = startSeries(options);
  let latest: Diagnosis | undefined;

  function findings(): Diagnosis {
    const now = clock.monotonic();
    if (latest === undefined || now - latest.startedAt >= FINDINGS_MS) {
      const started = { startedAt: now, ranAt: new Date(clock.now()), findings: options.diagnose() };
      started.findings.catch(() => {
        if (latest === started) latest = undefined;
      });
      latest = started;
    }
    return latest;
  }

  return {
    stop: series.stop,
    routes: [
      defineRoute(
        'GET /api/system/series',
        bridge.forOperators,
        { summary: 'The metrics of the last hour, for operators.', response: { 200: Series } },
        () => series.read(),
      ),
      defineRoute(
        'GET /api/system/doctor',
        bridge.forOperators,
        {
          summary: 'The findings of `trestle doctor`, at most 30 seconds old, for operators.',
          response: { 200: Findings },
        },
        async () => {
          const { ranAt, findings: found } = findings();
          return { ranAt: ranAt.toISOString(), findings: [...(await found)] };
        },
      ),
      defineRoute(
        'GET /api/system/instances',
        bridge.forOperators,
        {
          summary: 'The instances that share the database, and the runners, for operators.',
          response: { 200: Instances },
        },
        async () => ({ instances: [...(await bridge.instances())], runners: [...(await bridge.runners())] }),
      ),
      defineRoute(
        'GET /api/system/settings',
        bridge.forOperators,
        { summary: 'The current settings and where each comes from, for operators.', response: { 200: InForce } },
        async () => ({ settings: listSettings(options.inForce()) }),
      ),
    ],
  };
}

function listSettings({ settings, started, sources }: SettingsInForce) {
  const { restart } = changedSettings(settingsDeclaration.schema, started, settings);
  const masked = maskSettings(settingsDeclaration.schema, settings);
  const entries = settingEntries(settingsDeclaration.schema);
  return entries.map(({ path, setting: { reload, description } }) => {
    const value = path.split('.').reduce<unknown>((found, key) => (found as Record<string, unknown>)[key], masked);
    const source = sources[path] ?? 'default';
    return {
      path,
      value: JSON.stringify(value ?? null),
      source,
      reloaded: reload,
      pending: restart.some((one) => isWithin(one, path)),
      description,
    };
  });
}

type SeriesOptions = Pick<SystemStatusOptions, 'clock' | 'totals' | 'queued' | 'onError'>;

/** Takes figures every ten seconds, and keeps those of the last hour in memory. */
function startSeries({ clock, totals, queued, onError }: SeriesOptions): Repeated & { read(): unknown } {
  const samples: Sample[] = [];
  let before = totals();
  let loop = performance.eventLoopUtilization();
  let takenAt = clock.now();

  async function take(): Promise<void> {
    const now = totals();
    const worked = performance.eventLoopUtilization();
    const counts = now.durations.map((count, index) => count - (before.durations[index] ?? 0));
    const { rss, heapUsed } = process.memoryUsage();
    samples.push({
      requests: now.requests - before.requests,
      errors: now.errors - before.errors,
      p50_ms: quantile(now.bounds, counts, 0.5),
      p95_ms: quantile(now.bounds, counts, 0.95),
      in_flight: now.inFlight,
      sockets: now.sockets,
      loop_busy: Math.round(performance.eventLoopUtilization(worked, loop).utilization * 1000) / 1000,
      rss_mb: Math.round(rss / MEGABYTE),
      heap_mb: Math.round(heapUsed / MEGABYTE),
      db_queue: queued(),
    });
    if (samples.length > MAX_SAMPLES) samples.shift();
    before = now;
    loop = worked;
    takenAt = clock.now();
  }

  const repeated = repeat({ clock, pauseMs: STEP_MS, firstAfterMs: 0, work: take, onError });
  return {
    stop: repeated.stop,
    read: () => ({
      step_s: STEP_MS / 1000,
      to: new Date(takenAt).toISOString(),
      series: Object.fromEntries(FIGURES.map((name) => [name, samples.map((sample) => sample[name])])),
    }),
  };
}

/** The upper bound, in milliseconds, of the times that this share of the requests took. 0: there were none. */
function quantile(bounds: readonly number[], counts: readonly number[], share: number): number {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return 0;
  let below = 0;
  const place = counts.findIndex((count) => {
    below += count;
    return below >= all * share;
  });
  return (bounds[place] ?? bounds.at(-1) ?? 0) * 1000;
}
