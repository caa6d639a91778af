import { hash } from 'node:crypto';
import { AppError } from '../../platform/errors/app-error.ts';
import { demoImage, demoRerank, demoSpeech } from '../apis/demo-models.ts';
import type { UnitCounts } from '../apis/prices.ts';
import { ImageEditRequest, ImageRequest, ModerationRequest, RerankRequest, SpeechRequest } from '../contract/media.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { nothingStored } from '../dialects/conversation.ts';
import type { DialectName } from '../dialects/dialect.ts';
import { asObject, asWords } from '../dialects/json-value.ts';
import type { CallOperation } from '../keys/admission.ts';
import { spliceModel } from '../relay/splice-body.ts';
import { estimateTokensIn, tokensOfCharacters } from '../relay/token-usage.ts';
import type { UpstreamBody } from '../upstream/upstream-exchange.ts';
import { type Form, fieldOf, isForm, readForm, writeForm } from './form-data.ts';

/** A checked request of one of these operations. */
export interface MediaRequest {
  readonly model: string;
  /** `whole`: one body; `audio`: a recording as it comes; `events`: server-sent events. */
  readonly answer: 'whole' | 'audio' | 'events';
  /** Of a recording. */
  readonly contentType: string;
  readonly estimate: { readonly prompt: number; readonly answer: number; readonly units?: UnitCounts };
  /** For the log of calls, where content is kept. Files are left out. */
  readonly text: string;
  readonly fields: Readonly<Record<string, unknown>>;
  encode(model: string): { readonly body: UpstreamBody; readonly contentType: string };
  /** The same request with other values of its fields. */
  withFields(fields: Readonly<Record<string, unknown>>): MediaRequest;
}

/** One operation: what is asked, where, and what an answer has in it. */
export interface MediaKind {
  readonly operation: CallOperation;
  /** For people: `The API of this model offers no ...`. */
  readonly named: string;
  readonly path: string;
  /** A dialect besides OpenAI's that has the operation in the same form. */
  readonly alsoSpokenBy?: DialectName;
  /** The members that make an object an answer. */
  readonly results: readonly string[];
  /** Some formats of the answer are not JSON. */
  readonly mayBeText?: true;
  /** The demo model for it, under `demo/`. */
  readonly demo: string;
  read(body: Buffer, contentType: string | undefined): MediaRequest;
  answerDemo(request: MediaRequest, created: number): { readonly body: Buffer | string; readonly contentType: string };
}

/** What an image takes, about: 1,056 tokens at medium quality, 4,160 at high. */
const TOKENS_PER_IMAGE = 1500;
/** A recording of 16 KB a second, with ten tokens a second. */
const BYTES_PER_AUDIO_TOKEN = 1600;
const BYTES_PER_SECOND = 16_000;
const MODERATION_MODEL = 'omni-moderation-latest';
const AUDIO_TYPES: Readonly<Record<string, string>> = {
  mp3: 'audio/mpeg',
  opus: 'audio/ogg',
  aac: 'audio/aac',
  flac: 'audio/flac',
  wav: 'audio/wav',
  pcm: 'audio/pcm',
};
const JSON_TYPE = 'application/json';

type Fields = Readonly<Record<string, unknown>> & { readonly model: string };
type Own = Pick<MediaRequest, 'answer' | 'estimate'> & { readonly contentType?: string };

function fromJson(bytes: Buffer, fields: Fields, own: Own): MediaRequest {
  return {
    contentType: '',
    ...own,
    model: fields.model,
    fields,
    text: String(bytes),
    encode: (model) => ({
      body: spliceModel(bytes, fields.model, model) ?? JSON.stringify({ ...fields, model }),
      contentType: JSON_TYPE,
    }),
    withFields: (changed) => fromJson(Buffer.from(JSON.stringify(changed)), { ...changed, model: fields.model }, own),
  };
}

/** The fields of a form, without its files. */
function fromForm(form: Form, own: Own, changed: Readonly<Record<string, string>> = {}): MediaRequest {
  const model = fieldOf(form, 'model') ?? '';
  if (model === '') throw missing('model');
  const fields: Record<string, unknown> = { model };
  for (const { name, filename, value } of form.parts) {
    if (filename === undefined) fields[name] = changed[name] ?? value.toString('utf8');
  }
  return {
    contentType: '',
    ...own,
    model,
    fields,
    text: JSON.stringify(fields),
    encode: (upstreamModel) => writeForm(form, { ...changed, model: upstreamModel }),
    withFields: (next) => fromForm(form, own, next as Readonly<Record<string, string>>),
  };
}

/**
 * Refuses images that a request names by their id at a model API: they lie in the operator's account, which all callers share, and
 * the request does not say which of them are the caller's own.
 */
function refuseStoredImages(fields: Readonly<Record<string, unknown>>): void {
  for (const name of ['image', 'images', 'mask']) {
    for (const [index, image] of [fields[name]].flat().entries()) {
      const id = asWords(asObject(image)?.file_id);
      if (id !== undefined) throw nothingStored({ id, path: `/${name}/${index}/file_id` });
    }
  }
}

function missing(param: string): AppError {
  const message = `Missing required parameter: '${param}'.`;
  return new AppError('INVALID_PARAMETER', { message, apiCode: 'missing_required_parameter', param });
}

const readImage = createRequestReader(ImageRequest);
const readEdit = createRequestReader(ImageEditRequest);
const readSpeech = createRequestReader(SpeechRequest);
const readModeration = createRequestReader(ModerationRequest);
const readRerank = createRequestReader(RerankRequest);

function drawing(fields: Readonly<Record<string, unknown>>): Own {
  const count = Number(fields.n ?? 1);
  if (!(count >= 1 && count <= 10)) {
    throw new AppError('INVALID_PARAMETER', { message: "Invalid 'n': expected 1 to 10.", param: 'n' });
  }
  const isStream = fields.stream === true || fields.stream === 'true';
  return {
    answer: isStream ? 'events' : 'whole',
    estimate: {
      prompt: tokensOfCharacters(String(fields.prompt ?? '').length),
      answer: count * TOKENS_PER_IMAGE,
      units: { images: count },
    },
  };
}

function demoEvents(...events: readonly (Readonly<Record<string, unknown>> & { readonly type: string })[]) {
  const body = events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('');
  return { body, contentType: 'text/event-stream' };
}

function drawDemo({ fields, answer }: MediaRequest, created: number) {
  const image = demoImage(String(fields.prompt ?? '')).toString('base64');
  if (answer === 'events')
    return demoEvents({ type: 'image_generation.completed', b64_json: image, created_at: created });
  const data = Array.from({ length: Number(fields.n ?? 1) }, () => ({ b64_json: image }));
  return { body: JSON.stringify({ created, data }), contentType: JSON_TYPE };
}

/** A recording whose words are asked for: its fields are known, and its size tells how long it is. */
function readRecording(body: Buffer, contentType: string | undefined): MediaRequest {
  const form = readForm(body, contentType);
  const [file] = form.parts.filter(({ name, filename }) => name === 'file' && filename !== undefined);
  if (file === undefined) throw missing('file');
  const prompt = Math.ceil(file.value.length / BYTES_PER_AUDIO_TOKEN);
  const isStream = fieldOf(form, 'stream') === 'true';
  const units = { seconds: Math.ceil(file.value.length / BYTES_PER_SECOND) };
  return fromForm(form, { answer: isStream ? 'events' : 'whole', estimate: { prompt, answer: prompt, units } });
}

function hearDemo({ fields, estimate, answer }: MediaRequest) {
  const text = `A recording of about ${estimate.prompt} tokens.`;
  if (answer === 'events') {
    return demoEvents({ type: 'transcript.text.delta', delta: text }, { type: 'transcript.text.done', text });
  }
  if (fields.response_format === 'text') return { body: `${text}\n`, contentType: 'text/plain' };
  return { body: JSON.stringify({ text }), contentType: JSON_TYPE };
}

const drawn = { operation: 'image', named: 'images', results: ['data'], demo: 'image', answerDemo: drawDemo } as const;
const heard = {
  operation: 'transcription',
  named: 'transcriptions',
  results: ['text', 'segments', 'words'],
  mayBeText: true,
  demo: 'transcription',
  read: readRecording,
  answerDemo: hearDemo,
} as const;

/** THE TABLE of operations whose requests and answers pass as they are. */
export const mediaKinds = {
  createImage: {
    ...drawn,
    path: '/images/generations',
    read(body) {
      const fields = readImage(body);
      return fromJson(body, fields, drawing(fields));
    },
  },
  editImage: {
    ...drawn,
    path: '/images/edits',
    read(body, contentType) {
      if (isForm(contentType)) {
        const form = readForm(body, contentType);
        const fields = { prompt: fieldOf(form, 'prompt'), n: fieldOf(form, 'n'), stream: fieldOf(form, 'stream') };
        return fromForm(form, drawing(fields));
      }
      if (!/^application\/json\b/i.test(contentType ?? '')) throw new AppError('UNSUPPORTED_MEDIA_TYPE');
      const fields = readEdit(body);
      refuseStoredImages(fields);
      return fromJson(body, fields, drawing(fields));
    },
  },
  speak: {
    operation: 'speech',
    named: 'speech',
    path: '/audio/speech',
    results: [],
    demo: 'speech',
    read(body) {
      const fields = readSpeech(body);
      const prompt = tokensOfCharacters(fields.input.length);
      const answer = fields.stream_format === 'sse' ? 'events' : 'audio';
      const contentType = AUDIO_TYPES[fields.response_format ?? 'mp3'] ?? 'application/octet-stream';
      const units = { characters: fields.input.length };
      return fromJson(body, fields, { answer, contentType, estimate: { prompt, answer: fields.input.length, units } });
    },
    answerDemo({ fields, answer }) {
      const audio = demoSpeech(String(fields.input));
      if (answer !== 'events') return { body: audio, contentType: 'audio/wav' };
      return demoEvents({ type: 'speech.audio.delta', audio: audio.toString('base64') }, { type: 'speech.audio.done' });
    },
  },
  transcribe: { ...heard, path: '/audio/transcriptions' },
  translate: { ...heard, path: '/audio/translations' },
  moderate: {
    operation: 'moderation',
    named: 'moderations',
    path: '/moderations',
    results: ['results'],
    demo: 'moderation',
    read(body) {
      const fields = { model: MODERATION_MODEL, ...readModeration(body) };
      return fromJson(body, fields, {
        answer: 'whole',
        estimate: { prompt: estimateTokensIn(fields.input), answer: 0 },
      });
    },
    answerDemo({ fields, text }) {
      const inputs = [fields.input].flat();
      const results = inputs.map(() => ({ flagged: false, categories: {}, category_scores: {} }));
      const id = `modr-${hash('sha256', text).slice(0, 24)}`;
      return { body: JSON.stringify({ id, model: 'demo/moderation', results }), contentType: JSON_TYPE };
    },
  },
  rerank: {
    operation: 'rerank',
    named: 'ranking',
    path: '/rerank',
    alsoSpokenBy: 'cohere',
    results: ['results', 'data'],
    demo: 'rerank',
    read(body) {
      const fields = readRerank(body);
      const prompt = estimateTokensIn(fields.query, fields.documents);
      return fromJson(body, fields, { answer: 'whole', estimate: { prompt, answer: 0 } });
    },
    answerDemo({ fields }) {
      const { query, documents, top_n: most } = fields as unknown as RerankRequest;
      return { body: JSON.stringify({ results: demoRerank(query, documents, most) }), contentType: JSON_TYPE };
    },
  },
} as const satisfies Readonly<Record<string, MediaKind>>;
