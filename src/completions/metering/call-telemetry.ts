import type { Clock } from '../../platform/clock/clock.ts';
import type { FigureSource } from '../../platform/http/http-metrics.ts';
import { createSpanExport, type EndedSpan, type SpanExportOptions } from '../../platform/telemetry/spans.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { CallObserver, SettledCall } from '../keys/admission.ts';

interface CallFigures {
  readonly observe: CallObserver;
  readonly sources: readonly FigureSource[];
}

interface Series {
  readonly labels: { readonly model: string; readonly api: string };
  readonly outcomes: Map<string, number>;
  readonly duration: Distribution;
  readonly firstToken: Distribution;
  promptTokens: number;
  completionTokens: number;
  costNano: number;
  unpriced: number;
}

interface Distribution {
  readonly buckets: number[];
  sum: number;
  count: number;
}

/** Callers choose names of models, and each makes a row of its own: so there is an end to them. */
const MAX_SERIES = 200;
const OTHER = 'other';
const MAX_LABEL = 100;
const BOUNDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];

/** What `/metrics` tells of calls, by model and API. */
export function createCallFigures(usage: () => { readonly waiting: number; readonly dropped: number }): CallFigures {
  const known = new Map<string, Series>();

  function seriesOf({ outcome }: SettledCall): Series {
    const name = `${outcome.api}\n${outcome.model}`;
    const found = known.get(name) ?? (known.size < MAX_SERIES ? undefined : known.get(OTHER));
    if (found !== undefined) return found;
    const full = known.size >= MAX_SERIES;
    const label = (text: string) => (full ? OTHER : text.slice(0, MAX_LABEL));
    const fresh: Series = {
      labels: { model: label(outcome.model), api: label(outcome.api) },
      outcomes: new Map(),
      duration: { buckets: BOUNDS.map(() => 0), sum: 0, count: 0 },
      firstToken: { buckets: BOUNDS.map(() => 0), sum: 0, count: 0 },
      promptTokens: 0,
      completionTokens: 0,
      costNano: 0,
      unpriced: 0,
    };
    known.set(full ? OTHER : name, fresh);
    return fresh;
  }

  const all = () => [...known.values()];
  return {
    observe(call) {
      const series = seriesOf(call);
      const { outcome } = call;
      series.outcomes.set(outcome.outcome, (series.outcomes.get(outcome.outcome) ?? 0) + 1);
      series.promptTokens += call.promptTokens;
      series.completionTokens += call.completionTokens;
      series.costNano += call.costNano;
      if (!call.priceKnown) series.unpriced += 1;
      note(series.duration, outcome.durationMs / 1000);
      note(series.firstToken, outcome.firstTokenMs / 1000);
    },
    sources: [
      {
        type: 'counter',
        name: 'completions_calls_total',
        help: 'Calls of models, by outcome.',
        read: () =>
          all().flatMap(({ labels, outcomes }) =>
            [...outcomes].map(([outcome, value]) => ({ value, labels: { ...labels, outcome } })),
          ),
      },
      {
        type: 'counter',
        name: 'completions_tokens_total',
        help: 'Tokens used, of prompts and of answers.',
        read: () =>
          all().flatMap(({ labels, promptTokens, completionTokens }) => [
            { value: promptTokens, labels: { ...labels, kind: 'prompt' } },
            { value: completionTokens, labels: { ...labels, kind: 'completion' } },
          ]),
      },
      {
        type: 'counter',
        name: 'completions_cost_usd_total',
        help: 'What calls cost, by the table of prices.',
        read: () => all().map(({ labels, costNano }) => ({ value: usdOfNano(costNano), labels })),
      },
      {
        type: 'counter',
        name: 'completions_unpriced_calls_total',
        help: 'Calls of models whose price is not known: they count as free.',
        read: () => all().flatMap(({ labels, unpriced }) => (unpriced === 0 ? [] : [{ value: unpriced, labels }])),
      },
      distribution('completions_call_duration_seconds', 'Time from the request to the end of the answer.', () =>
        all().map(({ labels, duration }) => ({ labels, of: duration })),
      ),
      distribution('completions_first_token_seconds', 'Time from the request to the first event of the answer.', () =>
        all().map(({ labels, firstToken }) => ({ labels, of: firstToken })),
      ),
      {
        type: 'counter',
        name: 'completions_usage_records_dropped_total',
        help: 'Calls that were counted, but whose records found no room in the queue.',
        read: () => [{ value: usage().dropped, labels: {} }],
      },
      {
        type: 'gauge',
        name: 'completions_usage_records_waiting',
        help: 'Records of calls that wait to be stored.',
        read: () => [{ value: usage().waiting, labels: {} }],
      },
    ],
  };
}

function note(distribution: Distribution, seconds: number): void {
  distribution.sum += seconds;
  distribution.count += 1;
  const index = BOUNDS.findIndex((bound) => seconds <= bound);
  if (index >= 0) distribution.buckets[index] = (distribution.buckets[index] ?? 0) + 1;
}

function distribution(
  name: string,
  help: string,
  read: () => readonly { readonly labels: Series['labels']; readonly of: Distribution }[],
): FigureSource {
  return {
    type: 'histogram',
    name,
    help,
    read: () =>
      read().flatMap(({ labels, of: { buckets, sum, count } }) => {
        let below = 0;
        const bucket = (le: number | string, value: number) => ({
          value,
          labels: { ...labels, le },
          metricName: `${name}_bucket`,
        });
        return [
          ...BOUNDS.map((le, index) => {
            below += buckets[index] ?? 0;
            return bucket(le, below);
          }),
          bucket('+Inf', count),
          { value: sum, labels, metricName: `${name}_sum` },
          { value: count, labels, metricName: `${name}_count` },
        ];
      }),
  };
}

/** Sends a span for each call to an OpenTelemetry collector, by the names that GenAI calls have there. */
interface CallSpans {
  readonly observe: CallObserver;
  /** Sends what is left. */
  stop(): Promise<void>;
}

interface CallSpansOptions extends Omit<SpanExportOptions, 'scope'> {
  readonly clock: Pick<Clock, 'now'>;
}

const CLIENT_KIND = 2;

export function createCallSpans({ clock, ...options }: CallSpansOptions): CallSpans {
  const spans = createSpanExport({ ...options, scope: 'trestle.completions' });
  return { observe: (call) => spans.add(spanOf(call, clock.now())), stop: spans.stop };
}

/** https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ */
function spanOf(call: SettledCall, endedAt: number): EndedSpan {
  const { outcome, holder } = call;
  const operation = outcome.operation ?? 'chat';
  const failed = outcome.outcome === 'error' || outcome.outcome === 'partial';
  return {
    name: `${operation} ${outcome.model}`,
    kind: CLIENT_KIND,
    parent: holder.trace,
    startedAt: endedAt - outcome.durationMs,
    endedAt,
    failed,
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
  };
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
