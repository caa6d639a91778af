import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { UsableApi } from '../apis/model-api.ts';
import type { ChatCompletion } from '../contract/chat.ts';
import type { Dialect, DialectContext } from '../dialects/dialect.ts';
import { loadDialect, loadedDialect } from '../dialects/dialect-table.ts';
import { createByteReader } from '../relay/byte-reader.ts';
import { createChunkReader, createFraming } from '../relay/chunk-reader.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { openStream } from '../relay/open-stream.ts';
import { estimatedUsage, findUsage, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import type { CallerPresence } from '../routing/call-record.ts';
import { DEMO_API } from '../routing/model-plan.ts';
import { failureToError, upstreamError } from '../routing/upstream-failure.ts';
import { type FetchLinkedFiles, hasLinkedFiles } from '../upstream/linked-files.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';
import { type ChatWork, dialectContext, encodeChat, type OpenedChat, speaksOpenai } from './encode-chat.ts';
import { openDemoChat } from './open-demo-chat.ts';

export type OpenChat = (attempt: Attempt, work: ChatWork, presence: CallerPresence) => Promise<OpenedChat>;

export interface OpenChatOptions {
  readonly findApi: (id: string) => UsableApi | undefined;
  readonly send: SendUpstream;
  readonly maxOutputTokens: (api: string, model: string) => number | undefined;
  readonly clock: Clock;
  readonly fetchLinkedFiles: FetchLinkedFiles;
  /** The largest event of a stream. */
  readonly maxEventBytes?: number;
}

const CHOICES = Buffer.from('"choices"');
/** An answer with one of these may have failed, or has reasoning or content in another form than OpenAI's. */
const UNUSUAL = ['"error"', '"reasoning"', '"content":[', '"content": ['].map((mark) => Buffer.from(mark));

export function createOpenChat(options: OpenChatOptions): OpenChat {
  const { findApi, send, maxOutputTokens, clock, fetchLinkedFiles, maxEventBytes } = options;
  return async (attempt, work, presence) => {
    const { target } = attempt;
    if (target.apiId === DEMO_API) {
      const { dropped, open } = openDemoChat({ work, model: target.model, presence, clock });
      refuseDropped(work, dropped);
      return { dropped, ...(await open()) };
    }
    const api = findApi(target.apiId);
    if (api === undefined) throw upstreamError('its key is not set any more');
    const dialect = loadedDialect(api.dialect) ?? (await loadDialect(api.dialect));
    const stream = work.request.stream === true;
    const context = dialectContext(api, target.model, {
      stream,
      id: work.answerId,
      created: work.created,
      translated: work.translated,
      maxOutputTokens: maxOutputTokens(target.apiId, target.model),
    });
    // Bedrock fetches nothing from the web.
    const fetches = api.dialect === 'bedrock' && hasLinkedFiles(work.request);
    const request = fetches ? await fetchLinkedFiles(work.request, presence) : work.request;
    const encoded = encodeChat(dialect, request, context, work.bytes);
    const { added } = work;
    const dropped = added === undefined ? encoded.dropped : encoded.dropped.filter((name) => !added.includes(name));
    refuseDropped(work, dropped);
    const sending = send({ api, attempt, encoded, stream, idempotencyId: work.idempotencyId });
    const start = sending instanceof Promise ? await sending : sending;
    const secret = api.credentials.key;
    const exchange = { start, decodeFailure: dialect.decodeFailure, secret, presence, now: clock.now };
    const choices = dropped.includes('n') ? 1 : (work.request.n ?? 1);
    const asBytes = work.answerAsBytes && speaksOpenai(dialect);
    if (!stream)
      return { dropped, ...readWhole(await openAnswer(exchange), { asBytes, dialect, context, work, secret }) };
    if (asBytes) {
      const usageAsked = work.request.stream_options?.include_usage === true;
      const reader = createByteReader({
        choices,
        usageAsked,
        promptTokens: work.promptTokens,
        maxEventBytes,
        chunkObject: 'chat.completion.chunk',
      });
      return { dropped, kind: 'byte-stream', stream: await openStream({ ...exchange, reader }) };
    }
    const framing = await createFraming(dialect.framing, maxEventBytes);
    const reader = createChunkReader({ dialect, context, framing, choices, promptTokens: work.promptTokens });
    return { dropped, kind: 'chunk-stream', stream: await openStream({ ...exchange, reader }) };
  };
}

interface WholeOptions {
  readonly asBytes: boolean;
  readonly dialect: Dialect;
  readonly context: DialectContext;
  readonly work: ChatWork;
  readonly secret: string;
}

function readWhole(body: Buffer, { asBytes, dialect, context, work, secret }: WholeOptions) {
  if (asBytes && body.includes(CHOICES) && !UNUSUAL.some((mark) => body.includes(mark))) {
    const usage = findUsage(body);
    if (usage !== undefined) {
      return { kind: 'bytes', body, measured: { usage, estimated: usage.estimated === true } } as const;
    }
  }
  const { completion, failure } = dialect.decodeResponse(parse(body), context);
  if (failure !== undefined) throw failureToError(failure, secret);
  if (completion.usage !== undefined) {
    const { usage } = completion;
    return { kind: 'completion', completion, measured: { usage, estimated: usage.estimated === true } } as const;
  }
  const usage = estimatedUsage(work.promptTokens, tokensOfCharacters(answerLength(completion)));
  return { kind: 'completion', completion: { ...completion, usage }, measured: { usage, estimated: true } } as const;
}

function answerLength({ choices }: ChatCompletion): number {
  let characters = 0;
  for (const { message } of choices) {
    characters += (message.content?.length ?? 0) + (message.reasoning_content?.length ?? 0);
    for (const call of message.tool_calls ?? []) characters += JSON.stringify(call).length;
  }
  return characters;
}

/** With `strict`, what would be dropped is an error instead (contract/completions 2). */
function refuseDropped({ strict }: ChatWork, [param]: readonly string[]): void {
  if (strict && param !== undefined) throw new AppError('UNSUPPORTED_PARAMETER', { param });
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw upstreamError('its answer is not JSON', error);
  }
}
