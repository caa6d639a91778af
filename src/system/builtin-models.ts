import type { CompleteChat, CompletionChunk, ModelCaller } from '../bridge/agents/builtin/complete-chat.ts';
import { refuseUncharged } from '../bridge/principal.ts';
import type { ChatRequest } from '../completions/contract/chat.ts';
import type { Completions } from '../completions/create-completions.ts';
import { completionsErrors } from '../completions/errors.ts';
import type { KeyHolder } from '../completions/keys/admission.ts';
import type { RunChat } from '../completions/operations/run-chat.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, isExpected } from '../platform/errors/error-table.ts';
import type { Payer } from '../platform/identity/owner.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';

/** The API at `agents.builtin.base_url`, as prices, plans and usage name it. */
const BUILTIN_API = 'agents.builtin';

/** What this program itself asks of models is recorded under this name. */
const INTERNAL: KeyHolder = { id: 'internal', owner: '', isMaster: false, mayUse: () => true, buckets: [] };

const NO_COMPLETIONS =
  'the completions service, which charges them, does not run in this program. Run both in one program, or name another agent.';

/** Who the engine of a bridge alone works for: the operator, who pays for it. */
async function uncharged({ owner }: Payer): Promise<KeyHolder> {
  refuseUncharged(owner, NO_COMPLETIONS);
  return INTERNAL;
}

/** A holder whose calls are part of the trace of the turn, and of its cost. */
function forTurn(holder: KeyHolder, { trace, costs }: ModelCaller): KeyHolder {
  return {
    ...holder,
    ...(trace?.context !== undefined && { trace: trace.context }),
    ...(costs !== undefined && { tally: costs }),
  };
}

/** Lets the built-in agent use the completions service of this program. `runChat` is asked for at the first use. */
export function createCompleteInProcess(
  runChat: () => RunChat,
  completions: Pick<Completions, 'holderOf'> | undefined,
  makeId: MakeId,
): CompleteChat {
  const holderOf = completions?.holderOf ?? uncharged;
  return async function* complete(request, signal, payer): AsyncGenerator<CompletionChunk> {
    try {
      const holder = forTurn(await holderOf(payer), payer);
      const call = { request: request as ChatRequest, holder, requestId: makeId('req_'), strict: false, signal };
      const answer = await runChat()(call);
      if (answer.kind !== 'stream') throw new Error('a stream was asked for');
      yield* answer.chunks;
    } catch (error) {
      throw asAgentsFailure(error);
    }
  };
}

/**
 * Charges people for what the API at `agents.builtin.base_url` answers, by the limits, budgets and prices of the completions
 * service of this program. A model without a price is not for them: whether it costs nothing is said, not assumed.
 */
export function createChargeElsewhere(
  completions: Pick<Completions, 'holderOf' | 'meterChat' | 'isPriced'> | undefined,
  makeId: MakeId,
): (complete: CompleteChat) => CompleteChat {
  return (complete) =>
    async function* charged(request, signal, payer): AsyncGenerator<CompletionChunk> {
      if (completions === undefined) {
        refuseUncharged(payer.owner, NO_COMPLETIONS);
        yield* complete(request, signal, payer);
        return;
      }
      const { model } = request;
      if (!completions.isPriced(BUILTIN_API, model)) refuseUncharged(payer.owner, unpriced(model));
      try {
        const holder = forTurn(await completions.holderOf(payer), payer);
        const chat = { holder, requestId: makeId('req_'), api: BUILTIN_API, request: request as ChatRequest, signal };
        yield* completions.meterChat(chat, (given) => complete(request, given, payer));
      } catch (error) {
        throw asAgentsFailure(error);
      }
    };
}

const MAX_SHOWN_NAME = 200;

function unpriced(model: string): string {
  const name = `${BUILTIN_API}/${model.slice(0, MAX_SHOWN_NAME)}`;
  return `completions.prices has no price for "${name}". Add one; for a model that costs nothing, input and output are 0.`;
}

/** An error of the completions service, as the bridge reports it. */
function asAgentsFailure(error: unknown): unknown {
  if (!isExpected(completionsErrors, error)) return error;
  const { code, message } = describeError(completionsErrors, error);
  return new AppError(code === 'BUDGET_EXCEEDED' ? code : 'MODEL_FAILED', { reason: message }, { cause: error });
}
