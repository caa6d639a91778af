import { AppError } from '../errors/app-error.ts';
import { type DescribedError, describeError, type ErrorTable, isExpected } from '../errors/error-table.ts';
import { parseRequest } from '../json/parse-json.ts';
import {
  type Envelope,
  errorText,
  type IncomingMessage,
  RawJson,
  RelayedError,
  type RequestId,
  readMessage,
  toJsonText,
} from './envelope.ts';
import { type CallOrigin, type Dispatch, IncomingCall } from './method-table.ts';

/** The options for serving calls over any transport. */
export interface ServingOptions<Caller> {
  readonly caller: Caller;
  readonly dispatch: Dispatch<Caller>;
  readonly errors: ErrorTable;
  readonly makeRequestId: () => string;
  /** For the log: a handler failed in a way that its error table does not know. The caller gets the id only. */
  readonly onUnexpectedError: (error: unknown, requestId: string) => void;
}

export type IncomingResponse = Extract<IncomingMessage, { kind: 'response' }>;

interface ExchangeOptions<Caller> extends ServingOptions<Caller> {
  readonly envelope: Envelope;
  readonly limits: CallLimits;
  /**
   * Takes the answer to one received message: undefined when it deserves none. `error` is set for a single failure, `parts`
   * for a large answer: a transport that sends the parts does not need the text.
   */
  readonly answer: (text: string | undefined, error?: DescribedError, parts?: readonly string[]) => void;
  /** Takes notifications made by handlers; without it they are dropped. */
  readonly notification?: ((text: string, eventId?: string | number) => void) | undefined;
  /** Whether those travel within the answer, so that calls without an id cannot make any. */
  readonly withinAnswer?: boolean;
  readonly accepted?: (() => void) | undefined;
  /** Takes responses to requests of our own; without it they are invalid requests. */
  readonly response?: ((response: IncomingResponse) => void) | undefined;
  /** The notification that cancels a call of the same connection, if there is one. */
  readonly cancelMethod?: string | undefined;
}

export interface CallLimits {
  /** Calls whose handlers may run at the same time; one more is answered OVERLOADED. */
  readonly callsInFlight: number;
  /** Messages in one batch; 100 unless said otherwise. */
  readonly batch?: number;
}

/** The serving side of one connection, or of one HTTP request: takes messages, and answers them in any order. */
export interface Exchange {
  receive(message: string | Uint8Array): void;
  notify(method: string, params: unknown, eventId?: string | number): void;
  /** Aborts all running calls, because the caller is gone. */
  end(reason: AppError): void;
}

/** Takes one call's outcome: the result's or error's JSON text. Nothing is answered where the id is undefined. */
type Settle = (id: RequestId | undefined, text: string, error?: DescribedError, parts?: readonly string[]) => void;

const DEFAULT_BATCH = 100;
/** Stands for a result in an envelope; it cannot be in JSON text. */
const PLACE = '\0';

export function createExchange<Caller>(options: ExchangeOptions<Caller>): Exchange {
  const { envelope, dispatch, errors, answer } = options;
  const { callsInFlight, batch = DEFAULT_BATCH } = options.limits;
  const running = new Set<IncomingCall<Caller>>();
  let seq = 0;

  const origin: CallOrigin<Caller> = {
    caller: options.caller,
    makeRequestId: options.makeRequestId,
    endReason: undefined,
    withinAnswer: options.withinAnswer ?? false,
    notify,
    accept: () => options.accepted?.(),
  };

  function notify(method: string, params: unknown, eventId?: string | number): void {
    if (options.notification === undefined) return;
    const text = params === undefined ? undefined : toJsonText(params);
    seq += 1;
    options.notification(envelope.notification(JSON.stringify(method), text, seq), eventId);
  }

  /** Numbers are given when an answer leaves, so that they also rise where a batch waits for its slowest call. */
  function toAnswer(id: RequestId, text: string, error: DescribedError | undefined): string {
    seq += 1;
    const idText = JSON.stringify(id);
    return error === undefined ? envelope.success(idText, text, seq) : envelope.failure(idText, text, seq);
  }

  /** The envelope of a large result in parts, with the number that its text has. */
  function partsOf(id: RequestId, result: readonly string[]): readonly string[] {
    const around = envelope.success(JSON.stringify(id), PLACE, seq).split(PLACE);
    return around.flatMap((part, index) => (index === 0 ? [part] : [...result, part]));
  }

  const settleSingle: Settle = (id, text, error, parts) => {
    if (id === undefined) {
      answer(undefined, error);
      return;
    }
    const whole = toAnswer(id, text, error);
    answer(whole, error, parts === undefined ? undefined : partsOf(id, parts));
  };

  function receive(message: string | Uint8Array): void {
    let value: unknown;
    try {
      value = parseRequest(message);
    } catch (error) {
      refuse(null, error, settleSingle);
      return;
    }
    if (Array.isArray(value)) receiveBatch(value);
    else receiveOne(value, settleSingle);
  }

  function receiveBatch(values: readonly unknown[]): void {
    if (values.length === 0 || values.length > batch) {
      const reason = values.length === 0 ? 'the batch is empty' : `batch too large: at most ${batch} calls`;
      refuse(null, new AppError('INVALID_REQUEST', { reason }), settleSingle);
      return;
    }
    const outcomes: { id: RequestId; text: string; error: DescribedError | undefined }[] = [];
    let open = values.length;
    const settle: Settle = (id, text, error) => {
      if (id !== undefined) outcomes.push({ id, text, error });
      open -= 1;
      if (open > 0) return;
      const texts = outcomes.map((outcome) => toAnswer(outcome.id, outcome.text, outcome.error));
      answer(texts.length === 0 ? undefined : `[${texts.join(',')}]`);
    };
    for (const value of values) receiveOne(value, settle);
  }

  function receiveOne(value: unknown, settle: Settle): void {
    const message = readMessage(value, envelope.versioned);
    if (message.kind === 'call') {
      begin(message.id, message.method, message.params, settle);
    } else if (message.kind === 'response' && options.response !== undefined) {
      options.response(message);
      settle(undefined, '');
    } else if (message.kind === 'response') {
      refuse(null, new AppError('INVALID_REQUEST', { reason: 'no request of ours is open here' }), settle);
    } else {
      refuse(message.id, new AppError('INVALID_REQUEST', { reason: message.reason }), settle);
    }
  }

  function begin(id: RequestId | undefined, method: string, params: unknown, settle: Settle): void {
    if (id === undefined && method === options.cancelMethod) {
      cancel(params);
      settle(undefined, '');
      return;
    }
    if (running.size >= callsInFlight) {
      refuse(id, new AppError('OVERLOADED'), settle);
      return;
    }
    const call = new IncomingCall(origin, id, method, params);
    let outcome: unknown;
    try {
      outcome = dispatch(call);
    } catch (error) {
      fail(call, error, settle);
      return;
    }
    if (outcome instanceof Promise) finishLater(call, outcome, settle);
    else succeed(call, outcome, settle);
  }

  function finishLater(call: IncomingCall<Caller>, outcome: Promise<unknown>, settle: Settle): void {
    running.add(call);
    outcome.then(
      (result) => {
        running.delete(call);
        succeed(call, result, settle);
      },
      (error: unknown) => {
        running.delete(call);
        fail(call, error, settle);
      },
    );
  }

  function succeed(call: IncomingCall<Caller>, result: unknown, settle: Settle): void {
    if (call.id === undefined) {
      settle(undefined, '');
      return;
    }
    let text: string;
    try {
      text = toJsonText(result);
    } catch (error) {
      fail(call, error, settle);
      return;
    }
    settle(call.id, text, undefined, result instanceof RawJson ? result.parts : undefined);
  }

  function fail(call: IncomingCall<Caller>, thrown: unknown, settle: Settle): void {
    // A library that was handed our signal throws an error of its own making when it aborts.
    const aborted = call.abortReason !== undefined && thrown instanceof Error && thrown.name === 'AbortError';
    const error = aborted ? call.abortReason : thrown;
    if (error instanceof RelayedError) {
      settle(call.id, error.text, error.described);
      return;
    }
    if (!isExpected(errors, error)) {
      failUnexpectedly(call, error, settle);
      return;
    }
    let described: DescribedError;
    let text: string;
    try {
      described = describeError(errors, error);
      text = errorText(described);
    } catch (unspeakable) {
      failUnexpectedly(call, unspeakable, settle);
      return;
    }
    settle(call.id, text, described);
  }

  function failUnexpectedly(call: IncomingCall<Caller>, error: unknown, settle: Settle): void {
    options.onUnexpectedError(error, call.requestId);
    const described = describeError(errors, undefined);
    settle(call.id, errorText(described, call.requestId), described);
  }

  function refuse(id: RequestId | undefined, error: unknown, settle: Settle): void {
    const described = describeError(errors, error);
    settle(id, errorText(described), described);
  }

  function cancel(params: unknown): void {
    if (typeof params !== 'object' || params === null || !('requestId' in params)) return;
    for (const call of running) {
      if (call.id !== undefined && call.id === params.requestId) call.abort(new AppError('CALL_CANCELLED'));
    }
  }

  function end(reason: AppError): void {
    origin.endReason = reason;
    for (const call of running) call.abort(reason);
  }

  return { receive, notify, end };
}
