import type { Attributes, SpanKind, Tracer } from '@opentelemetry/api';

/** Where a span is: `traceparent` of https://www.w3.org/TR/trace-context/. */
export interface TraceContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly isSampled: boolean;
}

/** A piece of work that is over. */
export interface EndedSpan {
  readonly name: string;
  readonly kind: SpanKind;
  /** Its own place, where others were told of it before it ended. Undefined: any. */
  readonly context?: TraceContext | undefined;
  /** The span that it is part of. Undefined: it begins a trace. */
  readonly parent?: TraceContext | undefined;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly attributes: Attributes;
  readonly failed: boolean;
}

/** Sends spans to an OpenTelemetry collector. */
export interface SpanExport {
  add(span: EndedSpan): void;
  /** Sends what is left. */
  stop(): Promise<void>;
}

export interface SpanExportOptions {
  /** Everything before `/v1/traces`. */
  readonly endpoint: string;
  /** The part of this program that the spans come from. */
  readonly scope: string;
  readonly version: string;
  onError(error: unknown): void;
}

interface Tracing {
  add(span: EndedSpan): void;
  stop(): Promise<void>;
}

const QUEUE = 4096;
const BATCH = 512;
const DELAY_MS = 2000;
const EXPORT_TIMEOUT_MS = 5000;

/** The library is loaded with the first span. */
export function createSpanExport(options: SpanExportOptions): SpanExport {
  const { onError } = options;
  let loading: Promise<Tracing> | undefined;
  let tracing: Tracing | undefined;
  /** Spans that ended while the library was being loaded. */
  const early: EndedSpan[] = [];

  async function load(): Promise<Tracing> {
    tracing = await startTracing(options);
    for (const span of early.splice(0)) tracing.add(span);
    return tracing;
  }

  return {
    add(span) {
      if (tracing !== undefined) {
        tracing.add(span);
        return;
      }
      if (early.length < QUEUE) early.push(span);
      if (loading !== undefined) return;
      loading = load();
      loading.catch(onError);
    },
    async stop() {
      const started = await loading?.catch(() => undefined);
      await started?.stop().catch(onError);
    },
  };
}

async function startTracing({ endpoint, scope, version }: SpanExportOptions): Promise<Tracing> {
  const [{ BatchSpanProcessor, RandomIdGenerator, TracerProvider }, { OTLPTraceExporter }, resources, api] =
    await Promise.all([
      import('@opentelemetry/sdk-trace'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
      import('@opentelemetry/api'),
    ]);
  const exporter = new OTLPTraceExporter({ url: `${endpoint}/v1/traces`, timeoutMillis: EXPORT_TIMEOUT_MS });
  const random = new RandomIdGenerator();
  /** Of the span that is being started: others know it by these ids already. */
  let own: TraceContext | undefined;
  const provider = new TracerProvider({
    idGenerator: {
      generateTraceId: () => own?.traceId ?? random.generateTraceId(),
      generateSpanId: () => own?.spanId ?? random.generateSpanId(),
    },
    resource: resources.resourceFromAttributes({ 'service.name': 'trestle', 'service.version': version }),
    spanProcessors: [
      new BatchSpanProcessor({
        exporter,
        maxQueueSize: QUEUE,
        maxExportBatchSize: BATCH,
        scheduledDelayMillis: DELAY_MS,
        exportTimeoutMillis: EXPORT_TIMEOUT_MS,
      }),
    ],
  });
  const tracer: Tracer = provider.getTracer(scope, version);

  function contextOf({ traceId, spanId, isSampled }: TraceContext) {
    const traceFlags = isSampled ? api.TraceFlags.SAMPLED : api.TraceFlags.NONE;
    return api.trace.setSpanContext(api.ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
  }

  return {
    add({ name, kind, context, parent, startedAt, endedAt, attributes, failed }) {
      own = context;
      const options = { root: parent === undefined, kind, startTime: startedAt, attributes };
      const span = tracer.startSpan(name, options, parent === undefined ? undefined : contextOf(parent));
      own = undefined;
      if (failed) span.setStatus({ code: api.SpanStatusCode.ERROR });
      span.end(endedAt);
    },
    stop: () => provider.shutdown(),
  };
}

/** As the header and the variable of that name have it. */
export function traceparentOf({ traceId, spanId, isSampled }: TraceContext): string {
  return `00-${traceId}-${spanId}-${isSampled ? '01' : '00'}`;
}
