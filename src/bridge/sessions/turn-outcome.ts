import { AppError, type ErrorCode } from '../../platform/errors/app-error.ts';
import { type RawJson, rawJson, rawJsonOf } from '../../platform/json-rpc/envelope.ts';
import type { TurnEnd } from '../agents/agent-provider.ts';
import { cutText, MAX_OUTPUT_LENGTH } from '../agents/agent-text.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import type { SessionResult } from '../contract/session.ts';
import { splitTextLast, type TurnStage, withTextLast } from './update-text.ts';

/** The members of a result that do not depend on how the turn ends. */
export type ResultBase = Omit<
  SessionResult,
  'success' | 'status' | 'output' | 'summary' | 'message' | 'error' | 'code' | 'stopReason' | 'usage'
>;

/** The outcome of a turn: a normal result, or an error of the call. */
export type TurnOutcome = SessionResult | TurnFailure;

export interface TurnFailure {
  readonly failure: { readonly code: ErrorCode; readonly details: Readonly<Record<string, unknown>> };
}

export interface TurnNames {
  readonly turnId: string;
  readonly sessionId: string;
  readonly threadId: string;
}

const SUMMARY_LENGTH = 280;
/** A result with a longer output is sent in parts. */
const LARGE_LENGTH = 64 * 1024;
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

/** Every way in which an agent's turn can end, as apps see it. `lost` is an error and not meant here. */
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

/** Returns the message of the last update of the turn. */
export function lastWords(outcome: TurnOutcome): string {
  return 'failure' in outcome ? outcome.failure.code : (outcome.error ?? outcome.summary);
}

/** An outcome as it is stored. `output` and `message` of a result are the same text, which may be long: it is stored once. */
export function outcomeText(outcome: TurnOutcome): string {
  if ('failure' in outcome) return JSON.stringify(outcome);
  const { output, message: _same, ...rest } = outcome;
  return withTextLast(JSON.stringify(rest).slice(1, -1), JSON.stringify(output));
}

/** What a stored outcome tells the caller: the result as it was, or the error again. */
export function answerOf(stored: string): RawJson {
  const result = splitTextLast(stored);
  if (result !== undefined) {
    const { head, text } = result;
    const parts = [`{${head},"output":`, text, ',"message":', text, '}'];
    return text.length > LARGE_LENGTH ? rawJsonOf(parts) : rawJson(parts.join(''));
  }
  // Results of 0.1.0 are stored as they are sent; none has such a member.
  if (!stored.startsWith('{"failure":')) return rawJson(stored);
  const { failure } = JSON.parse(stored) as TurnFailure;
  throw new AppError(failure.code, failure.details);
}

/** These three, and the code that every error has. */
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
