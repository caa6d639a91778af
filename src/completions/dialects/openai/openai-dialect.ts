import type { Dialect } from '../dialect.ts';
import { failureInBody } from '../failure.ts';
import { decodeOpenaiAnswer, decodeOpenaiEvent, type OpenaiStreamState, startOpenaiStream } from './openai-answer.ts';
import { encodeOpenaiRequest } from './openai-request.ts';

export const openaiDialect: Dialect<OpenaiStreamState> = {
  name: 'openai',
  framing: 'sse',
  encodeRequest: encodeOpenaiRequest,
  decodeResponse: decodeOpenaiAnswer,
  decodeFailure: failureInBody,
  startStream: startOpenaiStream,
  decodeEvent: decodeOpenaiEvent,
};
