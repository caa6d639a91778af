import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '../../platform/errors/app-error.ts';

/** The headers of a request that another bridge has forwarded (spec/bridge 4.6, rule 6; contract/bridge 9). */
export interface ForwardedRequest {
  /** The first node on its way. */
  readonly source: string;
  /** The node that is to run it. */
  readonly target: string;
  /** How many times it was handed on so far. */
  readonly hop: number;
  /** The request's id on the first node. */
  readonly trace: string;
  /** Whose it is on the first node; empty for the holder of its main token. */
  readonly owner: string;
  /** A token for five minutes of the person that it is for; empty for none. It is a secret. */
  readonly person: string;
  /** The id of the team that the person works for; empty for none. */
  readonly team: string;
  /** The path it came on, which is the one it is handed on with. */
  readonly path: string;
}

export const FORWARDED_HEADER = 'x-app-bridge-forwarded';
const SOURCE = 'x-app-forward-source';
const TARGET = 'x-app-forward-target';
const HOP = 'x-app-forward-hop';
const TRACE = 'x-app-forward-trace';
const OWNER = 'x-app-forward-owner';
const PERSON = 'x-app-forward-person';
const TEAM = 'x-app-forward-team';

const NODE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const HOP_NUMBER = /^\d{1,3}$/;
const SIGNED_TOKEN = /^ey[\w-]{1,2000}\.[\w-]{1,4000}\.[\w-]{1,500}$/;
const WORD = /^[A-Za-z0-9:._-]{1,200}$/;

/** Reads the headers of a request that has the marker. A header that came twice is joined by a comma, and fits no pattern. */
export function readForwarded(headers: IncomingHttpHeaders, path: string): ForwardedRequest {
  if (headers[FORWARDED_HEADER] !== '1') throw malformed(FORWARDED_HEADER);
  return {
    source: read(headers, SOURCE, NODE_ID),
    target: read(headers, TARGET, NODE_ID),
    hop: Number(read(headers, HOP, HOP_NUMBER)),
    trace: headers[TRACE] === undefined ? '' : read(headers, TRACE, WORD),
    owner: headers[OWNER] === undefined ? '' : read(headers, OWNER, WORD),
    person: headers[PERSON] === undefined ? '' : read(headers, PERSON, SIGNED_TOKEN),
    team: headers[TEAM] === undefined ? '' : read(headers, TEAM, WORD),
    path,
  };
}

/** The hop of a request whose other headers may not count. Undefined when it has none, or a malformed one. */
export function readHop(headers: IncomingHttpHeaders): number | undefined {
  const value = headers[HOP];
  return typeof value === 'string' && HOP_NUMBER.test(value) ? Number(value) : undefined;
}

/** The header of a call to another bridge that is not forwarded, but made by an agent of this one. */
export function hopHeader(hop: number): Readonly<Record<string, string>> {
  return { [HOP]: String(hop) };
}

export function forwardHeaders(
  { source, target, hop, trace, owner, person, team }: Omit<ForwardedRequest, 'path'>,
  contract: string,
): Readonly<Record<string, string>> {
  return {
    [FORWARDED_HEADER]: '1',
    [SOURCE]: source,
    [TARGET]: target,
    [HOP]: String(hop),
    ...(trace !== '' && { [TRACE]: trace }),
    ...(owner !== '' && { [OWNER]: owner }),
    ...(person !== '' && { [PERSON]: person }),
    ...(team !== '' && { [TEAM]: team }),
    'x-app-contract': contract,
  };
}

function read(headers: IncomingHttpHeaders, name: string, pattern: RegExp): string {
  const value = headers[name];
  if (typeof value !== 'string' || !pattern.test(value)) throw malformed(name);
  return value;
}

function malformed(name: string): AppError {
  return new AppError('INVALID_REQUEST', {
    reason: `the header ${name} of a forwarded request is missing or malformed`,
  });
}
