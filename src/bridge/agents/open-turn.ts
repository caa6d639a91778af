import type { Clock } from '../../platform/clock/clock.ts';
import type { KeptProcess } from './agent-process-keeper.ts';
import type { AgentEvent, AgentTurn, TurnEnd, TurnUsage } from './agent-provider.ts';
import { asObject, createFinalText, createProgressThinning } from './agent-text.ts';

type Failure = Extract<TurnEnd, { kind: 'failed' }>;

interface TurnPlace {
  readonly process: KeptProcess;
  readonly conversation: string;
}

/** A turn from its beginning to its end. */
export interface OpenTurn {
  readonly turn: AgentTurn;
  /** Passes an event on, unless the turn is over; as `AgentTurn.report`. */
  report(event: AgentEvent): Promise<void> | undefined;
  /** The final text so far. */
  output(): string;
  /** The agent works on it from now on: its silence is counted. */
  begin(where: TurnPlace): void;
  /** Where it runs; undefined until it was begun. */
  place(): TurnPlace | undefined;
  /** How the turn ends, whatever the agent makes of it, once it was stopped from outside. */
  verdict: ((usage: TurnUsage | undefined) => TurnEnd) | undefined;
  /** Ends the turn from outside: the first end counts. */
  end(end: TurnEnd): void;
  readonly ended: Promise<TurnEnd>;
  /** The turn has its result; nothing of it is reported any more. */
  finish(): void;
  readonly finished: Promise<void>;
  isOver(): boolean;
  failed(code: Failure['code'], error: string, usage?: TurnUsage): Failure;
}

interface OpenTurnOptions {
  readonly turn: AgentTurn;
  readonly clock: Clock;
  readonly silenceMs: number;
  onSilence(open: OpenTurn): void;
}

export function openTurn({ turn, clock, silenceMs, onSilence }: OpenTurnOptions): OpenTurn {
  const ended = Promise.withResolvers<TurnEnd>();
  const finished = Promise.withResolvers<void>();
  const text = createFinalText();
  const isWorthPassingOn = createProgressThinning();
  let over = false;
  let place: TurnPlace | undefined;
  let lastSign = 0;
  /** How many events wait until more may be reported; until then the silence of the agent does not count. */
  let waits = 0;
  let stopTimer = (): void => undefined;

  function listen(): void {
    const left = waits > 0 ? silenceMs : lastSign + silenceMs - clock.monotonic();
    if (left > 0) stopTimer = clock.after(left, listen);
    else onSilence(open);
  }

  const open: OpenTurn = {
    turn,
    report(event) {
      if (over) return undefined;
      lastSign = clock.monotonic();
      if (!isWorthPassingOn(event)) return undefined;
      text.add(event);
      const room = turn.report(event);
      if (room === undefined) return undefined;
      waits += 1;
      return room.then(() => {
        waits -= 1;
        lastSign = clock.monotonic();
      });
    },
    output: text.value,
    begin(where) {
      place = where;
      lastSign = clock.monotonic();
      stopTimer = clock.after(silenceMs, listen);
    },
    place: () => place,
    verdict: undefined,
    end(end) {
      over = true;
      ended.resolve(end);
    },
    ended: ended.promise,
    finish() {
      over = true;
      stopTimer();
      finished.resolve();
    },
    finished: finished.promise,
    isOver: () => over,
    failed: (code, error, usage) => ({
      kind: 'failed',
      code,
      error,
      output: text.value(),
      ...(usage !== undefined && { usage }),
    }),
  };
  return open;
}

/** All that is needed to go on with a conversation, also after a restart of the bridge. */
export interface ConversationReference {
  /** The agent's own name for it. */
  readonly conversation: string;
  readonly folder: string;
  /** Whether another process of the agent can take it up: what is not so is lost with its process. */
  readonly continues: boolean;
  /** Whether another process of the agent can delete it. */
  readonly deletes: boolean;
}

export function writeReference({ conversation, folder, continues, deletes }: ConversationReference): string {
  return JSON.stringify({ conversation, folder, continues, deletes });
}

export function readReference(text: string): ConversationReference | undefined {
  try {
    const { conversation, folder, continues, deletes } = asObject(JSON.parse(text));
    if (typeof conversation !== 'string' || typeof folder !== 'string') return undefined;
    return { conversation, folder, continues: continues === true, deletes: deletes === true };
  } catch {
    return undefined;
  }
}
