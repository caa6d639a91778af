import { createHash } from 'node:crypto';
import { Agent, request } from 'node:http';
import type { Operation } from './check-operations.ts';

const WORD = /"content":"(w\d+ )"/g;
const LIMIT_MS = 120_000;
export const agent = new Agent({ keepAlive: true });

/** Asks for so many words, and notes what came. */
export function readStream(url: string, model: string, asked: number, isDirect: boolean): Promise<Operation> {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: String(asked) }] });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  const began = performance.now();
  const hash = createHash('sha256');
  let firstMs = Number.NaN;
  let rest = '';
  let isDone = false;

  function take(text: string): void {
    rest += text;
    const end = rest.lastIndexOf('\n\n');
    if (end === -1) return;
    const events = rest.slice(0, end);
    rest = rest.slice(end + 2);
    for (const [, word = ''] of events.matchAll(WORD)) {
      if (Number.isNaN(firstMs)) firstMs = performance.now() - began;
      hash.update(word);
    }
    if (events.endsWith('data: [DONE]')) isDone = true;
  }

  return new Promise((resolve) => {
    const told = (outcome: 'ok' | 'fail' | 'unknown') =>
      resolve({ kind: 'stream', isDirect, outcome, asked, digest: hash.digest('hex'), isDone, firstMs });
    const sent = request(`${url}/chat/completions`, { agent, method: 'POST', headers }, (answer) => {
      answer.setEncoding('utf8').on('data', take);
      answer.once('end', () => told(answer.statusCode === 200 ? 'ok' : 'fail'));
      answer.once('error', () => told('unknown'));
    });
    sent.setTimeout(LIMIT_MS, () => sent.destroy(new Error('silent for too long')));
    sent.once('error', () => told('unknown'));
    sent.end(body);
  });
}
