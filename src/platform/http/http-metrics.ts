import type { Registry } from 'prom-client';

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

/** What all rows have counted since the start. */
export interface HttpTotals {
  readonly requests: number;
  /** Answers with status 5xx. */
  readonly errors: number;
  /** Upper bounds of durations, in seconds. */
  readonly bounds: readonly number[];
  /** Requests by bound, and last those above all bounds. */
  readonly durations: readonly number[];
  readonly inFlight: number;
  readonly sockets: number;
}

export interface HttpMetrics {
  totals(): HttpTotals;
  meter(labels: RouteLabels): RouteMeter;
  watch(gauges: ListenerGauges): void;
  /** All figures, as Prometheus reads them. */
  read(): Promise<MetricsText>;
  /** All figures of this process, to be added to those of others by `sumFigures`. */
  figures(): Promise<readonly Figure[]>;
}

interface MetricsText {
  readonly contentType: string;
  readonly text: string;
}

/** A figure as `prom-client` describes it, which adds those of several processes by their `aggregator`. */
export interface Figure {
  readonly name: string;
  readonly help: string;
  readonly type: unknown;
  readonly aggregator: string;
  readonly values: readonly unknown[];
}

/** Figures that a part of the program counts by itself; read when they are asked for. */
export interface FigureSource {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly name: string;
  readonly help: string;
  /** The parts of a histogram name themselves by `metricName`: `x_bucket`, `x_sum`, `x_count`. */
  read(): readonly Sample[];
}

interface HttpMetricsOptions {
  readonly sources?: readonly FigureSource[];
  /** Also figures of the process: memory, processor time, event loop. */
  readonly ofProcess?: boolean;
  /** The figures of all processes that serve the address together, this one's included. Undefined: it is alone. */
  readonly gather?: ((own: readonly Figure[]) => Promise<readonly (readonly Figure[])[]>) | undefined;
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

const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** One for all listeners of a process. Requests are counted in plain arrays; the text is written when it is asked for. */
export function createHttpMetrics(options: HttpMetricsOptions = {}): HttpMetrics {
  const { sources = [], ofProcess = false, gather } = options;
  const series: Series[] = [];
  const watched: ListenerGauges[] = [];
  let processFigures: Promise<Registry> | undefined;

  const sumOf = (read: (gauges: ListenerGauges) => number) => watched.reduce((sum, gauges) => sum + read(gauges), 0);
  const gauge = (name: string, help: string, read: (gauges: ListenerGauges) => number): FigureSource => ({
    type: 'gauge',
    name,
    help,
    read: () => [{ value: sumOf(read), labels: {} }],
  });
  const all: readonly FigureSource[] = [
    {
      type: 'counter',
      name: 'http_requests_total',
      help: 'Requests answered, by class of status.',
      read: () => series.flatMap(countSamples),
    },
    {
      type: 'histogram',
      name: 'http_request_duration_seconds',
      help: 'Time from head to end of answer.',
      read: () => series.flatMap(durationSamples),
    },
    gauge('http_requests_in_flight', 'Requests being answered, open event streams included.', (gauges) =>
      gauges.requestsInFlight(),
    ),
    gauge('websocket_connections', 'Open WebSockets.', (gauges) => gauges.webSockets()),
    ...sources,
  ];

  async function figures(): Promise<readonly Figure[]> {
    processFigures ??= loadProcessFigures();
    const own = all.map(({ type, name, help, read }) => ({ type, name, help, values: read(), aggregator: 'sum' }));
    return [...own, ...(await (await processFigures).getMetricsAsJSON())];
  }

  return {
    totals() {
      const durations = new Array<number>(BOUNDS.length + 1).fill(0);
      let requests = 0;
      let errors = 0;
      for (const { count, byClass, buckets } of series) {
        requests += count;
        errors += byClass.at(-1) ?? 0;
        let bounded = 0;
        for (const [index, value] of buckets.entries()) {
          durations[index] = (durations[index] ?? 0) + value;
          bounded += value;
        }
        durations[BOUNDS.length] = (durations[BOUNDS.length] ?? 0) + count - bounded;
      }
      return {
        requests,
        errors,
        bounds: BOUNDS,
        durations,
        inFlight: sumOf((gauges) => gauges.requestsInFlight()),
        sockets: sumOf((gauges) => gauges.webSockets()),
      };
    },
    figures,
    async read() {
      if (gather !== undefined)
        return { contentType: CONTENT_TYPE, text: await sumFigures(await gather(await figures())) };
      const text = all.map(writeFigure).join('\n');
      if (!ofProcess) return { contentType: CONTENT_TYPE, text };
      processFigures ??= loadProcessFigures();
      return { contentType: CONTENT_TYPE, text: `${text}\n${await (await processFigures).metrics()}` };
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

/** Loaded when the figures are first asked for: many servers are never asked. */
async function loadProcessFigures(): Promise<Registry> {
  const { collectDefaultMetrics, Registry } = await import('prom-client');
  const register = new Registry();
  collectDefaultMetrics({ register });
  return register;
}

/** Adds the figures of several processes, each as its kind demands: a start time, for example, is the earliest one. */
async function sumFigures(all: readonly (readonly Figure[])[]): Promise<string> {
  const { AggregatorRegistry } = await import('prom-client');
  return AggregatorRegistry.aggregate(all.map((figures) => [...figures])).metrics();
}

/** The text format of Prometheus. */
function writeFigure({ type, name, help, read }: FigureSource): string {
  const lines = read().map(({ metricName = name, labels, value }) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escapeLabel(String(text))}"`);
    return `${metricName}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}\n`;
  });
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

function escapeLabel(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');
}
