import { type Static, Type } from 'typebox';
import type { Operation } from '../../platform/http/surface.ts';
import { optional } from './read-request.ts';

const model = Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.' });
const EventStream = Type.String({ contentMediaType: 'text/event-stream' });
const MAX_IMAGES = 10;

/** `POST /v1/images/generations`. As all requests, it is open: a field that is not named here is passed on. */
export const ImageRequest = Type.Object(
  {
    model,
    prompt: Type.String({ minLength: 1, maxLength: 100_000 }),
    n: optional(Type.Integer({ minimum: 1, maximum: MAX_IMAGES })),
    stream: optional(Type.Boolean()),
  },
  { $id: 'ImageRequest' },
);

/** `POST /v1/images/edits`, as JSON or as a form with the files in it. */
export const ImageEditRequest = Type.Object(
  {
    model,
    prompt: Type.String({ minLength: 1, maxLength: 100_000 }),
    n: optional(Type.Integer({ minimum: 1, maximum: MAX_IMAGES })),
    stream: optional(Type.Boolean()),
  },
  { $id: 'ImageEditRequest' },
);

export const ImageList = Type.Object({
  created: Type.Integer(),
  data: Type.Array(Type.Object({ b64_json: Type.Optional(Type.String()), url: Type.Optional(Type.String()) })),
  usage: Type.Optional(Type.Unknown()),
});

/** `POST /v1/audio/speech`. */
export const SpeechRequest = Type.Object(
  {
    model,
    input: Type.String({ minLength: 1, maxLength: 100_000 }),
    voice: optional(Type.Unknown({ description: 'The name of a voice, or another value that the API accepts.' })),
    response_format: optional(Type.String({ description: '`mp3`, `opus`, `aac`, `flac`, `wav` or `pcm`.' })),
    stream_format: optional(Type.Union([Type.Literal('audio'), Type.Literal('sse')])),
  },
  { $id: 'SpeechRequest' },
);

/** `POST /v1/audio/transcriptions` and `/translations`: a form with the recording as `file`. */
export const AudioForm = Type.Object(
  {
    model,
    stream: optional(Type.Union([Type.Boolean(), Type.Literal('true'), Type.Literal('false')])),
  },
  { $id: 'AudioForm' },
);

export const Transcription = Type.Object({ text: Type.String(), usage: Type.Optional(Type.Unknown()) });

/** `POST /v1/moderations`. */
export const ModerationRequest = Type.Object(
  {
    model: optional(
      Type.String({ minLength: 1, description: 'An alias, or <api>/<model>. Absent: `omni-moderation-latest`.' }),
    ),
    input: Type.Union([Type.String(), Type.Array(Type.Unknown(), { minItems: 1, maxItems: 1000 })]),
  },
  { $id: 'ModerationRequest' },
);

export const ModerationList = Type.Object({
  id: Type.String(),
  model: Type.String(),
  results: Type.Array(Type.Object({ flagged: Type.Boolean() })),
});

/** `POST /v1/rerank`, as Cohere, Jina and vLLM have it. */
export const RerankRequest = Type.Object(
  {
    model,
    query: Type.String({ minLength: 1 }),
    documents: Type.Array(Type.Unknown(), { minItems: 1, maxItems: 10_000 }),
    top_n: optional(Type.Integer({ minimum: 1 })),
  },
  { $id: 'RerankRequest' },
);

export const RerankList = Type.Object({
  results: Type.Array(Type.Object({ index: Type.Integer(), relevance_score: Type.Number() })),
});

export type ImageRequest = Static<typeof ImageRequest>;
export type SpeechRequest = Static<typeof SpeechRequest>;
export type ModerationRequest = Static<typeof ModerationRequest>;
export type RerankRequest = Static<typeof RerankRequest>;

/** What the rows take and return. */
export const mediaOperations = {
  createImage: {
    summary: 'Generate images; with "stream": true as a stream of events.',
    body: ImageRequest,
    raw: true,
    response: { 200: Type.Union([ImageList, EventStream]) },
  },
  editImage: {
    summary: 'Edit images: a form with the files, or JSON.',
    body: ImageEditRequest,
    raw: true,
    anyType: true,
    response: { 200: Type.Union([ImageList, EventStream]) },
  },
  speak: {
    summary: 'Convert text into speech: the audio itself, or with "stream_format": "sse" a stream of events.',
    body: SpeechRequest,
    raw: true,
    response: { 200: Type.Union([Type.String({ contentMediaType: 'audio/mpeg' }), EventStream]) },
  },
  transcribe: {
    summary: 'Transcribe speech: a form with the recording as `file`.',
    body: AudioForm,
    raw: true,
    anyType: true,
    response: { 200: Type.Union([Transcription, EventStream]) },
  },
  translate: {
    summary: 'Transcribe speech and translate it into English: a form with the recording as `file`.',
    body: AudioForm,
    raw: true,
    anyType: true,
    response: { 200: Transcription },
  },
  moderate: {
    summary: 'Classify whether texts or images are harmful.',
    body: ModerationRequest,
    raw: true,
    response: { 200: ModerationList },
  },
  rerank: {
    summary: 'Sort documents by their relevance to a query.',
    body: RerankRequest,
    raw: true,
    response: { 200: RerankList },
  },
} as const satisfies Readonly<Record<string, Operation>>;
