import type { AgentEvent, StepMark } from '../agents/agent-provider.ts';
import { cutText } from '../agents/agent-text.ts';
import type { PlacedFile } from '../agents/prompt-content.ts';
import type { PlanEntry, TurnAttachment } from '../contract/session-update.ts';

/** Whose update it is. */
export interface UpdateOrigin extends Partial<StepMark> {
  readonly sessionId: string;
  readonly threadId: string;
  readonly turnId: string;
}

/** Makes the stored text of an update once its number is known. */
export type MakeUpdate = (seq: number) => string;

/** The text of one delta update; a longer one is split into several. */
const MAX_DELTA_LENGTH = 16 * 1024;
/** Of the prompt in the update `started`; `GET …/turns` has more of it. */
const MAX_SHOWN_PROMPT = 4096;
/** How a value begins that is stored with its text last; the length of what comes before the text follows. */
const TEXT_LAST_MARK = '+';

/** How an update begins that only the second surface, and nodes that ask for it, get. */
const QUESTION_MARK = '?';

/** Whether it is a question that waits for an answer: clients of the first surface do not know such updates. */
export function isQuestion(stored: string): boolean {
  return stored.startsWith(QUESTION_MARK);
}

/** The update as JSON. */
export function withoutMark(stored: string): string {
  return isQuestion(stored) ? stored.slice(QUESTION_MARK.length) : stored;
}

export type TurnStage = 'queued' | 'started' | 'running' | 'completed' | 'failed' | 'cancelled';

const PENDING: ReadonlySet<TurnStage> = new Set(['queued', 'started', 'running']);

/** Where a turn stands: `session.update` of type `status`. */
export function stageUpdate(
  origin: UpdateOrigin,
  stage: TurnStage,
  message: string,
  members: Readonly<Record<string, unknown>> = {},
): MakeUpdate {
  const state = { message, pending: PENDING.has(stage), error: stage === 'failed', ...members };
  return statusUpdate(origin, stage, state);
}

/** Clients that did not make the call see what the turn is about. */
export function startedUpdate(origin: UpdateOrigin, prompt: string, files: readonly PlacedFile[]): MakeUpdate {
  return stageUpdate(origin, 'started', 'The turn has started.', {
    prompt: cutText(prompt, MAX_SHOWN_PROMPT),
    ...(files.length > 0 && { attachments: files.map(shownFile) }),
  });
}

/** A file as clients see it: where it is concerns its agent alone. */
export function shownFile({ name, contentType, sizeBytes }: PlacedFile): TurnAttachment {
  return { name, contentType, sizeBytes };
}

/**
 * The update as clients get it. Most updates are stored as they are sent. The text of a delta stands in its notification
 * eight times, for older clients, so it is escaped and stored once and repeated here.
 */
export function wireText(stored: string): string {
  const delta = splitTextLast(stored);
  if (delta === undefined) return withoutMark(stored);
  const { head, text } = delta;
  return (
    `{${head},"type":"delta","event":"delta","delta":${text},"text":${text},"message":${text},` +
    `"structuredEvent":{"kind":"text","type":"text","text":${text}}}`
  );
}

/** The text of a stored delta, and which step of a multi-agent run wrote it; undefined for any other update. */
export function readDelta(stored: string): { readonly text: string; readonly stepIndex?: number } | undefined {
  const delta = splitTextLast(stored);
  if (delta === undefined) return undefined;
  const { stepIndex } = JSON.parse(`{${delta.head}}`) as { stepIndex?: number };
  return { text: JSON.parse(delta.text) as string, ...(stepIndex !== undefined && { stepIndex }) };
}

/** Joins members and a text, both as JSON, for the store. What is sent repeats the text; what is stored does not. */
export function withTextLast(head: string, text: string): string {
  return `${TEXT_LAST_MARK}${head.length} ${head}${text}`;
}

/** Undefined for what was stored in another form. */
export function splitTextLast(stored: string): { readonly head: string; readonly text: string } | undefined {
  if (!stored.startsWith(TEXT_LAST_MARK)) return undefined;
  const space = stored.indexOf(' ');
  const end = space + 1 + Number(stored.slice(1, space));
  return { head: stored.slice(space + 1, end), text: stored.slice(end) };
}

/** What the agent told, as one update or, where it is long, as several. */
export function eventUpdates(origin: UpdateOrigin, event: AgentEvent): readonly MakeUpdate[] {
  if ((event.kind !== 'text' && event.kind !== 'thinking') || event.text.length <= MAX_DELTA_LENGTH) {
    return [eventUpdate(origin, event)];
  }
  return pieces(event.text).map((text) => eventUpdate(origin, { kind: event.kind, text }));
}

function pieces(text: string): readonly string[] {
  const found: string[] = [];
  for (let at = 0; at < text.length; ) {
    const piece = cutText(text.slice(at, at + MAX_DELTA_LENGTH + 1), MAX_DELTA_LENGTH);
    found.push(piece);
    at += piece.length;
  }
  return found;
}

function eventUpdate(origin: UpdateOrigin, event: AgentEvent): MakeUpdate {
  switch (event.kind) {
    case 'text': {
      const origins = originText(origin);
      const text = JSON.stringify(event.text);
      return (seq) => {
        const head = `${origins},"seq":${seq}`;
        return withTextLast(head, text);
      };
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
      const { changes, exitCode, durationMs } = event;
      const shown = { kind, type: kind, toolCallId, title, status, toolKind, input, output, locations };
      return structuredUpdate(origin, title, { ...shown, changes, exitCode, durationMs });
    }
    case 'plan':
      return statusEvent(origin, planText(event.entries), { plan: event.entries });
    case 'usage': {
      const { kind: _kind, ...usage } = event;
      return statusEvent(origin, '', { usage });
    }
    case 'mode':
      return statusEvent(origin, '', { modeId: event.modeId });
    case 'commands':
      return statusEvent(origin, '', { commands: event.commands });
    case 'steer':
      return statusEvent(origin, `Message to the running turn: ${event.text}`, { steer: event.text });
    case 'permission': {
      const { title, decision, kind: _kind, ...named } = event;
      const text = `${decision[0]?.toUpperCase()}${decision.slice(1)}: ${title}`;
      return statusEvent(origin, text, { status: `permission_${decision}`, ...named });
    }
    case 'question': {
      const make = structuredUpdate(origin, event.title, { ...event, type: event.kind });
      return (seq) => `${QUESTION_MARK}${make(seq)}`;
    }
  }
}

/** The four kinds of the spec are the only ones on the first surface: everything else is a member of a status. */
function statusEvent(origin: UpdateOrigin, text: string, members: Readonly<Record<string, unknown>>): MakeUpdate {
  return structuredUpdate(origin, text, { kind: 'status', type: 'status', text, ...members });
}

function planText(entries: readonly PlanEntry[]): string {
  return entries.map(({ content, status }) => `- [${status === 'completed' ? 'x' : ' '}] ${content}`).join('\n');
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

/** All updates of a turn begin with the same names. */
const originTexts = new WeakMap<UpdateOrigin, string>();

function originText(origin: UpdateOrigin): string {
  const known = originTexts.get(origin);
  if (known !== undefined) return known;
  const { sessionId, threadId, turnId, stepIndex, providerId } = origin;
  const text = JSON.stringify({ sessionId, threadId, turnId, stepIndex, providerId }).slice(1, -1);
  originTexts.set(origin, text);
  return text;
}
