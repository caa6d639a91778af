import type { AgentEvent, StepMark } from '../agents/agent-provider.ts';

/** Whose update it is. */
export interface UpdateOrigin extends Partial<StepMark> {
  readonly sessionId: string;
  readonly threadId: string;
  readonly turnId: string;
}

/** Makes the JSON text of an update once its number is known. */
export type MakeUpdate = (seq: number) => string;

export type TurnStage = 'queued' | 'started' | 'running' | 'completed' | 'failed' | 'cancelled';

const PENDING: ReadonlySet<TurnStage> = new Set(['queued', 'started', 'running']);

/** Where a turn stands: `session.update` of type `status` (contract/bridge 4). */
export function stageUpdate(origin: UpdateOrigin, stage: TurnStage, message: string): MakeUpdate {
  const state = { message, pending: PENDING.has(stage), error: stage === 'failed' };
  return statusUpdate(origin, stage, state);
}

/**
 * What the agent told. Each update is serialised once, whoever gets it, and a delta's text is escaped once although it
 * stands in it four times: it is what most updates are.
 */
export function eventUpdate(origin: UpdateOrigin, event: AgentEvent): MakeUpdate {
  switch (event.kind) {
    case 'text': {
      const head = originText(origin);
      const text = JSON.stringify(event.text);
      return (seq) =>
        `{${head},"seq":${seq},"type":"delta","event":"delta","delta":${text},"text":${text},"message":${text},` +
        `"structuredEvent":{"kind":"text","type":"text","text":${text}}}`;
    }
    case 'stage':
      return statusUpdate(origin, event.event, {
        message: event.message,
        pending: true,
        error: false,
        ...event.members,
      });
    case 'thinking':
    case 'status': {
      const { kind, text } = event;
      return structuredUpdate(origin, text, { kind, type: kind, text });
    }
    case 'tool_call': {
      // Member by member: what else an implementation may carry along stays inside.
      const { kind, toolCallId, title, status, toolKind, input, output, locations } = event;
      const shown = { kind, type: kind, toolCallId, title, status, toolKind, input, output, locations };
      return structuredUpdate(origin, title, shown);
    }
    case 'permission': {
      const text = `${event.decision === 'allowed' ? 'Allowed' : 'Denied'}: ${event.title}`;
      const { toolCallId, decision } = event;
      const shown = { kind: 'status', type: 'status', text, status: `permission_${decision}`, toolCallId };
      return structuredUpdate(origin, text, shown);
    }
  }
}

function structuredUpdate(
  origin: UpdateOrigin,
  message: string,
  structuredEvent: { readonly kind: string } & Readonly<Record<string, unknown>>,
): MakeUpdate {
  return statusUpdate(origin, structuredEvent.kind, { message, pending: true, error: false, structuredEvent });
}

function statusUpdate(origin: UpdateOrigin, event: string, members: Readonly<Record<string, unknown>>): MakeUpdate {
  const rest = JSON.stringify(members).slice(1);
  const head = originText(origin);
  return (seq) => `{${head},"seq":${seq},"type":"status","event":"${event}",${rest}`;
}

function originText({ sessionId, threadId, turnId, stepIndex, providerId }: UpdateOrigin): string {
  return JSON.stringify({ sessionId, threadId, turnId, stepIndex, providerId }).slice(1, -1);
}
