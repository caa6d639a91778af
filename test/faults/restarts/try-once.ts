import { type Agent, request } from 'node:http';

/** How one try of a call ended. */
export type Tried =
  | { readonly end: 'answered'; readonly status: number; readonly text: string; readonly retryAfterMs: number }
  | { readonly end: 'refused' }
  | { readonly end: 'cut'; readonly problem: string };

export interface Try {
  /** Keeps connections between tries, as clients do. */
  readonly agent: Agent;
  readonly url: string;
  readonly body: object;
  /** Called when the head of an answer has come. */
  onHead?(): void;
}

const LIMIT_MS = 60_000;

/** Posts it once and waits for the whole answer, be it a document or a stream. */
export function tryOnce({ agent, url, body, onHead }: Try): Promise<Tried> {
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
  return new Promise((resolve) => {
    const lose = (error: NodeJS.ErrnoException): void =>
      resolve(error.syscall === 'connect' ? { end: 'refused' } : { end: 'cut', problem: describe(error) });
    const sent = request(url, { agent, method: 'POST', headers }, (answer) => {
      onHead?.();
      let received = '';
      answer.setEncoding('utf8').on('data', (piece: string) => {
        received += piece;
      });
      answer.once('error', lose);
      answer.once('end', () => {
        const retryAfterMs = Number(answer.headers['retry-after'] ?? 0) * 1000;
        resolve({ end: 'answered', status: answer.statusCode ?? 0, text: received, retryAfterMs });
      });
    });
    const describe = ({ message, code }: NodeJS.ErrnoException): string =>
      `${code} ${message}, on a connection that was ${sent.reusedSocket ? 'kept' : 'new'}`;
    sent.setTimeout(LIMIT_MS, () => sent.destroy(new Error('silent for too long')));
    sent.once('error', lose);
    sent.end(text);
  });
}
