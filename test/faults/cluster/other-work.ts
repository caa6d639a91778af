import {
  callBridge,
  callUntilAnswered,
  modelOf,
  numberedText,
  type Pace,
  readTurn,
  routingOf,
} from './followed-turn.ts';

export interface JobToRun {
  readonly name: string;
  readonly jobId: string;
}

export interface EndedWork {
  /** What must not be. */
  readonly wrong?: string;
}

const STREAM_MS = 240_000;

/** Submits a job under its name, again and again until the answer came: the name is its idempotency key. */
export async function beginJob(url: string, name: string, pace: Pace): Promise<JobToRun> {
  const taskPrompt = `${name} ${numberedText(pace.words)}`;
  const params = { taskPrompt, idempotencyKey: name, routing: routingOf(pace) };
  const { result, code } = await callUntilAnswered(url, 'app.jobs.submit', params, name);
  if (result === undefined) throw new Error(`${name} was refused with ${code}`);
  return { name, jobId: String(result.jobId) };
}

/** Undefined when it cannot be read. */
export async function statusOfJob(url: string, { jobId }: JobToRun): Promise<string | undefined> {
  const { result } = await callBridge(url, 'app.jobs.get', { jobId }).catch(() => ({ result: undefined }));
  return (Object(result) as { readonly status?: string }).status;
}

/** Undefined while the job or its turn has not ended, or cannot be read. Both must have the same end. */
export async function readJob(
  url: string,
  { name, jobId }: JobToRun,
  { words }: Pace,
): Promise<(EndedWork & { readonly failedWith: string | undefined }) | undefined> {
  const { result } = await callBridge(url, 'app.jobs.get', { jobId }).catch(() => ({ result: undefined }));
  const { status } = Object(result) as { readonly status?: string };
  if (status !== 'completed' && status !== 'failed') return undefined;
  const turn = (await readTurn(url, jobId).catch(() => undefined))?.turns.at(-1);
  if (turn === undefined || turn.status === 'running') return undefined;
  const failedWith = status === 'failed' ? `${turn.code} ${turn.error ?? ''}` : undefined;
  if (turn.status !== status) return { failedWith, wrong: `${name} is ${status}, and its turn is ${turn.status}` };
  const isWhole = JSON.stringify(result).includes(numberedText(words));
  const isWrong = status === 'completed' && !isWhole;
  return { failedWith, ...(isWrong && { wrong: `${name} was completed without its words` }) };
}

export interface StreamedWords {
  /** Resolves when the first words are there, or never will be. */
  readonly begun: Promise<void>;
  hasEnded(): boolean;
  readonly ended: Promise<EndedWork & { readonly isWhole: boolean; readonly reason: string }>;
}

/** Streams an answer. One that is whole by its own account must have all of its words. */
export function streamWords(url: string, pace: Pace): StreamedWords {
  const asked = numberedText(pace.words);
  const begun = Promise.withResolvers<void>();

  async function read(): ReturnType<() => StreamedWords['ended']> {
    const body = { model: modelOf(pace), stream: true, messages: [{ role: 'user', content: asked }] };
    let text = '';
    try {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(STREAM_MS),
      });
      for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        text += piece;
        begun.resolve();
      }
      if (response.status !== 200) {
        const reason = `an answer had status ${response.status}: ${text.slice(0, 200)}`;
        // As HAProxy answers for an instance that was lost.
        return { isWhole: false, reason, ...(response.status < 500 && { wrong: reason }) };
      }
    } catch (error) {
      return { isWhole: false, reason: `${error} after ${text.length} characters` };
    }
    if (!text.endsWith('data: [DONE]\n\n')) return { isWhole: false, reason: `it ended with ${text.slice(-200)}` };
    const came = [...text.matchAll(/"content":"((?:[^"\\]|\\.)*)"/g)].map(([, piece = '']) => piece).join('');
    const wrong = came.trim() === asked ? {} : { wrong: `an answer was ${came.slice(0, 200)}` };
    return { isWhole: true, reason: '', ...wrong };
  }
  let hasEnded = false;
  const ended = read().finally(() => {
    hasEnded = true;
    begun.resolve();
  });
  return { begun: begun.promise, hasEnded: () => hasEnded, ended };
}
