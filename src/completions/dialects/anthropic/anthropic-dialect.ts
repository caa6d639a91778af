import type { Dialect } from '../dialect.ts';
import { failureInBody } from '../failure.ts';
import { decodeAnthropicAnswer } from './anthropic-answer.ts';
import { encodeAnthropicRequest } from './anthropic-request.ts';
import { type AnthropicStreamState, decodeAnthropicEvent, startAnthropicStream } from './anthropic-stream.ts';

export const anthropicDialect: Dialect<AnthropicStreamState> = {
  name: 'anthropic',
  framing: 'sse',
  encodeRequest: encodeAnthropicRequest,
  decodeResponse: decodeAnthropicAnswer,
  decodeFailure: failureInBody,
  startStream: startAnthropicStream,
  decodeEvent: decodeAnthropicEvent,
};
