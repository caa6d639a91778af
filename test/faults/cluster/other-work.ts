import { setTimeout as sleep } from 'node:timers/promises';
import { callBridge, MODEL, numberedText, ROUTING, readTurn } from './followed-turn.ts';

export interface JobToRun {
  readonly name: string;
  readonly jobId: string;
}

export interface EndedWork {
  /** What must not be. */
  readonly wrong?: string;
}

const WORDS = 60;
const STREAM_MS = 120_000;
const AGAIN_MS = 200;

/** Submits a job under its name, again and again until the answer came: the name is its idempotency key. */
export async function beginJob(url: string, name: string): Promise<JobToRun> {
  const taskPrompt = `${name} ${numberedText(WORDS)}`;
  const params = { taskPrompt, idempotencyKey: name, routing: ROUTING };
  for (;;) {
    const { result } = await callBridge(url, 'app.jobs.submit', params).catch(() => ({ result: undefined }));
    const { jobId } = Object(result) as { readonly jobId?: string };
    if (jobId !== undefined) return { name, jobId };
    await sleep(AGAIN_MS);
  }
}

/** Undefined while the job or its turn has not ended, or cannot be read. Both must have the same end. */
export async function readJob(
  url: string,
  { name, jobId }: JobToRun,
): Promise<(EndedWork & { readonly isFailed: boolean }) | undefined> {
  const { result } = await callBridge(url, 'app.jobs.get', { jobId }).catch(() => ({ result: undefined }));
  const { status } = Object(result) as { readonly status?: string };
  if (status !== 'completed' && status !== 'failed') return undefined;
  const turn = (await readTurn(url, jobId).catch(() => undefined))?.turns.at(-1);
  if (turn === undefined || turn.status === 'running') return undefined;
  const isFailed = status === 'failed';
  if (turn.status !== status) return { isFailed, wrong: `${name} is ${status}, and its turn is ${turn.status}` };
  const isWhole = JSON.stringify(result).includes(numberedText(WORDS));
  return { isFailed, ...(!isFailed && !isWhole && { wrong: `${name} was completed without its words` }) };
}

/** Streams an answer of so many words. One that is whole by its own account must have all of them. */
export async function streamWords(url: string, words: number): Promise<EndedWork & { readonly isWhole: boolean }> {
  const asked = numberedText(words);
  const body = { model: MODEL, stream: true, messages: [{ role: 'user', content: asked }] };
  let text = '';
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(STREAM_MS),
    });
    text = await response.text();
    // As HAProxy answers for an instance that was lost.
    if (response.status >= 500) return { isWhole: false };
    if (response.status !== 200) return { isWhole: false, wrong: `an answer had status ${response.status}` };
  } catch {
    return { isWhole: false };
  }
  if (!text.endsWith('data: [DONE]\n\n')) return { isWhole: false };
  const came = [...text.matchAll(/"content":"((?:[^"\\]|\\.)*)"/g)].map(([, piece = '']) => piece).join('');
  return { isWhole: true, ...(came.trim() !== asked && { wrong: `an answer was ${came.slice(0, 200)}` }) };
}
