import type { Clock } from '../../platform/clock/clock.ts';
import type { KeptProcess } from './agent-process-keeper.ts';
import type { AgentEvent, AgentTurn, TurnEnd, TurnUsage } from './agent-provider.ts';
import { createFinalText } from './final-text.ts';
import { createProgressThinning } from './thin-out-progress.ts';

type Failure = Extract<TurnEnd, { kind: 'failed' }>;

/** A turn from its beginning to its end. */
export interface OpenTurn {
  readonly turn: AgentTurn;
  /** Passes an event on, unless the turn is over. */
  report(event: AgentEvent): void;
  /** The final text so far. */
  output(): string;
  /** Where it runs, as soon as the agent works on it. */
  running: { readonly process: KeptProcess; readonly conversation: string } | undefined;
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

export interface OpenTurnOptions {
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
  let lastSign = clock.monotonic();
  let stopTimer = clock.after(silenceMs, listen);

  function listen(): void {
    const left = lastSign + silenceMs - clock.monotonic();
    if (left > 0) stopTimer = clock.after(left, listen);
    else onSilence(open);
  }

  const open: OpenTurn = {
    turn,
    report(event) {
      if (over) return;
      lastSign = clock.monotonic();
      if (!isWorthPassingOn(event)) return;
      text.add(event);
      turn.report(event);
    },
    output: text.value,
    running: undefined,
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
