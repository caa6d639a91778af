import { createHash } from 'node:crypto';
import { Agent, request } from 'node:http';
import { wordsIn } from '../numbered-words.ts';
import type { Operation } from './check-operations.ts';

const LIMIT_MS = 120_000;
export const agent = new Agent({ keepAlive: true });

/** Asks for so many words, and notes what came. */
export function readStream(url: string, model: string, asked: number, isDirect: boolean): Promise<Operation> {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: String(asked) }] });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  const began = performance.now();
  /** Read at the end: while a thousand streams run, the machine has better to do. */
  const pieces: Buffer[] = [];
  let firstMs = Number.NaN;

  function take(piece: Buffer): void {
    pieces.push(piece);
    if (Number.isNaN(firstMs) && piece.includes('"content"')) firstMs = performance.now() - began;
  }

  function told(outcome: 'ok' | 'fail' | 'unknown'): Operation {
    const text = Buffer.concat(pieces).toString('utf8');
    const hash = createHash('sha256');
    for (const word of wordsIn(text)) hash.update(word);
    const isDone = text.endsWith('data: [DONE]\n\n');
    return { kind: 'stream', isDirect, outcome, asked, digest: hash.digest('hex'), isDone, firstMs };
  }

  return new Promise((resolve) => {
    const sent = request(`${url}/chat/completions`, { agent, method: 'POST', headers }, (answer) => {
      answer.on('data', take);
      answer.once('end', () => resolve(told(answer.statusCode === 200 ? 'ok' : 'fail')));
      answer.once('error', () => resolve(told('unknown')));
    });
    sent.setTimeout(LIMIT_MS, () => sent.destroy(new Error('silent for too long')));
    sent.once('error', () => resolve(told('unknown')));
    sent.end(body);
  });
}
