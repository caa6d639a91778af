import { AppError } from '../../platform/errors/app-error.ts';
import { textOf } from '../agents/loose-json.ts';

const STOP_REASONS: ReadonlySet<unknown> = new Set(['end_turn', 'max_tokens', 'max_turn_requests', 'refusal']);

/** The result of a turn as the answer to `session/prompt`. What went wrong is an error there, in the words of the result. */
export function turnAnswer(result: Readonly<Record<string, unknown>>): { readonly stopReason: string } {
  const { status, stopReason, code } = result;
  if (status === 'cancelled') return { stopReason: 'cancelled' };
  // An agent that only used tools has done what it was asked to; the editor has seen it.
  if (status === 'completed' || code === 'EMPTY_OUTPUT') {
    return { stopReason: STOP_REASONS.has(stopReason) ? textOf(stopReason) : 'end_turn' };
  }
  const reason = textOf(result.error) || textOf(result.unavailableMessage) || 'The agent failed.';
  throw new AppError('EDITOR_TURN_FAILED', { reason, turnCode: textOf(code) || textOf(result.unavailableCode) });
}
