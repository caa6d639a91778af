import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { parseRequest } from '../../platform/json/parse-json.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { PriceOf } from '../apis/prices.ts';
import type { ChatRequest, Usage } from '../contract/chat.ts';
import type { ResponsesRequest } from '../contract/responses.ts';
import { nothingStored, refuseStoredFiles } from '../dialects/conversation.ts';
import type { Reference } from '../dialects/dialect.ts';
import { asCount, asObject, type JsonObject } from '../dialects/json-value.ts';
import { readResponsesUsage } from '../dialects/openai/openai-answer.ts';
import { statusOf } from '../errors.ts';
import { type CallOutcome, type Charge, type KeyHolder, priceCall, type SettledCall } from '../keys/admission.ts';
import { ownerOf, type StoredObject, type UpstreamObjects } from '../lanes/upstream-objects.ts';
import { estimatedUsage, estimateTokensIn, expectedAnswerTokens, textCount } from '../relay/token-usage.ts';
import { CallerPresence, type FinishCall, type MeasuredUsage } from '../routing/call-record.ts';
import type { StoredEstimate } from '../storage/usage-store.ts';

/** The sum of all lines of a file for a batch. It is stored with the file, and charged with the batch. */
export interface BatchPlan {
  /** As the caller named it. */
  readonly model: string;
  readonly upstreamModel: string;
  /** `/v1/chat/completions`, ... */
  readonly endpoint: string;
  readonly lines: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
}

/** What a request of the Responses API names that the API keeps. */
export type StoredInResponses = (request: ResponsesRequest) => readonly Reference[];

interface LineChecks {
  readonly storedInResponses: StoredInResponses;
  /** Throws for a request that names an object in storage which the operator has not allowed. */
  refuseStorage(request: object): void;
}

export interface BatchFile {
  readonly plan: BatchPlan;
  /** The file with the model API's own name of the model. */
  readonly bytes: Buffer;
}

/** OpenAI takes no more. */
const MAX_LINES = 50_000;
/** How many bytes are read before other requests are handled. */
const BYTES_PER_TURN = 256 * 1024;
const LINE_FEED = 0x0a;
const WRITES_ANSWERS = new Set(['/v1/chat/completions', '/v1/responses', '/v1/completions']);
const ENDPOINTS: readonly string[] = [...WRITES_ANSWERS, '/v1/embeddings', '/v1/moderations'];

/**
 * Reads a file for a batch: one request in each line, all for one model. The caller must be allowed to use the model, and a line may
 * name nothing that a model API stores.
 */
export async function readBatchFile(
  file: Buffer,
  checks: LineChecks,
  upstreamModelOf: (model: string) => string,
): Promise<BatchFile> {
  const written: string[] = [];
  let plan: BatchPlan | undefined;
  let number = 0;
  let readInTurn = 0;
  for (let start = 0; start < file.length; ) {
    const found = file.indexOf(LINE_FEED, start);
    const end = found === -1 ? file.length : found;
    const bytes = file.subarray(start, end);
    start = end + 1;
    number += 1;
    if (isBlank(bytes)) continue;
    if (written.length >= MAX_LINES) throw refused(number, `a batch has at most ${MAX_LINES} lines`);
    const line = readLine(bytes, number, checks);
    plan ??= {
      ...lineHead(line),
      upstreamModel: upstreamModelOf(line.model),
      lines: 0,
      promptTokens: 0,
      answerTokens: 0,
    };
    if (line.model !== plan.model)
      throw refused(number, `all lines must name one model; the first names "${plan.model}"`);
    if (line.endpoint !== plan.endpoint) {
      throw refused(number, `all lines must have one url; the first has "${plan.endpoint}"`);
    }
    const { request } = line;
    plan = {
      ...plan,
      lines: plan.lines + 1,
      promptTokens: plan.promptTokens + estimateTokensIn(request),
      answerTokens: plan.answerTokens + (WRITES_ANSWERS.has(line.endpoint) ? answerTokensOf(line) : 0),
    };
    written.push(JSON.stringify({ ...line.whole, body: { ...request, model: plan.upstreamModel } }));
    readInTurn += bytes.length;
    if (readInTurn < BYTES_PER_TURN) continue;
    readInTurn = 0;
    await afterOthers();
  }
  if (plan === undefined) throw refused(1, 'the file has no line');
  return { plan, bytes: Buffer.from(`${written.join('\n')}\n`) };
}

interface BatchLine {
  readonly whole: JsonObject;
  readonly request: JsonObject;
  readonly model: string;
  readonly endpoint: string;
}

function lineHead({ model, endpoint }: BatchLine): Pick<BatchPlan, 'model' | 'endpoint'> {
  return { model, endpoint };
}

function readLine(bytes: Buffer, number: number, { storedInResponses, refuseStorage }: LineChecks): BatchLine {
  const whole = asObject(parseLine(bytes, number));
  const request = asObject(whole?.body);
  if (whole === undefined || request === undefined) throw refused(number, 'it is not an object with a body');
  const { url } = whole;
  const { model } = request;
  if (typeof url !== 'string' || !ENDPOINTS.includes(url)) {
    throw refused(number, `its url must be one of ${ENDPOINTS.join(', ')}`);
  }
  if (typeof model !== 'string' || model === '') throw refused(number, 'its body names no model');
  refuseStorage(request);
  refuseStored(url, request, number, storedInResponses);
  return { whole, request, model, endpoint: url };
}

function parseLine(bytes: Buffer, number: number): unknown {
  try {
    return parseRequest(bytes);
  } catch (error) {
    throw error instanceof AppError ? refused(number, 'it is not valid JSON') : error;
  }
}

/** Refuses lines that name stored objects, because they cannot be checked for each of thousands of lines. */
function refuseStored(url: string, request: JsonObject, number: number, storedInResponses: StoredInResponses): void {
  if (url === '/v1/chat/completions') {
    const { messages } = request;
    if (!Array.isArray(messages) || !messages.every((message) => asObject(message) !== undefined)) {
      throw refused(number, 'its body has no messages');
    }
    if (!messages.every(({ content }) => isContent(content))) {
      throw refused(number, 'the content of a message is neither text nor a list of parts');
    }
    refuseStoredFiles(messages as ChatRequest['messages']);
  } else if (url === '/v1/responses') {
    const { input = '', tools = [] } = request;
    const items = typeof input === 'string' ? [] : input;
    if (!isListOfObjects(items) || !isListOfObjects(tools))
      throw refused(number, 'its body has no valid input or tools');
    const [stored] = storedInResponses({ ...request, input, tools } as unknown as ResponsesRequest);
    if (stored !== undefined) throw nothingStored(stored);
  }
}

function isContent(content: unknown): boolean {
  return content === undefined || content === null || typeof content === 'string' || isListOfObjects(content);
}

function isListOfObjects(value: unknown): boolean {
  return Array.isArray(value) && value.every((item) => asObject(item) !== undefined);
}

function answerTokensOf({ request, endpoint }: BatchLine): number {
  const { max_completion_tokens: most, max_output_tokens: output, max_tokens: older, n } = request;
  const [limit] = [most, output, older].filter((value) => typeof value === 'number');
  const count = endpoint === '/v1/completions' ? textCount(request) : textCount({ n });
  return count * expectedAnswerTokens(typeof limit === 'number' && limit > 0 ? { max_tokens: limit } : {});
}

function isBlank(bytes: Buffer): boolean {
  return bytes.length < 2 && bytes.toString('latin1').trim() === '';
}

function refused(line: number, reason: string): AppError {
  return new AppError('INVALID_PARAMETER', { message: `Line ${line} of the file: ${reason}.`, param: 'file' });
}

/** The lines as `check` leaves them. */
export async function checkLines(
  file: Buffer,
  check: (lines: readonly unknown[]) => Promise<readonly unknown[]>,
): Promise<Buffer> {
  const lines = file
    .toString('utf8')
    .split('\n')
    .filter((line) => line.trim() !== '');
  const requests: readonly unknown[] = lines.map((line) => JSON.parse(line));
  const checked = await check(requests);
  return checked === requests ? file : Buffer.from(checked.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

/** What the lines of an uploaded file ask for. */
export function planOf({ detail }: Pick<StoredObject, 'detail'>, endpoint: string): BatchPlan {
  if (detail === '') {
    const message = "The file of a batch must be uploaded with the purpose 'batch'.";
    throw new AppError('INVALID_PARAMETER', { message, param: 'input_file_id' });
  }
  const plan = JSON.parse(detail) as BatchPlan;
  if (plan.endpoint === endpoint) return plan;
  const message = `The lines of the file are for ${plan.endpoint}: name that as the endpoint.`;
  throw new AppError('INVALID_PARAMETER', { message, param: 'endpoint' });
}

export interface BatchStopsOptions {
  readonly objects: Pick<UpstreamObjects, 'since'>;
  readonly clock: Pick<Clock, 'now'>;
  cancel(batch: StoredObject, presence: CallerPresence): Promise<void>;
  onError(error: unknown, batchId: string): void;
}

/** Model APIs end a batch after 24 hours. */
const MAX_BATCH_MS = 25 * 3_600_000;
/** Batches that are cancelled at the same time. */
const MAX_CANCELLED = 5;

/** Cancels batches of owners, until it is stopped. */
export function createBatchStops({ objects, clock, cancel, onError }: BatchStopsOptions) {
  const running = new Set<CallerPresence>();
  return {
    /** For someone who may not work any more. */
    async cancelBatchesOf(owner: string): Promise<void> {
      const batches = await objects.since('batch', owner, clock.now() - MAX_BATCH_MS);
      const waiting = batches.values();
      const cancelRest = async () => {
        const presence = new CallerPresence();
        running.add(presence);
        for (const batch of waiting) {
          await cancel(batch, presence).catch((error: unknown) => onError(error, batch.id));
        }
        running.delete(presence);
      };
      await Promise.all(Array.from({ length: Math.min(MAX_CANCELLED, batches.length) }, cancelRest));
    },
    stop() {
      for (const presence of running) presence.leave();
    },
  };
}

/** What batches need of keys and budgets. */
export interface BatchMeter {
  readonly priceOf: PriceOf;
  /** The budgets that a batch counts for when it begins now. */
  chargesOf(holder: KeyHolder, api: string): readonly Charge[];
  /** Stores the difference between an estimate and what was used, unless the estimate is gone. */
  correct(call: SettledCall, estimate: StoredEstimate): Promise<void>;
  flush(): Promise<void>;
}

/** The estimated charge of a batch. It is stored with the batch until its usage is known. */
interface BatchCharge {
  readonly holder: Pick<KeyHolder, 'id' | 'owner' | 'team' | 'tags'>;
  readonly plan: BatchPlan;
  readonly api: string;
  readonly requestId: string;
  readonly costNano: number;
  readonly charges: readonly Charge[];
}

interface NewBatch extends Pick<BatchCharge, 'plan' | 'api' | 'requestId'> {
  readonly holder: KeyHolder;
}

export type BatchCharges = ReturnType<typeof createBatchCharges>;

/** Stores what the API has done, and ends the call. The call is charged even if storing fails, because the API has done the work. */
export async function settle(finish: FinishCall, note: () => Promise<void>, measured?: MeasuredUsage): Promise<void> {
  try {
    await note();
  } catch (error) {
    finish({ outcome: 'error', status: statusOf(error), measured });
    throw error;
  }
  finish({ outcome: 'ok', status: 200, measured });
}

/** Charges of batches: an estimate when they begin, corrected by what their API says that they used. */
export function createBatchCharges(meter: BatchMeter) {
  function priced(holder: BatchCharge['holder'], { plan, api, requestId }: Omit<NewBatch, 'holder'>, usage: Usage) {
    const counted: Usage & { readonly service_tier: string } = { ...usage, service_tier: 'batch' };
    const outcome: CallOutcome = {
      ...{ model: plan.model, api, upstreamModel: plan.upstreamModel, requestId, operation: 'batch' },
      ...{ usage: counted, estimated: false, outcome: 'ok', status: 200 },
      ...{ attempts: 0, durationMs: 0, firstTokenMs: 0 },
    };
    return priceCall(holder as KeyHolder, outcome, meter.priceOf);
  }

  return {
    /** What is stored with a batch that was charged its estimate now. */
    detailOf({ holder, ...batch }: NewBatch): string {
      const { id, owner, team, tags } = holder;
      const named = { id, owner, ...(team !== undefined && { team }), ...(tags !== undefined && { tags }) };
      const { promptTokens, answerTokens } = batch.plan;
      const { costNano } = priced(named, batch, estimatedUsage(promptTokens, answerTokens));
      const charges = costNano > 0 ? meter.chargesOf(holder, batch.api) : [];
      return JSON.stringify({ ...batch, holder: named, costNano, charges } satisfies BatchCharge);
    },
    /** Resolves when the charge of a batch that was begun is stored; if storing fails, it is tried again until the program ends. */
    stored: () => meter.flush().catch(() => undefined),
    /** Puts what a batch used in the place of its estimate, once, when its API tells it. */
    async correct({ id: batchId, detail }: StoredObject, owner: KeyHolder, batch: JsonObject): Promise<void> {
      const usage = detail === '' ? undefined : usedBy(batch);
      if (usage === undefined) return;
      const charge = JSON.parse(detail) as BatchCharge;
      const { promptTokens, answerTokens } = charge.plan;
      const used = priced(charge.holder, charge, usage);
      const correction: SettledCall = {
        ...used,
        promptTokens: used.promptTokens - promptTokens,
        completionTokens: used.completionTokens - answerTokens,
        costNano: used.costNano - charge.costNano,
        charges: charge.charges,
      };
      await meter.correct(correction, { batchId, owner: ownerOf(owner), detail });
    },
  };
}

const ENDED = new Set<unknown>(['completed', 'failed', 'expired', 'cancelled']);

/** What a batch that has ended used; undefined while it runs, and where the API does not tell. */
function usedBy({ status, usage, request_counts: counts }: JsonObject): Usage | undefined {
  if (!ENDED.has(status)) return undefined;
  const used = readResponsesUsage(usage);
  if (used !== undefined && used.total_tokens > 0) return used;
  return asObject(counts) !== undefined && asCount(asObject(counts)?.completed) === 0
    ? estimatedUsage(0, 0)
    : undefined;
}
