import type { Metric, Registry } from 'prom-client';

/** The library that writes the figures. It is loaded when they are first asked for: many servers are never asked. */
export type MetricsLibrary = typeof import('prom-client');

const CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const;
const BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Counts the requests of one row of a route table. */
export interface RouteMeter {
  observe(status: number, seconds: number): void;
}

export interface RouteLabels {
  readonly service: string;
  /** The pattern, never the path: labels must stay few. */
  readonly route: string;
  readonly method: string;
}

/** What the gauges ask of a listener when they are read. */
export interface ListenerGauges {
  requestsInFlight(): number;
  webSockets(): number;
}

export interface HttpMetrics {
  meter(labels: RouteLabels): RouteMeter;
  watch(gauges: ListenerGauges): void;
  /** All figures, as Prometheus reads them. */
  read(): Promise<{ readonly contentType: string; readonly text: string }>;
}

/** Figures that a part of the program counts by itself; read when they are asked for. */
export interface FigureSource {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly name: string;
  readonly help: string;
  /** The parts of a histogram name themselves by `metricName`: `x_bucket`, `x_sum`, `x_count`. */
  read(): readonly Sample[];
}

export interface HttpMetricsOptions {
  readonly sources?: readonly FigureSource[];
  /** Adds further figures, once, before the first are read. */
  addFigures?(registry: Registry, library: MetricsLibrary): void;
}

interface Series {
  readonly labels: RouteLabels;
  readonly byClass: number[];
  readonly buckets: number[];
  seconds: number;
  count: number;
}

interface Sample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

/** One for all listeners of a process. */
export function createHttpMetrics({ addFigures, sources = [] }: HttpMetricsOptions = {}): HttpMetrics {
  const series: Series[] = [];
  const watched: ListenerGauges[] = [];
  let loading: Promise<Registry> | undefined;

  async function load(): Promise<Registry> {
    const library = await import('prom-client');
    const registry = new library.Registry();
    register(registry, 'counter', 'http_requests_total', 'Requests answered, by class of status.', () =>
      series.flatMap(countSamples),
    );
    register(registry, 'histogram', 'http_request_duration_seconds', 'Time from head to end of answer.', () =>
      series.flatMap(durationSamples),
    );
    const gauge = (name: string, help: string, read: (gauges: ListenerGauges) => number) =>
      new library.Gauge({
        name,
        help,
        registers: [registry],
        collect() {
          this.set(watched.reduce((sum, gauges) => sum + read(gauges), 0));
        },
      });
    gauge('http_requests_in_flight', 'Requests being answered, open event streams included.', (gauges) =>
      gauges.requestsInFlight(),
    );
    gauge('websocket_connections', 'Open WebSockets.', (gauges) => gauges.webSockets());
    for (const { type, name, help, read } of sources) register(registry, type, name, help, read);
    addFigures?.(registry, library);
    return registry;
  }

  return {
    async read() {
      loading ??= load();
      const registry = await loading;
      return { contentType: registry.contentType, text: await registry.metrics() };
    },
    watch: (gauges) => {
      watched.push(gauges);
    },
    meter(labels) {
      const zeros = (length: number) => new Array<number>(length).fill(0);
      const own: Series = {
        labels,
        byClass: zeros(CLASSES.length),
        buckets: zeros(BOUNDS.length),
        seconds: 0,
        count: 0,
      };
      series.push(own);
      return { observe: (status, seconds) => observe(own, status, seconds) };
    },
  };
}

function observe(series: Series, status: number, seconds: number): void {
  const position = Math.min(CLASSES.length - 1, Math.max(0, Math.floor(status / 100) - 1));
  series.byClass[position] = (series.byClass[position] ?? 0) + 1;
  series.seconds += seconds;
  series.count += 1;
  for (let index = 0; index < BOUNDS.length; index += 1) {
    if (seconds <= (BOUNDS[index] ?? 0)) {
      series.buckets[index] = (series.buckets[index] ?? 0) + 1;
      return;
    }
  }
}

function countSamples({ labels, byClass }: Series): Sample[] {
  return byClass.flatMap((value, index) => {
    const status = CLASSES[index];
    return value === 0 || status === undefined ? [] : [{ value, labels: { ...labels, status } }];
  });
}

function durationSamples({ labels, buckets, seconds, count }: Series): Sample[] {
  if (count === 0) return [];
  const metricName = 'http_request_duration_seconds_bucket';
  let below = 0;
  const samples: Sample[] = BOUNDS.map((le, index) => {
    below += buckets[index] ?? 0;
    return { metricName, value: below, labels: { ...labels, le } };
  });
  samples.push({ metricName, value: count, labels: { ...labels, le: '+Inf' } });
  samples.push({ metricName: 'http_request_duration_seconds_sum', value: seconds, labels: { ...labels } });
  samples.push({ metricName: 'http_request_duration_seconds_count', value: count, labels: { ...labels } });
  return samples;
}

/**
 * prom-client's own counters and histograms hash their labels on every call, which costs more than routing a request
 * does. Its registry asks no more of a metric than these members, so ours count in plain arrays and are read when asked.
 */
function register(
  registry: Registry,
  type: string,
  name: string,
  help: string,
  collect: () => readonly Sample[],
): void {
  const metric = { name, help, type, get: async () => ({ name, help, type, values: collect(), aggregator: 'sum' }) };
  registry.registerMetric(metric as unknown as Metric);
}
