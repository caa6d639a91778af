import { AppError } from '../../platform/errors/app-error.ts';
import { type RawJson, rawJson } from '../../platform/json-rpc/envelope.ts';
import type { TurnEnd } from '../agents/agent-provider.ts';
import { cutText, MAX_OUTPUT_LENGTH } from '../agents/final-text.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import type { SessionResult } from '../contract/session.ts';
import type { TurnStage } from './update-text.ts';

/** What a result says however the turn ends. */
export type ResultBase = Omit<
  SessionResult,
  'success' | 'status' | 'output' | 'summary' | 'message' | 'error' | 'code' | 'stopReason' | 'usage'
>;

/** How a turn came out: a normal result, or an error of the call. */
export type TurnOutcome = SessionResult | TurnFailure;

export interface TurnFailure {
  readonly failure: { readonly code: string; readonly details: Readonly<Record<string, unknown>> };
}

export interface TurnNames {
  readonly turnId: string;
  readonly sessionId: string;
  readonly threadId: string;
}

const SUMMARY_LENGTH = 280;
const MODES = { 'single-agent': 'single-agent', 'multi-agent': 'multi-agent', gateway: 'gateway-chat' } as const;

export function resultBase(names: TurnNames, route: RoutingResolution, workingDirectory: string): ResultBase {
  const { status: _status, ...resolution } = route;
  return {
    ...resolution,
    ...names,
    mode: MODES[route.resolvedExecutionTarget],
    artifacts: [],
    resolvedWorkingDirectory: workingDirectory,
  };
}

/** Every way in which an agent's turn can end, as contract/bridge 4 tells it. `lost` is an error and not meant here. */
export function resultOf(base: ResultBase, end: Exclude<TurnEnd, { kind: 'lost' }>): SessionResult {
  const { output } = end;
  const usage = end.usage === undefined ? {} : { usage: end.usage };
  const common = { ...base, ...texts(output), ...usage, ...end.members };
  switch (end.kind) {
    case 'completed': {
      const { stopReason } = end;
      if (output.trim() !== '') return { ...common, success: true, status: 'completed', stopReason };
      return { ...common, ...failed('EMPTY_OUTPUT', 'The agent ended without saying anything.'), stopReason };
    }
    case 'cancelled':
      return {
        ...common,
        success: false,
        status: 'cancelled',
        code: 'TURN_CANCELLED',
        error: 'The turn was cancelled.',
        stopReason: 'cancelled',
      };
    case 'failed':
      return { ...common, ...failed(end.code, end.error) };
  }
}

/** The bridge stopped, or could not go on storing, while the turn was open. */
export function interruptedResult(base: ResultBase, output: string, error: string): SessionResult {
  return { ...base, ...texts(output), ...failed('TURN_INTERRUPTED', error) };
}

export function unavailableResult(base: ResultBase): SessionResult {
  const { unavailableCode: code = '', unavailableMessage: error = '' } = base;
  return { ...base, ...texts(''), success: false, status: 'unavailable', code, error };
}

/** The stage that the last update of the turn tells. */
export function stageOf(outcome: TurnOutcome): TurnStage {
  if ('failure' in outcome || outcome.status === 'unavailable') return 'failed';
  return outcome.status;
}

/** What people read in the last update of the turn. */
export function lastWords(outcome: TurnOutcome): string {
  return 'failure' in outcome ? outcome.failure.code : (outcome.error ?? outcome.summary);
}

/** What a stored outcome tells the caller: the result as it was, or the error again. */
export function answerOf(outcomeText: string): RawJson {
  // No result has such a member, and a result may be long: it is not parsed to be sent as it is.
  if (!outcomeText.startsWith('{"failure":')) return rawJson(outcomeText);
  const { failure } = JSON.parse(outcomeText) as TurnFailure;
  throw new AppError(failure.code, failure.details);
}

/** Spec/bridge 7: these three, and the code that every error has. */
export function continuationLost(sessionId: string, threadId: string, providerId: string): AppError {
  return new AppError('SESSION_CONTINUATION_UNAVAILABLE', { sessionId, threadId, providerId });
}

function failed(code: string, error: string) {
  return { success: false, status: 'failed', code, error } as const;
}

function texts(whole: string) {
  const output = cutText(whole, MAX_OUTPUT_LENGTH);
  return { output, message: output, summary: summaryOf(output) };
}

/** Cut between words, where there are words. */
function summaryOf(output: string): string {
  if (output.length <= SUMMARY_LENGTH) return output;
  const start = output.slice(0, SUMMARY_LENGTH);
  const space = start.lastIndexOf(' ');
  return `${(space > SUMMARY_LENGTH / 2 ? start.slice(0, space) : start).toWellFormed().trimEnd()}…`;
}
