import type { Clock } from '../../platform/clock/clock.ts';
import type {
  AgentEnd,
  AgentEvent,
  AgentProvider,
  AgentTurn,
  AskPermission,
  PermissionOption,
  PermissionPolicy,
  Permit,
  StepMark,
  SupervisedTurn,
  TurnEnd,
} from './agent-provider.ts';
import { createFinalText, createProgressThinning, withinLimits } from './agent-text.ts';
import { traceTurn } from './turn-trace.ts';

export interface Supervision {
  readonly provider: AgentProvider;
  readonly turn: AgentTurn;
  /** Asks the turn to stop. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Keeps work that nobody waits for until the bridge stops. */
  keep(work: Promise<unknown>): void;
}

/** Together with the time that force takes, this is less than the five seconds in which a cancelled turn must end. */
const STOP_MS = 4_000;
/** The minimum time between two usage reports of a turn. */
const USAGE_PAUSE_MS = 1_000;
/** After this time, a turn that was asked to stop ends without waiting for its agent. */
const ABANDON_MS = 7_000;

/**
 * Runs one turn of a provider, and is the only place that stops turns. A turn is asked to stop by its caller, or because its agent has
 * been silent for too long. If it does not, force is used, and then the turn ends without the agent. Events after the end of the turn are
 * dropped. Rejects only for unexpected errors.
 */
export async function superviseTurn(given: Supervision): Promise<TurnEnd> {
  const traced = traceTurn(given.provider.id, given.turn);
  if (traced === undefined) return supervise(given);
  let end: TurnEnd | undefined;
  try {
    end = await supervise({ ...given, turn: traced.turn });
    return end;
  } finally {
    traced.end(end);
  }
}

async function supervise({ provider, turn, signal, clock, keep }: Supervision): Promise<TurnEnd> {
  if (signal.aborted) return { kind: 'cancelled', output: '' };
  const { silenceMs, stopMs = STOP_MS } = provider.timeouts ?? {};
  const stop = new AbortController();
  const force = new AbortController();
  const abandoned = Promise.withResolvers<AgentEnd>();
  const text = createFinalText();
  const isWorthPassingOn = createProgressThinning();
  let hasReference = turn.reference !== undefined;
  let isOver = false;
  let isSilent = false;
  let lastSign = 0;
  let lastUsage = Number.NEGATIVE_INFINITY;
  /** Events that wait until the store has room. While there are any, the silence of the agent does not count. */
  let waits = 0;
  let cancelSilence = (): void => undefined;
  let cancelForce = (): void => undefined;
  let cancelAbandoning = (): void => undefined;

  function requestStop(): void {
    if (stop.signal.aborted) return;
    // Aborted before the timers start, so that the steps of a run are abandoned before the run is.
    stop.abort();
    cancelForce = clock.after(stopMs, () => force.abort());
    cancelAbandoning = clock.after(ABANDON_MS, () => abandoned.resolve({ kind: 'cancelled' }));
  }

  function listenFor(ms: number): void {
    const left = waits > 0 ? ms : lastSign + ms - clock.monotonic();
    if (left > 0) {
      cancelSilence = clock.after(left, () => listenFor(ms));
    } else {
      isSilent = true;
      requestStop();
    }
  }

  const supervised: SupervisedTurn = {
    ...turn,
    force: force.signal,
    output: text.value,
    begun() {
      lastSign = clock.monotonic();
      if (silenceMs !== undefined) listenFor(silenceMs);
    },
    opened(reference) {
      const isNew = !hasReference;
      hasReference = true;
      if (!isOver) return turn.opened(reference);
      // The turn is over, so no session will refer to this conversation.
      const left = (what: string) => turn.leftBehind(provider.id, what);
      if (isNew) keep(provider.close(reference, { owner: turn.owner, left }));
    },
    usedModel(model) {
      if (!isOver) turn.usedModel(model);
    },
    async permit(question, setting, asking) {
      const { toolCallId, title, options } = question;
      const policy = turn.isReadOnly === true ? 'deny' : setting;
      const isForm = 'form' in question;
      const isAsked = policy === 'allow' && !(isForm && question.form === undefined) && turn.ask !== undefined;
      const asked: Parameters<AskPermission>[2] = (request) => void report({ kind: 'question', ...request });
      const reply = isAsked ? await turn.ask?.(question, asking, asked) : undefined;
      const choice =
        reply === undefined ? choosePermission(policy, options) : chosenPermission(reply.optionId, options);
      const answer = reply?.values === undefined ? 'declined' : 'answered';
      const permit: Permit = { ...reply, ...choice, ...(isForm && { decision: answer }), isAsked };
      const { decision, reason, permissionId, answeredBy, rule } = permit;
      const named = {
        ...(toolCallId !== '' && { toolCallId }),
        ...(reason !== undefined && { reason }),
        ...(permissionId !== undefined && { permissionId }),
        ...(answeredBy !== undefined && { answeredBy }),
        ...(rule !== undefined && { rule }),
      };
      void report({ kind: 'permission', title, decision, ...named });
      return permit;
    },
    report,
  };

  function report(told: AgentEvent, step?: StepMark): Promise<void> | undefined {
    if (isOver) return undefined;
    lastSign = clock.monotonic();
    // The events of a step were supervised already.
    if (step !== undefined) return turn.report(told, step);
    if (!isWorthPassingOn(told)) return undefined;
    const event = withinLimits(told);
    if (event.kind === 'usage') {
      if (lastSign - lastUsage < USAGE_PAUSE_MS) return undefined;
      lastUsage = lastSign;
    }
    text.add(event);
    const room = turn.report(event);
    if (room === undefined) return undefined;
    waits += 1;
    return room.then(() => {
      waits -= 1;
      lastSign = clock.monotonic();
    });
  }

  signal.addEventListener('abort', requestStop);
  try {
    const end = await Promise.race([provider.run(supervised, stop.signal), abandoned.promise]);
    if (end.kind === 'lost') return end;
    const { output = text.value(), usage } = end;
    if (!isSilent) return { ...end, output };
    const error = `nothing has happened for ${silenceMs} ms`;
    return { kind: 'failed', code: 'AGENT_TIMEOUT', error, output, ...(usage !== undefined && { usage }) };
  } finally {
    isOver = true;
    signal.removeEventListener('abort', requestStop);
    cancelSilence();
    cancelForce();
    cancelAbandoning();
  }
}

/** Which of its options an agent gets as the answer. */
interface PermissionChoice {
  readonly decision: 'allowed' | 'denied';
  /** Undefined: none of the options fits, and the question is answered as cancelled. */
  readonly optionId: string | undefined;
}

/** In order of preference: once before always, because each question is decided separately. */
const WANTED: Readonly<Record<PermissionPolicy, readonly string[]>> = {
  allow: ['allow_once', 'allow_always'],
  deny: ['reject_once', 'reject_always'],
};

/** Chooses an option by its kind, because agents order their options differently, and some have several of one kind. */
export function choosePermission(policy: PermissionPolicy, options: readonly PermissionOption[]): PermissionChoice {
  const option = WANTED[policy].flatMap((wanted) => options.find(({ kind }) => kind === wanted) ?? []).at(0);
  return { decision: policy === 'allow' && option !== undefined ? 'allowed' : 'denied', optionId: option?.optionId };
}

/** What a person chose. An id that is not one of the options allows nothing. */
function chosenPermission(optionId: string | undefined, options: readonly PermissionOption[]): PermissionChoice {
  const option = options.find((offered) => offered.optionId === optionId);
  return { decision: option?.kind.startsWith('allow_') ? 'allowed' : 'denied', optionId: option?.optionId };
}
