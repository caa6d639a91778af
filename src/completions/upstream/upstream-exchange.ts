import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { afterReads, Bag, type Bagged } from '../../platform/queue/after-reads.ts';
import { type UpstreamHeaders, upstreamError, upstreamTimeout } from '../routing/upstream-failure.ts';
import type { UpstreamPool } from './upstream-pools.ts';

/** Text, or parts that are sent in order: the caller's own bytes, with changed members between them. */
export type UpstreamBody = string | readonly Buffer[];

export interface UpstreamCall {
  /** For messages about failures of the connection. */
  readonly host: string;
  readonly path: string;
  /** Absent: POST. */
  readonly method?: UpstreamMethod | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: UpstreamBody;
}

/** GET and DELETE go without a body. */
export type UpstreamMethod = 'GET' | 'POST' | 'DELETE';

/** Timeouts of one response; `deadline` is a point in time of the monotonic clock. */
export interface ExchangeTimes {
  readonly firstByteMs: number;
  readonly idleMs: number;
  readonly deadline: number;
  readonly deadlineName: 'total' | 'x-timeout-ms';
  /** Whether `firstByteMs` applies until the first event of a stream; earlier comments do not count. */
  readonly untilEvent: boolean;
}

/** Receives one response: a head, then data, then exactly one end or failure. Nothing is called after an abort. */
export interface ExchangeListener {
  onHead(status: number, headers: UpstreamHeaders): void;
  onData(chunk: Buffer): void;
  onEnd(): void;
  onFailed(error: AppError): void;
}

export interface Exchange {
  /** Stops reading from the upstream. Its silence does not count until `resume`. */
  pause(): void;
  resume(): void;
  /** Called when the first event of a stream has arrived. From then on, the idle timeout applies. */
  begun(): void;
  /** Closes the connection immediately. */
  abort(): void;
}

export interface ExchangeOptions {
  readonly pool: UpstreamPool;
  readonly call: UpstreamCall;
  readonly times: ExchangeTimes;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly alarms: Alarms;
  readonly listener: ExchangeListener;
}

/**
 * Sends one request, with one alarm for all timeouts. Does not follow redirects. The implementation is a class, because one object is
 * created for each call.
 */
export function startExchange(options: ExchangeOptions): Exchange {
  const exchange = new RunningExchange(options);
  exchange.start();
  return exchange;
}

/** How long the text of a refusal may take after its head. */
const REFUSAL_MS = 3000;

class RunningExchange implements Exchange, Alarm, Dispatcher.DispatchHandler {
  dueAt: number;
  place = -1;
  readonly #options: ExchangeOptions;
  #controller: Dispatcher.DispatchController | undefined = undefined;
  #over = false;
  #begun = false;
  #lastSign: number;
  /** When the text of a refusal has come for long enough: its status says the most. */
  #refusalEnds = Number.POSITIVE_INFINITY;

  constructor(options: ExchangeOptions) {
    const { times, clock } = options;
    this.#options = options;
    this.#lastSign = clock.monotonic();
    // The earliest possible timeout. When the alarm rings, it computes the exact one.
    this.dueAt = Math.min(this.#lastSign + times.firstByteMs, this.#lastSign + times.idleMs, times.deadline);
  }

  start(): void {
    this.#options.alarms.set(this);
    afterReads(() => this.#send());
  }

  #send(): void {
    if (this.#over) return;
    const { pool, call } = this.#options;
    try {
      pool.dispatch({ method: call.method ?? 'POST', path: call.path, ...outgoing(call) }, this);
    } catch (error) {
      this.#fail(upstreamError('the request could not be sent', error));
    }
  }

  ring(): void {
    const { times, clock, alarms } = this.#options;
    const now = clock.monotonic();
    if (this.#controller?.paused === true) this.#lastSign = now;
    const silence = this.#begun ? times.idleMs : times.firstByteMs;
    if (now >= this.#refusalEnds) this.#endRefusal();
    else if (now >= times.deadline) this.#fail(upstreamTimeout(times.deadlineName));
    else if (now - this.#lastSign >= silence) this.#fail(upstreamTimeout(this.#begun ? 'idle' : 'first_byte'));
    else {
      this.dueAt = Math.min(this.#lastSign + silence, times.deadline, this.#refusalEnds);
      alarms.set(this);
    }
  }

  #fail(error: AppError): void {
    if (this.#over) return;
    this.#finish();
    this.#controller?.abort(error);
    this.#options.listener.onFailed(error);
  }

  #endRefusal(): void {
    this.#finish();
    this.#controller?.abort(new Error('enough of a refusal has come'));
    this.#options.listener.onEnd();
  }

  #finish(): void {
    this.#over = true;
    this.#options.alarms.clear(this);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new Error('nobody waits for it any more'));
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: UpstreamHeaders): void {
    // Ignores informational responses, such as early hints.
    if (this.#over || status < 200) return;
    if (status >= 300) this.#limitRefusal();
    this.#options.listener.onHead(status, headers);
  }

  #limitRefusal(): void {
    const { clock, alarms } = this.#options;
    this.#refusalEnds = clock.monotonic() + REFUSAL_MS;
    this.dueAt = Math.min(this.dueAt, this.#refusalEnds);
    alarms.set(this);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return;
    const { times, clock, listener } = this.#options;
    if (!times.untilEvent) this.#begun = true;
    if (this.#begun) this.#lastSign = clock.monotonic();
    listener.onData(chunk);
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#finish();
    this.#options.listener.onEnd();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    this.#finish();
    this.#options.listener.onFailed(toAppError(error, this.#options.call.host));
  }

  pause(): void {
    this.#controller?.pause();
  }

  resume(): void {
    if (this.#begun) this.#lastSign = this.#options.clock.monotonic();
    this.#controller?.resume();
  }

  begun(): void {
    this.#begun = true;
    this.#lastSign = this.#options.clock.monotonic();
  }

  abort(): void {
    if (this.#over) return;
    this.#finish();
    this.#controller?.abort(new Error('the caller is gone'));
  }
}

/** Below this size parts are joined, because undici sends one buffer faster than several. */
const MAX_JOINED_BYTES = 256 * 1024;

/** Sends a large body in its parts, to avoid a copy. */
function outgoing({ method, headers, body }: UpstreamCall): Pick<Dispatcher.DispatchOptions, 'headers' | 'body'> {
  if (method === 'GET' || method === 'DELETE') return { headers };
  if (typeof body === 'string') return { headers, body };
  const length = body.reduce((sum, part) => sum + part.length, 0);
  if (length <= MAX_JOINED_BYTES) return { headers, body: Buffer.concat(body, length) };
  return { headers: { ...headers, 'content-length': String(length) }, body: Readable.from(body) };
}

function toAppError(error: Error, host: string): AppError {
  if (error instanceof AppError) return error;
  const code = errorCode(error);
  if (code === 'UND_ERR_CONNECT_TIMEOUT') return upstreamTimeout('connect');
  return upstreamError(`${REASONS[code] ?? 'the connection failed'} (${host})`, error);
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at its address',
  ENOTFOUND: 'its name cannot be looked up',
  EAI_AGAIN: 'its name cannot be looked up',
  EHOSTUNREACH: 'its address cannot be reached',
  ENETUNREACH: 'its address cannot be reached',
  ECONNRESET: 'it closed the connection',
  EPIPE: 'it closed the connection',
  UND_ERR_SOCKET: 'it closed the connection',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'its answer has not the announced length',
};

/** Rings at a point in time of the monotonic clock, unless it is cleared before. */
export interface Alarm extends Bagged {
  dueAt: number;
  ring(): void;
}

/**
 * Many alarms on one timer. Each call sets several alarms and clears nearly all of them, so one timer for all is cheaper than a
 * timer for each.
 */
export interface Alarms {
  set(alarm: Alarm): void;
  clear(alarm: Alarm): void;
}

/** The shortest time between two checks of all alarms, because each check costs time when there are thousands. */
const MIN_PAUSE_MS = 50;

/** Creates the alarms. The timer runs only while there are alarms, and does not keep the process alive. */
export function createAlarms(clock: Pick<Clock, 'monotonic' | 'after'>): Alarms {
  const alarms = new Bag<Alarm>();
  let wakesAt = Number.POSITIVE_INFINITY;
  let stopTimer: (() => void) | undefined;

  function wakeAt(moment: number, now: number): void {
    stopTimer?.();
    wakesAt = moment;
    stopTimer = clock.after(Math.max(0, moment - now), ringAll);
  }

  function ringAll(): void {
    const now = clock.monotonic();
    wakesAt = Number.POSITIVE_INFINITY;
    stopTimer = undefined;
    let next = Number.POSITIVE_INFINITY;
    for (const alarm of alarms.items()) {
      if (alarm.dueAt > now) next = Math.min(next, alarm.dueAt);
      // One that rang may have cleared others.
      else if (alarms.delete(alarm)) alarm.ring();
    }
    if (next < wakesAt) wakeAt(Math.max(next, now + MIN_PAUSE_MS), now);
  }

  return {
    set(alarm) {
      alarms.add(alarm);
      if (alarm.dueAt < wakesAt) wakeAt(alarm.dueAt, clock.monotonic());
    },
    clear: (alarm) => void alarms.delete(alarm),
  };
}
