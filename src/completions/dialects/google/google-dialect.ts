import type { Dialect } from '../dialect.ts';
import { failureInBody } from '../failure.ts';
import { decodeGoogleAnswer } from './google-answer.ts';
import { encodeGoogleRequest, type GoogleHost } from './google-request.ts';
import { decodeGoogleEvent, endGoogleStream, type GoogleStreamState, startGoogleStream } from './google-stream.ts';

function createGoogleDialect(name: GoogleHost): Dialect<GoogleStreamState> {
  return {
    name,
    framing: 'sse',
    encodeRequest: (request, context) => encodeGoogleRequest(name, request, context),
    decodeResponse: decodeGoogleAnswer,
    decodeFailure: failureInBody,
    startStream: startGoogleStream,
    decodeEvent: decodeGoogleEvent,
    endStream: endGoogleStream,
  };
}

export const googleDialect = createGoogleDialect('google');

/** The same bodies under other paths; how it lets callers in differs too (`authorise-upstream.ts`). */
export const vertexDialect = createGoogleDialect('google-vertex');
