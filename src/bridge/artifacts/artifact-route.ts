import { createReadStream } from 'node:fs';
import { basename } from 'node:path';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call } from '../../platform/http/surface.ts';
import type { RelayedFile } from '../agents/agent-provider.ts';
import { RUNNER_MARK } from './artifact-links.ts';
import type { Artifacts, KeptFile } from './create-artifacts.ts';

export interface DownloadParts {
  readonly artifacts: Pick<Artifacts, 'find'>;
  readonly clock: Pick<Clock, 'after'>;
  /** Aborts when the bridge stops. */
  readonly stopped: AbortSignal;
  /** Request a file by the link of another bridge, which is a node or a remote agent. Undefined: the agent is unknown. */
  fromNode(id: string, path: string, signal: AbortSignal): Promise<RelayedFile>;
  fromAgent(id: string, path: string, signal: AbortSignal, runner?: string): Promise<RelayedFile> | undefined;
  /** Requests a file of another instance of this database. Undefined: there are no others. */
  fromInstance: ((row: KeptFile['row'], signal: AbortSignal) => Promise<RelayedFile>) | undefined;
}

/** The maximum number of simultaneous downloads through this bridge, of all clients and of one, and the time limit of each. */
const MAX_RELAYED = 64;
const MAX_RELAYED_OF_ADDRESS = 48;
const MAX_RELAY_MS = 15 * 60_000;

/** The download of a file that a turn produced: the signature in the path is the credential. */
export function createDownload({ artifacts, clock, stopped, ...parts }: DownloadParts) {
  /** The client of each download that is under way. */
  const relayed: string[] = [];

  async function relay(address: string, request: (signal: AbortSignal) => Promise<RelayedFile>): Promise<RelayedFile> {
    const own = relayed.filter((one) => one === address).length;
    if (relayed.length >= MAX_RELAYED || own >= MAX_RELAYED_OF_ADDRESS) throw new AppError('OVERLOADED');
    relayed.push(address);
    const tooLong = new AbortController();
    const stopTimer = clock.after(MAX_RELAY_MS, () => tooLong.abort());
    const ended = () => {
      relayed.splice(relayed.indexOf(address), 1);
      stopTimer();
    };
    try {
      const file = await request(AbortSignal.any([stopped, tooLong.signal]));
      file.body.once('close', ended);
      return file;
    } catch (error) {
      ended();
      throw error;
    }
  }

  async function fetchLink(place: string, path: string, signal: AbortSignal): Promise<RelayedFile> {
    const [kind, id] = [place.slice(0, place.indexOf('.')), place.slice(place.indexOf('.') + 1)];
    const [agent = '', runner] = id.split(RUNNER_MARK);
    const file = kind === 'node' ? parts.fromNode(id, path, signal) : parts.fromAgent(agent, path, signal, runner);
    if (file === undefined) throw new AppError('NOT_FOUND');
    return file;
  }

  async function fetchKept(row: KeptFile['row'], signal: AbortSignal): Promise<RelayedFile> {
    if (parts.fromInstance === undefined) throw new AppError('NOT_FOUND');
    return parts.fromInstance(row, signal);
  }

  async function keptFile({ row, file }: KeptFile, address: string) {
    const { content_type: contentType, size_bytes: sizeBytes } = row;
    if (file === undefined) {
      const { body } = await relay(address, (signal) => fetchKept(row, signal));
      return { contentType, sizeBytes, body };
    }
    return { contentType, sizeBytes, body: sizeBytes === 0 ? '' : createReadStream(file, { end: sizeBytes - 1 }) };
  }

  return async ({ head, reply }: Pick<Call, 'head' | 'reply'>): Promise<unknown> => {
    const found = await artifacts.find(head.path);
    const name =
      'row' in found ? basename(String(JSON.parse(found.row.relative_path))) : decodeName(basename(found.path));
    const { contentType, sizeBytes, body } =
      'row' in found
        ? await keptFile(found, head.address)
        : await relay(head.address, (signal) => fetchLink(found.place, found.path, signal));
    reply.header('content-type', contentType);
    reply.header('content-length', sizeBytes);
    reply.header('content-disposition', `attachment; filename*=UTF-8''${encodeName(name)}`);
    return reply.send(body);
  };
}

/** Decodes a name from a link or a header. Returns it unchanged if it is not properly encoded. */
export function decodeName(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** Encodes a name as RFC 8187 requires, including the characters that encodeURIComponent leaves unchanged. */
function encodeName(name: string): string {
  return encodeURIComponent(name.toWellFormed()).replaceAll(/['()*]/g, (character) => {
    return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  });
}
