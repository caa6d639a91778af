import { AppError } from '../../platform/errors/app-error.ts';
import { refuseOrigin } from '../../platform/http/cross-origin.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { createDemoStore, DEMO_API, MAX_DEMO_FILE_BYTES } from '../apis/demo-models.ts';
import type { FindApi } from '../apis/model-api.ts';
import type { BatchRequest, ListQuery } from '../contract/operations.ts';
import { failureInBody } from '../dialects/failure.ts';
import { asWords, type JsonObject, parseEvent } from '../dialects/json-value.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { messagesLane, passedHeaders } from '../lanes/request-lanes.ts';
import type { StoredKind, StoredObject, UpstreamObjects } from '../lanes/upstream-objects.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { openStream } from '../relay/open-stream.ts';
import { relayStream, sendJson } from '../relay/relay-stream.ts';
import { estimatedUsage } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import { type CallerPresence, watchCaller } from '../routing/call-record.ts';
import { placeOf } from '../routing/model-plan.ts';
import { hidingSecretsOf, upstreamError } from '../routing/upstream-failure.ts';
import type { OutgoingCall, SendUpstream } from '../upstream/send-upstream.ts';
import { createAlarms, type UpstreamBody, type UpstreamMethod } from '../upstream/upstream-exchange.ts';
import type { AdmittedCall } from './admit-call.ts';
import {
  type BatchCharges,
  checkLines,
  createBatchStops,
  planOf,
  readBatchFile,
  type StoredInResponses,
  settle,
} from './batch-file.ts';
import { readCallOptions } from './call-options.ts';
import type { ChatPipeline } from './chat-pipeline.ts';
import { speaksOpenai } from './encode-chat.ts';
import { fieldOf, fileOf, readForm, writeForm } from './form-data.ts';
import { createFileReader } from './media-handler.ts';
import { lacksOperation } from './open-operation.ts';

export interface StoredObjectsOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly pipeline: ChatPipeline;
  readonly findApi: FindApi;
  readonly objects: UpstreamObjects;
  readonly send: SendUpstream;
  readonly storedInResponses: StoredInResponses;
  readonly charges: BatchCharges;
  /** The API for files of callers that name none. Empty: OpenAI where it can be called, else the demo API. */
  readonly filesApi: string;
  /** Whether a page of this origin may call. */
  readonly allowsOrigin: (head: RequestHead) => boolean;
  /** Called for a batch that was not cancelled, which may have ended by itself. */
  onError(error: unknown, batchId: string): void;
}

type KeyCall<Body = unknown, Query = unknown> = Call<KeyHolder, Body, Query, unknown>;
type IdCall = Call<KeyHolder, unknown, unknown, { readonly id: string }>;

/** One request about a stored object, in the form of the API. */
interface ObjectRequest {
  readonly method: UpstreamMethod;
  readonly path: string;
  readonly body?: UpstreamBody;
  readonly contentType?: string;
  /** Returns the response of the demo API; undefined if it has no such object. */
  demo(): object | undefined;
}

const API_HEADER = 'x-model-api';
const DEFAULT_LIMIT = 20;
/** Objects of one list that are asked for at the same time. */
const MAX_PARALLEL = 5;
const MAX_CANCEL_MS = 30_000;
const NOTHING = { prompt: 0, answer: 0 };
const FILES = 'application/octet-stream';

/**
 * Files and batches, which model APIs store in the operator's account. A request passes to the API and the key that has the object,
 * and only for the caller who stored it. Lists come from our own table, so callers see only their own objects.
 */
export function createStoredObjects(options: StoredObjectsOptions) {
  const { pipeline, findApi, objects, send, storedInResponses, charges, filesApi, allowsOrigin, clock, makeId } =
    options;
  const demo = createDemoStore(makeId, clock.now);
  const alarms = createAlarms(clock);
  const stops = createBatchStops({ objects, clock, cancel: cancelFor, onError: options.onError });

  /** Admits a call about a stored object; `place` is the API and key that have it. */
  async function admitOwn(call: KeyCall, kind: StoredKind, place: string): Promise<AdmittedCall> {
    const admitted = await pipeline.admit(
      { ...incoming(call, kind), ofOwn: true },
      `${apiOf(place)}/${PATHS[kind]}`,
      NOTHING,
    );
    return withTargets(admitted, (target) => placeOf(target) === place, admitted.plan.retries);
  }

  function incoming({ head, caller: holder, reply }: KeyCall, operation: StoredKind) {
    const { timeoutMs } = readCallOptions(head, false);
    return { holder, requestId: head.requestId, presence: watchCaller(reply.raw), operation, timeoutMs } as const;
  }

  /** Prepares a request on the target of an attempt. */
  async function begin(
    attempt: OutgoingCall['attempt'],
    head: Pick<RequestHead, 'headers'>,
    request: ObjectRequest,
    accept: string,
  ) {
    const { target } = attempt;
    const api = findApi(target.apiId, target.key);
    if (api === undefined) throw upstreamError('its key is not set any more');
    const isAnthropic = api.dialect === 'anthropic';
    if (!speaksOpenai({ name: api.dialect }) && !isAnthropic) throw notOffered();
    const { method, path, body = '', contentType } = request;
    const headers = isAnthropic ? passedHeaders(messagesLane, head.headers) : {};
    const encoded = { method, path, headers, body, accept, ...(contentType !== undefined && { contentType }) };
    const start = await send({ api, attempt, encoded, stream: false, idempotencyId: makeId('idem-') });
    return { start, decodeFailure: failureInBody, hide: hidingSecretsOf(api) };
  }

  async function ask(call: AdmittedCall, head: RequestHead, request: ObjectRequest) {
    const attempted = await pipeline.attempt(call, async (attempt) => {
      const place = placeOf(attempt.target);
      if (attempt.target.apiId === DEMO_API) {
        const object = request.demo();
        if (object === undefined) throw gone();
        return { place, object: object as JsonObject, bytes: Buffer.from(JSON.stringify(object)) };
      }
      const exchange = await begin(attempt, head, request, 'application/json');
      const bytes = await openAnswer({ ...exchange, presence: call.presence, now: clock.now }).catch(
        (error: unknown) => {
          throw request.method === 'POST' && lacksOperation(error) && isNew(request) ? notOffered() : error;
        },
      );
      const object = parseEvent(bytes.toString('utf8'));
      if (object === undefined || asWords(object.id) === undefined) throw upstreamError('its answer has no id');
      return { place, object, bytes };
    });
    return { ...attempted.result, finish: attempted.finish };
  }

  /** The results of a batch are files of its owner, and its use is known with them. */
  async function noteResults(object: JsonObject, batch: StoredObject, holder: KeyHolder): Promise<void> {
    const ids = [object.output_file_id, object.error_file_id].flatMap((id) => asWords(id) ?? []);
    const files = ids.map((id) => stored(id, 'file', batch.place));
    if (files.length > 0) await objects.add(files, holder);
    await charges.correct(batch, holder, object);
  }

  /** Asks for one object of the caller's own, and answers with what the API says. */
  async function answerOwn(call: IdCall, kind: StoredKind, request: (id: string) => ObjectRequest, isLast = false) {
    const { head, caller: holder, reply, params } = call;
    const found = await objects.find(params.id, kind, holder, `${kind}_id`);
    const admitted = await admitOwn(call, kind, found.place);
    const { object, bytes, finish } = await ask(admitted, head, request(found.id));
    await settle(finish, async () => {
      if (isLast) await objects.forget(found.id, holder);
      if (kind === 'batch') await noteResults(object, found, holder);
    });
    sendJson(reply, admitted.record.headers(), bytes);
    return reply;
  }

  async function list(call: KeyCall<unknown, ListQuery>, kind: StoredKind) {
    const { head, caller: holder, query } = call;
    const page = await objects.list(kind, holder, { after: query.after, limit: query.limit ?? DEFAULT_LIMIT });
    const data: JsonObject[] = [];
    const [first] = page.objects;
    if (first !== undefined) {
      // One call, however many objects are asked for.
      const admitted = await admitOwn(call, kind, first.place);
      const { record } = admitted;
      Object.assign(record, { target: { apiId: apiOf(first.place), model: PATHS[kind] }, attempts: 1 });
      await settle(record.settle, async () => {
        for (let at = 0; at < page.objects.length; at += MAX_PARALLEL) {
          const shown = page.objects.slice(at, at + MAX_PARALLEL).map((object) => show(call, head, object, admitted));
          for (const object of await Promise.all(shown)) if (object !== undefined) data.push(object);
        }
      });
    }
    const ids = page.objects.map(({ id }) => id);
    return { object: 'list', data, first_id: ids[0] ?? null, last_id: ids.at(-1) ?? null, has_more: page.hasMore };
  }

  /** Undefined for an object that its API does not have any more. */
  async function show(call: KeyCall, head: RequestHead, shown: StoredObject, admitted: AdmittedCall) {
    const { id, kind, place } = shown;
    const request = requestFor(kind, id);
    const [plan = admitted.plan] = pipeline.resolvable(`${apiOf(place)}/${PATHS[kind]}`);
    const record = { ...admitted.record, settle: () => undefined };
    const part = withTargets({ ...admitted, plan, record }, (target) => placeOf(target) === place, plan.retries);
    try {
      const { object, finish } = await ask(part, head, request);
      await settle(finish, async () => {
        if (kind === 'batch') await noteResults(object, shown, call.caller);
      });
      return object;
    } catch (error) {
      if (!lacksOperation(error)) throw error;
      await objects.forget(id, call.caller);
      return undefined;
    }
  }

  function requestFor(kind: StoredKind, id: string): ObjectRequest {
    const find = kind === 'file' ? demo.file : demo.batch;
    return { method: 'GET', path: `/${PATHS[kind]}/${id}`, demo: () => find(id) };
  }

  function cancelRequest(id: string): ObjectRequest {
    return { method: 'POST', path: `/batches/${id}/cancel`, demo: () => demo.batch(id) };
  }

  /** Cancels a batch without a call of anybody, so no limits apply. */
  async function cancelFor({ id, place }: StoredObject, presence: CallerPresence): Promise<void> {
    const [plan] = pipeline.resolvable(`${apiOf(place)}/${PATHS.batch}`);
    const target = plan?.targets.find((each) => placeOf(each) === place);
    if (target === undefined || target.apiId === DEMO_API || presence.gone) return;
    const deadline = clock.monotonic() + MAX_CANCEL_MS;
    const attempt = { target, timeouts: target.timeouts, deadline, deadlineName: 'total' } as const;
    const exchange = await begin(attempt, { headers: {} }, cancelRequest(id), 'application/json');
    await openAnswer({ ...exchange, presence, now: clock.now });
  }

  function chooseApi({ headers }: RequestHead): string {
    const named = headers[API_HEADER];
    if (typeof named === 'string') return named;
    if (headers['anthropic-version'] !== undefined && findApi('anthropic') !== undefined) return 'anthropic';
    if (filesApi !== '') return filesApi;
    return findApi('openai') === undefined ? DEMO_API : 'openai';
  }

  /** The lines of a batch decide where its file goes, unless the caller does. */
  async function prepareBatch(file: Buffer, { head, caller: holder }: KeyCall) {
    let apiId = '';
    const { refuseStorage } = pipeline;
    const read = await readBatchFile(file, { storedInResponses, refuseStorage }, (model) => {
      const { targets } = pipeline.planFor(holder, model);
      const named = head.headers[API_HEADER];
      const target = targets.find((each) => named === undefined || each.apiId === named);
      if (target === undefined) {
        const message = `The model "${model}" is not one of the API that the header ${API_HEADER} names.`;
        throw new AppError('INVALID_PARAMETER', { message, param: API_HEADER });
      }
      apiId = target.apiId;
      return target.model;
    });
    return { ...read, apiId };
  }

  return {
    async uploadFile(call: KeyCall<Buffer>) {
      const { head, caller: holder, body, reply } = call;
      // Browsers send forms of any page without asking.
      if (!allowsOrigin(head)) refuseOrigin(head);
      const form = readForm(body, head.headers['content-type']);
      if (body.length > MIN_LARGE_BODY) await afterOthers();
      const purpose = fieldOf(form, 'purpose') ?? '';
      const file = fileOf(form);
      await objects.checkRoom('file', holder);
      const batch = purpose === 'batch' ? await prepareBatch(file.value, call) : undefined;
      const model = batch === undefined ? `${chooseApi(head)}/files` : batch.plan.model;
      const admitted = await pipeline.admit(incoming(call, 'file'), model, NOTHING);
      const value =
        batch === undefined || pipeline.guards === undefined
          ? (batch?.bytes ?? file.value)
          : await checkLines(batch.bytes, (lines) => pipeline.guardRequest(admitted, lines));
      const on = withTargets(admitted, ({ apiId }) => batch === undefined || apiId === batch.apiId);
      const { object, bytes, place, finish } = await ask(on, head, {
        method: 'POST',
        path: '/files',
        ...writeForm({ ...form, parts: form.parts.map((part) => (part === file ? { ...part, value } : part)) }, {}),
        demo: () => {
          if (value.length > MAX_DEMO_FILE_BYTES) throw tooLargeForDemo();
          return demo.upload({ name: file.filename ?? 'file', purpose, bytes: Buffer.from(value) });
        },
      });
      const detail = batch === undefined ? '' : JSON.stringify(batch.plan);
      await settle(finish, () => objects.add([{ ...stored(String(object.id), 'file', place), detail }], holder));
      sendJson(reply, admitted.record.headers(), bytes);
      return reply;
    },
    listFiles: (call: KeyCall<unknown, ListQuery>) => list(call, 'file'),
    showFile: (call: IdCall) => answerOwn(call, 'file', (id) => requestFor('file', id)),
    deleteFile: (call: IdCall) =>
      answerOwn(
        call,
        'file',
        (id) => ({ method: 'DELETE', path: `/files/${id}`, demo: () => demo.deleteFile(id) }),
        true,
      ),
    async readFile(call: IdCall) {
      const { head, caller: holder, reply, params } = call;
      const { id, place } = await objects.find(params.id, 'file', holder, 'file_id');
      const admitted = await admitOwn(call, 'file', place);
      const { record, presence } = admitted;
      const { result, finish } = await pipeline.attempt(admitted, async (attempt) => {
        if (attempt.target.apiId === DEMO_API) {
          const bytes = demo.content(id);
          if (bytes === undefined) throw gone();
          return bytes;
        }
        const request: ObjectRequest = { method: 'GET', path: `/files/${id}/content`, demo: () => undefined };
        const exchange = await begin(attempt, head, request, '*/*');
        const reader = createFileReader({ usage: estimatedUsage(0, 0), estimated: false }, true);
        return openStream({ ...exchange, presence, now: clock.now, reader, anyType: true });
      });
      if (Buffer.isBuffer(result)) {
        finish({ outcome: 'ok', status: 200 });
        reply.code(200).headers(record.headers()).type(FILES).send(result);
        return reply;
      }
      relayStream({
        ...{ reply, finish, clock, alarms, headersSent: false, stream: result, requestText: () => '' },
        record: { ...record, keepsContent: false },
        encode: (piece: Buffer) => piece,
        encodeEnd: (last: Buffer | undefined) => last ?? '',
        framing: { contentType: FILES, keepAlive: '' },
        // A file has no place for an error, so the response ends without its last chunk, which shows that it is incomplete.
        encodeFailure: () => {
          reply.raw.destroy();
          return [];
        },
      });
      return reply;
    },
    async createBatch(call: KeyCall<BatchRequest>) {
      const { head, caller: holder, body, reply } = call;
      const { input_file_id: input, endpoint, completion_window, output_expires_after } = body;
      const metadata = body.metadata ?? undefined;
      const file = await objects.find(input, 'file', holder, 'input_file_id');
      await objects.checkRoom('batch', holder);
      const plan = planOf(file, endpoint);
      const { promptTokens, answerTokens } = plan;
      const estimate = { prompt: promptTokens, answer: answerTokens, batch: true };
      const admitted = withTargets(
        await pipeline.admit(incoming(call, 'batch'), plan.model, estimate),
        (target) => placeOf(target) === file.place && target.model === plan.upstreamModel,
      );
      const request = { input_file_id: input, endpoint, completion_window, metadata };
      const { object, bytes, place, finish } = await ask(admitted, head, {
        method: 'POST',
        path: '/batches',
        body: JSON.stringify({ ...request, output_expires_after }),
        demo: () => demo.createBatch(request),
      });
      const usage = { ...estimatedUsage(promptTokens, answerTokens), service_tier: 'batch' };
      const note = async () => {
        const detail = charges.detailOf({ holder, plan, api: apiOf(place), requestId: head.requestId });
        const batch = { ...stored(String(object.id), 'batch', place), detail };
        await objects.add([batch], holder);
        await noteResults(object, batch, holder);
      };
      await settle(finish, note, { usage, estimated: true });
      await charges.stored();
      sendJson(reply, admitted.record.headers(), bytes);
      return reply;
    },
    listBatches: (call: KeyCall<unknown, ListQuery>) => list(call, 'batch'),
    showBatch: (call: IdCall) => answerOwn(call, 'batch', (id) => requestFor('batch', id)),
    cancelBatch: (call: IdCall) => answerOwn(call, 'batch', cancelRequest),
    ...stops,
  };
}

const PATHS = { file: 'files', batch: 'batches' } as const;

function apiOf(place: string): string {
  return place.split('#', 1)[0] ?? '';
}

function stored(id: string, kind: StoredKind, place: string): StoredObject {
  return { id, kind, place, detail: '' };
}

/** Keeps only these targets, without retries by default, because a retry could store a second object. */
function withTargets(call: AdmittedCall, isMeant: (target: Attempt['target']) => boolean, retries = 0): AdmittedCall {
  const targets = call.plan.targets.filter(isMeant);
  return { ...call, plan: { ...call.plan, targets, retries, fallbacks: [], contextFallbacks: [] } };
}

/** Whether a request creates something, rather than asking about it. */
function isNew({ path }: ObjectRequest): boolean {
  return path === '/files' || path === '/batches';
}

function gone(): AppError {
  return new AppError('UPSTREAM_REFUSED', { status: 404, message: 'The model API does not have it any more.' });
}

function notOffered(): AppError {
  return new AppError('OPERATION_NOT_SUPPORTED', { operation: 'files and batches' });
}

function tooLargeForDemo(): AppError {
  const message = `The demo API takes files of at most ${MAX_DEMO_FILE_BYTES} bytes.`;
  return new AppError('INVALID_PARAMETER', { message, param: 'file' });
}
