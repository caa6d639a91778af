import type { AppError } from '../errors/app-error.ts';
import type { RequestId } from './read-message.ts';

/** One call as its handler sees it. */
export interface MethodCall<Caller = unknown> {
  readonly method: string;
  /** An object, an array or undefined, not yet checked. */
  readonly params: unknown;
  /** Undefined for a notification. */
  readonly id: RequestId | undefined;
  readonly caller: Caller;
  /** Aborts when the caller cancels or goes away; its reason is an `AppError`. */
  readonly signal: AbortSignal;
  /** What a failure is logged under. */
  readonly requestId: string;
  /**
   * Sends a notification to whoever made the call, before its answer; `eventId` is what a stream can be resumed after.
   * Where the answer is a single document there is no place for it and it is dropped.
   */
  notify(method: string, params: unknown, eventId?: string | number): void;
  /** Says that the call was taken and its answer may be long in coming: a streamed response starts now. */
  accept(): void;
}

/** Serves a call: returns the result (or a promise of it), or throws. Where it can, it answers without a promise. */
export type Dispatch<Caller = unknown> = (call: MethodCall<Caller>) => unknown;

/** What all calls of one connection share. */
export interface CallOrigin<Caller> {
  readonly caller: Caller;
  readonly makeRequestId: () => string;
  /** Set when the connection is gone. */
  endReason: AppError | undefined;
  /** Notifications travel within the answer: a call that gets none has no place for them. */
  readonly withinAnswer: boolean;
  notify(method: string, params: unknown, eventId?: string | number): void;
  accept(): void;
}

/** A class for speed: most handlers read neither the signal nor the request id, so both are made on first use. */
export class IncomingCall<Caller> implements MethodCall<Caller> {
  readonly method: string;
  readonly params: unknown;
  readonly id: RequestId | undefined;
  readonly #origin: CallOrigin<Caller>;
  #abortReason: AppError | undefined;
  #controller: AbortController | undefined;
  #requestId: string | undefined;

  constructor(origin: CallOrigin<Caller>, id: RequestId | undefined, method: string, params: unknown) {
    this.#origin = origin;
    this.id = id;
    this.method = method;
    this.params = params;
  }

  get caller(): Caller {
    return this.#origin.caller;
  }

  get requestId(): string {
    this.#requestId ??= this.#origin.makeRequestId();
    return this.#requestId;
  }

  get abortReason(): AppError | undefined {
    return this.#abortReason ?? this.#origin.endReason;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.abortReason !== undefined) this.#controller.abort(this.abortReason);
    }
    return this.#controller.signal;
  }

  notify(method: string, params: unknown, eventId?: string | number): void {
    if (!this.#isUnheard) this.#origin.notify(method, params, eventId);
  }

  accept(): void {
    if (!this.#isUnheard) this.#origin.accept();
  }

  get #isUnheard(): boolean {
    return this.id === undefined && this.#origin.withinAnswer;
  }

  abort(reason: AppError): void {
    this.#abortReason ??= reason;
    this.#controller?.abort(reason);
  }
}
