import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { SpanExport, TraceContext } from '../../platform/telemetry/spans.ts';
import type { AgentEvent, AgentTurn, SpanAttributes, TurnEnd, TurnTrace } from './agent-provider.ts';

interface TurnTracesOptions {
  readonly spans: Pick<SpanExport, 'add'>;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
}

const INTERNAL_KIND = 0;
const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

/** What the turns of sessions begin their traces with. */
export function createTurnTraces({ spans, clock, randomness }: TurnTracesOptions): TurnTrace {
  const makeId = (bytes: number) => Buffer.from(randomness.bytes(bytes)).toString('hex');

  function traceIn(parent: TraceContext | undefined): TurnTrace {
    return {
      context: parent,
      begin(name) {
        const traceId = parent?.traceId ?? makeId(TRACE_ID_BYTES);
        const context = { traceId, spanId: makeId(SPAN_ID_BYTES), isSampled: true };
        const startedAt = clock.now();
        return {
          ...traceIn(context),
          context,
          end(attributes, failed) {
            spans.add({
              name,
              kind: INTERNAL_KIND,
              context,
              parent,
              startedAt,
              endedAt: clock.now(),
              attributes,
              failed,
            });
          },
        };
      },
    };
  }

  return traceIn(undefined);
}

/** Of one turn. */
const MAX_OPEN_TOOLS = 1000;
const OVER: ReadonlySet<string | undefined> = new Set(['completed', 'failed']);

/**
 * Makes a span of a turn and of each of its tool calls, by the names that agents have at
 * https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/. Neither titles nor texts are sent: they may hold secrets.
 */
export function traceTurn(
  providerId: string,
  turn: AgentTurn,
): { readonly turn: AgentTurn; end(end: TurnEnd | undefined): void } | undefined {
  const span = turn.trace?.begin(`invoke_agent ${providerId}`);
  if (span === undefined) return undefined;
  /** How to end the span of each open tool call. */
  const tools = new Map<string, (failed: boolean) => void>();

  function note(event: AgentEvent): void {
    if (event.kind !== 'tool_call') return;
    const { toolCallId, toolKind, status } = event;
    const endTool = tools.get(toolCallId) ?? beginTool(span, toolKind);
    if (OVER.has(status)) {
      tools.delete(toolCallId);
      endTool(status === 'failed');
    } else if (tools.size < MAX_OPEN_TOOLS) tools.set(toolCallId, endTool);
  }

  return {
    turn: {
      ...turn,
      trace: span,
      report(event, step) {
        // The steps of a run are turns with spans of their own.
        if (step === undefined) note(event);
        return turn.report(event, step);
      },
    },
    end(end) {
      for (const endTool of tools.values()) endTool(true);
      tools.clear();
      span.end(
        { ...turnAttributes(providerId, turn), ...endAttributes(end) },
        end?.kind !== 'completed' && end?.kind !== 'cancelled',
      );
    },
  };
}

function beginTool(turn: TurnTrace | undefined, kind: string): (failed: boolean) => void {
  const span = turn?.begin(`execute_tool ${kind}`);
  return (failed) => span?.end({ 'gen_ai.operation.name': 'execute_tool', 'gen_ai.tool.name': kind }, failed);
}

function turnAttributes(providerId: string, { turnId, owner }: AgentTurn): SpanAttributes {
  return {
    'gen_ai.operation.name': 'invoke_agent',
    'gen_ai.agent.name': providerId,
    'trestle.turn.id': turnId,
    'trestle.owner': owner,
  };
}

function endAttributes(end: TurnEnd | undefined): SpanAttributes {
  if (end === undefined) return { 'trestle.outcome': 'failed', 'error.type': 'INTERNAL_ERROR' };
  if (end.kind === 'lost') return { 'trestle.outcome': 'lost', 'error.type': 'SESSION_CONTINUATION_UNAVAILABLE' };
  const { inputTokens, outputTokens, costUsd } = end.usage ?? {};
  return {
    'trestle.outcome': end.kind,
    ...(inputTokens !== undefined && { 'gen_ai.usage.input_tokens': inputTokens }),
    ...(outputTokens !== undefined && { 'gen_ai.usage.output_tokens': outputTokens }),
    ...(costUsd !== undefined && { 'trestle.cost.usd': costUsd }),
    ...(end.kind === 'failed' && { 'error.type': end.code }),
  };
}
