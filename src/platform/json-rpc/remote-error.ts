import { AppError } from '../errors/app-error.ts';

/**
 * The other side answered a request of ours with an error. Its words are for our code to read: they are no `details`,
 * so nothing of them reaches our own caller by itself.
 */
export class RemoteError extends AppError {
  /** 0 where the other side gave no number. */
  readonly rpcCode: number;
  readonly remoteMessage: string;
  readonly data: unknown;

  constructor(rpcCode: number, remoteMessage: string, data: unknown) {
    super('REMOTE_ERROR', { rpcCode });
    this.name = 'RemoteError';
    this.rpcCode = rpcCode;
    this.remoteMessage = remoteMessage;
    this.data = data;
  }
}

/** Reads the `error` member of a response, however badly it is made. */
export function toRemoteError(error: unknown): RemoteError {
  const { code, message, data } = Object(error) as Readonly<Record<string, unknown>>;
  return new RemoteError(typeof code === 'number' ? code : 0, typeof message === 'string' ? message : '', data);
}
