import type { Dialect } from '../dialect.ts';
import { failureInBody } from '../failure.ts';
import { decodeBedrockAnswer } from './bedrock-answer.ts';
import { encodeBedrockRequest } from './bedrock-request.ts';
import { type BedrockStreamState, decodeBedrockEvent, startBedrockStream } from './bedrock-stream.ts';

export const bedrockDialect: Dialect<BedrockStreamState> = {
  name: 'bedrock',
  framing: 'event-stream',
  encodeRequest: encodeBedrockRequest,
  decodeResponse: decodeBedrockAnswer,
  decodeFailure: failureInBody,
  startStream: startBedrockStream,
  decodeEvent: decodeBedrockEvent,
};
