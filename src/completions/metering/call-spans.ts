import type { Tracer } from '@opentelemetry/api';
import type { Clock } from '../../platform/clock/clock.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { CallObserver, SettledCall } from '../keys/admission.ts';

/** Sends a span for each call to an OpenTelemetry collector, by the names that GenAI calls have there. */
export interface CallSpans {
  readonly observe: CallObserver;
  /** Sends what is left. */
  stop(): Promise<void>;
}

export interface CallSpansOptions {
  /** Everything before `/v1/traces`. */
  readonly endpoint: string;
  readonly version: string;
  readonly clock: Pick<Clock, 'now'>;
  onError(error: unknown): void;
}

interface Tracing {
  readonly tracer: Tracer;
  stop(): Promise<void>;
}

const QUEUE = 4096;
const BATCH = 512;
const DELAY_MS = 2000;
const EXPORT_TIMEOUT_MS = 5000;
const ERROR_STATUS = 2;
const CLIENT_KIND = 2;

export function createCallSpans({ endpoint, version, clock, onError }: CallSpansOptions): CallSpans {
  let loading: Promise<Tracing> | undefined;
  let tracing: Tracing | undefined;
  /** Calls that ended while the library was being loaded. */
  const early: { readonly call: SettledCall; readonly at: number }[] = [];

  async function load(): Promise<Tracing> {
    tracing = await startTracing(endpoint, version);
    for (const { call, at } of early.splice(0)) addSpan(tracing.tracer, call, at);
    return tracing;
  }

  return {
    observe(call) {
      const at = clock.now();
      if (tracing !== undefined) {
        addSpan(tracing.tracer, call, at);
        return;
      }
      if (early.length < QUEUE) early.push({ call, at });
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

async function startTracing(endpoint: string, version: string): Promise<Tracing> {
  const [{ BatchSpanProcessor, TracerProvider }, { OTLPTraceExporter }, { resourceFromAttributes }] = await Promise.all(
    [
      import('@opentelemetry/sdk-trace'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
    ],
  );
  const exporter = new OTLPTraceExporter({ url: `${endpoint}/v1/traces`, timeoutMillis: EXPORT_TIMEOUT_MS });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ 'service.name': 'trestle', 'service.version': version }),
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
  return { tracer: provider.getTracer('trestle.completions', version), stop: () => provider.shutdown() };
}

/** https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ */
function addSpan(tracer: Tracer, call: SettledCall, endedAt: number): void {
  const { outcome, holder } = call;
  const operation = outcome.operation ?? 'chat';
  const failed = outcome.outcome === 'error' || outcome.outcome === 'partial';
  const span = tracer.startSpan(`${operation} ${outcome.model}`, {
    root: true,
    kind: CLIENT_KIND,
    startTime: endedAt - outcome.durationMs,
    attributes: {
      'gen_ai.operation.name': operation,
      'gen_ai.provider.name': PROVIDERS[outcome.api] ?? outcome.api,
      'gen_ai.request.model': outcome.model,
      'gen_ai.response.model': outcome.upstreamModel,
      'gen_ai.usage.input_tokens': call.promptTokens,
      'gen_ai.usage.output_tokens': call.completionTokens,
      'http.response.status_code': outcome.status,
      'trestle.key.id': holder.id,
      'trestle.request.id': outcome.requestId,
      'trestle.attempts': outcome.attempts,
      'trestle.outcome': outcome.outcome,
      'trestle.cost.usd': usdOfNano(call.costNano),
      'trestle.time_to_first_token_ms': outcome.firstTokenMs,
      ...(failed && { 'error.type': String(outcome.status) }),
    },
  });
  if (failed) span.setStatus({ code: ERROR_STATUS });
  span.end(endedAt);
}

/** The names that the convention has for some. */
const PROVIDERS: Readonly<Record<string, string>> = {
  'amazon-bedrock': 'aws.bedrock',
  azure: 'azure.ai.openai',
  'azure-ai-foundry': 'azure.ai.inference',
  google: 'gcp.gemini',
  'google-vertex': 'gcp.vertex_ai',
  mistral: 'mistral_ai',
  moonshotai: 'moonshot_ai',
  xai: 'x_ai',
};
