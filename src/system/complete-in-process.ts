import type { CompleteChat, CompletionChunk } from '../bridge/agents/builtin/complete-chat.ts';
import type { ChatRequest } from '../completions/contract/chat.ts';
import { completionsErrors } from '../completions/errors.ts';
import type { KeyHolder } from '../completions/keys/admission.ts';
import type { RunChat } from '../completions/pipeline/chat-run.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, isExpected } from '../platform/errors/error-table.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';

/** What this program itself asks of models is recorded under this name. */
const INTERNAL: KeyHolder = { id: 'internal', owner: '', isMaster: false, mayUse: () => true, buckets: [] };

/** Lets the built-in agent use the completions service of this program. `runChat` is asked for at the first use. */
export function createCompleteInProcess(runChat: () => RunChat, makeId: MakeId): CompleteChat {
  return async function* complete(request, signal): AsyncGenerator<CompletionChunk> {
    const call = {
      request: request as ChatRequest,
      holder: INTERNAL,
      requestId: makeId('req_'),
      strict: false,
      signal,
    };
    try {
      const answer = await runChat()(call);
      if (answer.kind !== 'stream') throw new Error('a stream was asked for');
      yield* answer.chunks;
    } catch (error) {
      if (!isExpected(completionsErrors, error)) throw error;
      const { message } = describeError(completionsErrors, error);
      throw new AppError('MODEL_FAILED', { reason: message }, { cause: error });
    }
  };
}
