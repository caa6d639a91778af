import type { PlainUpdate } from '../contract/workbench.ts';
import { splitTextLast, withoutMark } from '../sessions/update-text.ts';

/** The members of a stored update; older releases stored deltas in the form in which they are sent. */
interface StoredUpdate {
  readonly sessionId?: string;
  readonly threadId?: string;
  readonly turnId: string;
  readonly seq: number;
  readonly stepIndex?: number;
  readonly providerId?: string;
  readonly type?: string;
  readonly event?: string;
  readonly delta?: string;
  readonly message?: string;
  readonly pending?: unknown;
  readonly error?: unknown;
  readonly structuredEvent?: Readonly<Record<string, unknown>> & { readonly kind: string };
}

const PERMISSION = /^permission_(.+)$/;
const DECISION = /^(?:Allowed|Denied|Answered|Declined): /;

/** An update as the second surface sends it: each member once. */
export function plainUpdate(stored: string, at: number): PlainUpdate {
  const delta = splitTextLast(stored);
  if (delta !== undefined) {
    const head = JSON.parse(`{${delta.head}}`) as StoredUpdate;
    return { ...common(head, at), kind: 'text', text: JSON.parse(delta.text) as string };
  }
  const update = JSON.parse(withoutMark(stored)) as StoredUpdate;
  const { structuredEvent } = update;
  if (structuredEvent !== undefined) return { ...common(update, at), ...plainEvent(structuredEvent) } as PlainUpdate;
  if (update.type === 'delta') return { ...common(update, at), kind: 'text', text: update.delta ?? '' };
  return plainStage(update, at);
}

function common({ turnId, seq, stepIndex, providerId }: StoredUpdate, at: number) {
  return {
    seq,
    at,
    turnId,
    ...(stepIndex !== undefined && { stepIndex }),
    ...(providerId !== undefined && { providerId }),
  };
}

function plainEvent({ type: _kind, ...event }: NonNullable<StoredUpdate['structuredEvent']>) {
  if (event.kind === 'question') return { ...event, kind: 'permission', state: 'open' };
  const { status, text, plan, usage, modeId, commands, steer, kind: _permission, ...named } = event;
  if (plan !== undefined) return { kind: 'plan', entries: plan };
  if (usage !== undefined) return { kind: 'usage', ...(usage as object) };
  if (modeId !== undefined) return { kind: 'mode', modeId };
  if (commands !== undefined) return { kind: 'commands', commands };
  if (steer !== undefined) return { kind: 'steer', text: steer };
  const decision = event.kind === 'status' && typeof status === 'string' ? PERMISSION.exec(status) : null;
  if (decision === null) return event;
  return { kind: 'permission', state: decision[1], title: String(text).replace(DECISION, ''), ...named };
}

/** Makes the update about the state of a turn. `pending` and `error` follow from the kind; the error of a failed step is kept. */
function plainStage(update: StoredUpdate, at: number): PlainUpdate {
  const {
    type: _type,
    event,
    pending: _pending,
    error,
    message,
    sessionId: _session,
    threadId: _thread,
    ...members
  } = update;
  return {
    ...members,
    ...common(update, at),
    kind: event ?? 'status',
    message: message ?? '',
    ...(typeof error === 'string' && { error }),
  };
}
