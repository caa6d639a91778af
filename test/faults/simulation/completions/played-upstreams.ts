import type { Dispatcher, Pool } from 'undici';
import type { UpstreamPools } from '../../../../src/completions/upstream/upstream-pools.ts';
import { pause } from '../../../../src/platform/clock/clock.ts';
import { chunkEvent, deltaEvent } from '../../../kit/chat-chunk.ts';
import type { Chance } from '../chance.ts';
import type { PlayedProcess } from '../played-process.ts';
import type { AskedEvent, ToldEvent, UpstreamPart, UpstreamStatus } from './attempt-events.ts';

/** How a target fares just now. */
export type Mood = 'well' | 'slow' | 'flaky' | 'down' | 'refusing';

export interface PlayedUpstreamsOptions {
  /** That calls. */
  readonly process: PlayedProcess;
  readonly chance: Chance;
  /** Requests are counted over all processes. */
  readonly counter: { asks: number };
  moodOf(target: string): Mood;
  now(): number;
  note(event: AskedEvent | ToldEvent): void;
}

interface AskedBody {
  readonly model: string;
  readonly stream?: boolean;
  readonly messages: readonly { readonly content: string }[];
}

const PARTS: Readonly<Record<Mood, readonly (readonly [weight: number, part: UpstreamPart])[]>> = {
  well: [[1, 'answers']],
  slow: [
    [14, 'answers'],
    [3, 503],
    [2, 429],
    [1, 'stalls'],
  ],
  flaky: [
    [40, 'answers'],
    [12, 500],
    [8, 503],
    [8, 429],
    [3, 409],
    [2, 504],
    [8, 'breaks off'],
    [5, 'ends too early'],
    [5, 'talks nonsense'],
    [5, 'stalls'],
    [4, 'is unreachable'],
  ],
  down: [
    [7, 'is unreachable'],
    [2, 'says nothing'],
    [1, 503],
  ],
  refusing: [
    [3, 400],
    [3, 401],
    [2, 404],
    [2, 413],
    [4, 'answers'],
  ],
};

type Controller = Dispatcher.DispatchController & { resumed: (() => void) | undefined };

/** Model APIs of OpenAI's dialect, without a network: `http://<api>/`. */
export function createPlayedUpstreams(options: PlayedUpstreamsOptions): UpstreamPools {
  const { process, chance, counter, moodOf, now, note } = options;
  const { clock } = process;

  const gap = (mood: Mood): number => {
    if (mood === 'slow') return chance.between(200, chance.happens(0.5) ? 1900 : 9000);
    return chance.between(1, chance.happens(0.5) ? 5 : 400);
  };

  /** False when nobody listens any more. */
  async function wait(controller: Controller, ms: number): Promise<boolean> {
    if (ms > 0) await pause(clock, ms);
    while (controller.paused && !controller.aborted) {
      await new Promise<void>((resolve) => {
        controller.resumed = resolve;
      });
    }
    return !controller.aborted;
  }

  async function answer(api: string, request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) {
    const controller = createController(handler);
    handler.onRequestStart?.(controller, {});
    if (controller.aborted) return;
    const { model, stream = false, messages } = JSON.parse(String(request.body)) as AskedBody;
    const target = `${api}/${model}`;
    const mood = moodOf(target);
    const part = chance.weigh(PARTS[mood]);
    counter.asks += 1;
    const ask = counter.asks;
    const idempotencyKey = (request.headers as Record<string, string>)['idempotency-key'] ?? '';
    note({ kind: 'asked', at: now(), ask, call: messages[0]?.content ?? '', target, part, idempotencyKey });
    if (part === 'says nothing' || !(await wait(controller, gap(mood)))) return;
    if (part === 'is unreachable') {
      handler.onResponseError?.(controller, Object.assign(new Error('no connection'), { code: 'ECONNREFUSED' }));
      return;
    }
    if (typeof part === 'number') {
      tell(
        handler,
        controller,
        part,
        refusalOf(part),
        chance.happens(0.5) ? { 'retry-after': chance.pick(['1', '6', '20']) } : {},
      );
      return;
    }
    const usage = { prompt_tokens: chance.between(1, 40), completion_tokens: chance.between(1, 40) };
    const pieces = Array.from({ length: chance.between(1, 4) }, (_, index) => `${ask}.${index} `);
    const bodies = stream ? streamed(pieces, usage, part) : whole(pieces, usage, part);
    handler.onResponseStart?.(
      controller,
      200,
      { 'content-type': stream ? 'text/event-stream' : 'application/json' },
      'OK',
    );
    for (const [index, body] of bodies.entries()) {
      if (index > 0 && !(await wait(controller, gap(mood)))) return;
      if (controller.aborted) return;
      handler.onResponseData?.(controller, bytesOf(body));
      if (index === 0 && part === 'stalls') return;
      if (index === 0 && part === 'breaks off') {
        handler.onResponseError?.(controller, Object.assign(new Error('broken'), { code: 'ECONNRESET' }));
        return;
      }
    }
    if (controller.aborted) return;
    const tokens = { promptTokens: usage.prompt_tokens, completionTokens: usage.completion_tokens };
    if (part === 'answers') note({ kind: 'told', at: now(), ask, text: pieces.join(''), ...tokens });
    handler.onResponseEnd?.(controller, {});
  }

  return {
    open(origin) {
      const api = new URL(origin).hostname;
      const dispatch = process.whileAlive(
        (request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) => {
          void answer(api, request, handler);
        },
      );
      return { dispatch } as unknown as Pool;
    },
    close: async () => undefined,
  };
}

function createController(handler: Dispatcher.DispatchHandler): Controller {
  const state = { aborted: false, paused: false, reason: null as Error | null };
  const controller = {
    get aborted() {
      return state.aborted;
    },
    get paused() {
      return state.paused;
    },
    get reason() {
      return state.reason;
    },
    resumed: undefined as (() => void) | undefined,
    pause() {
      state.paused = true;
    },
    resume() {
      state.paused = false;
      controller.resumed?.();
    },
    abort(reason: Error) {
      if (state.aborted) return;
      state.aborted = true;
      state.reason = reason;
      controller.resumed?.();
      handler.onResponseError?.(controller as Controller, reason);
    },
  };
  return controller as Controller;
}

function tell(
  handler: Dispatcher.DispatchHandler,
  controller: Controller,
  status: number,
  body: string,
  headers: Record<string, string>,
): void {
  handler.onResponseStart?.(controller, status, { 'content-type': 'application/json', ...headers }, '');
  handler.onResponseData?.(controller, bytesOf(body));
  handler.onResponseEnd?.(controller, {});
}

/** As a reading of a socket gives them: in memory that nobody else uses. */
function bytesOf(text: string): Buffer {
  const bytes = Buffer.alloc(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}

function refusalOf(status: UpstreamStatus): string {
  const code = status === 413 ? 'context_length_exceeded' : 'played';
  return JSON.stringify({ error: { message: `refused with ${status}`, type: 'error', code, param: null } });
}

type Usage = { readonly prompt_tokens: number; readonly completion_tokens: number };

function whole(pieces: readonly string[], usage: Usage, part: UpstreamPart): string[] {
  if (part === 'talks nonsense') return ['<html>'];
  const message = { role: 'assistant', content: pieces.join('') };
  const choices = [{ index: 0, message, finish_reason: 'stop' }];
  const total_tokens = usage.prompt_tokens + usage.completion_tokens;
  const text = JSON.stringify({
    id: 'a',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices,
    usage: { ...usage, total_tokens },
  });
  const half = Math.floor(text.length / 2);
  return part === 'ends too early' ? [text.slice(0, half)] : [text.slice(0, half), text.slice(half)];
}

function streamed(pieces: readonly string[], usage: Usage, part: UpstreamPart): string[] {
  if (part === 'talks nonsense') return ['data: {"choices":\n\n'];
  const said = pieces.map((content) => deltaEvent({ content }));
  if (part === 'ends too early') return said;
  const total_tokens = usage.prompt_tokens + usage.completion_tokens;
  return [...said, deltaEvent({}, 'stop'), `${chunkEvent([], { usage: { ...usage, total_tokens } })}data: [DONE]\n\n`];
}
