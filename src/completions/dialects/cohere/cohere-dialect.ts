import type { Dialect } from '../dialect.ts';
import { failureInBody } from '../failure.ts';
import { decodeCohereAnswer } from './cohere-answer.ts';
import { encodeCohereRequest } from './cohere-request.ts';
import { type CohereStreamState, decodeCohereEvent, startCohereStream } from './cohere-stream.ts';

export const cohereDialect: Dialect<CohereStreamState> = {
  name: 'cohere',
  framing: 'sse',
  encodeRequest: encodeCohereRequest,
  decodeResponse: decodeCohereAnswer,
  decodeFailure: failureInBody,
  startStream: startCohereStream,
  decodeEvent: decodeCohereEvent,
};
