import type { EmbeddingList, EmbeddingsRequest } from '../contract/operations.ts';
import { type DialectName, pathSegment } from '../dialects/dialect.ts';
import { modelPath } from '../dialects/google/google-request.ts';
import { asCount, asList, asObject, type JsonObject } from '../dialects/json-value.ts';

/** How an upstream of another dialect makes embeddings. Texts only: none of them takes token numbers. */
export interface EmbeddingCodec {
  /** The most texts that one call takes. */
  readonly maxTexts: number;
  encode(texts: readonly string[], request: EmbeddingsRequest, model: string): { path: string; body: object };
  /** The numbers for each text; undefined for a body that does not hold them. */
  decode(body: unknown): DecodedEmbeddings | undefined;
}

interface DecodedEmbeddings {
  readonly embeddings: readonly number[][];
  readonly promptTokens?: number;
}

/** Fields that every codec carries. The rest of a request is dropped and named. */
export const CARRIED_FIELDS: ReadonlySet<string> = new Set([
  ...['model', 'input', 'encoding_format', 'dimensions', 'input_type', 'task_type'],
]);

/** What the texts are for, in Cohere's words and in Google's. Other makers' words for the same are known, too. */
const PURPOSES: readonly (readonly [cohere: string, google: string, others: readonly string[]])[] = [
  ['search_document', 'RETRIEVAL_DOCUMENT', ['document', 'passage']],
  ['search_query', 'RETRIEVAL_QUERY', ['query', 'QUESTION_ANSWERING', 'FACT_VERIFICATION', 'CODE_RETRIEVAL_QUERY']],
  ['classification', 'CLASSIFICATION', []],
  ['clustering', 'CLUSTERING', ['SEMANTIC_SIMILARITY']],
];

/** The purpose as Cohere names it. Cohere wants one; without any the texts are taken for documents. */
function cohereInputType({ input_type: own, task_type: google }: EmbeddingsRequest): string {
  const row = PURPOSES.find((names) => isPurpose(names, own ?? google ?? ''));
  return row?.[0] ?? own ?? 'search_document';
}

/** The purpose as Google names it. A name that only Google has passes as it is. */
function googleTaskType({ input_type: cohere, task_type: own }: EmbeddingsRequest): string | undefined {
  if (own !== undefined) return own;
  return cohere === undefined ? undefined : (PURPOSES.find((names) => isPurpose(names, cohere))?.[1] ?? cohere);
}

function isPurpose([cohere, google, others]: (typeof PURPOSES)[number], name: string): boolean {
  return name === cohere || name === google || others.includes(name);
}

const cohereBody = (texts: readonly string[], request: EmbeddingsRequest): JsonObject => ({
  texts,
  input_type: cohereInputType(request),
  embedding_types: ['float'],
  ...(request.dimensions !== undefined && { output_dimension: request.dimensions }),
});

function decodeCohere(body: unknown): DecodedEmbeddings | undefined {
  const answer = asObject(body);
  // Older models of Bedrock give the lists themselves.
  const lists = asObject(answer?.embeddings)?.float ?? answer?.embeddings;
  return decoded(asList(lists), asObject(asObject(answer?.meta)?.billed_units)?.input_tokens);
}

const cohere: EmbeddingCodec = {
  maxTexts: 96,
  encode: (texts, request, model) => ({ path: '/embed', body: { model, ...cohereBody(texts, request) } }),
  decode: decodeCohere,
};

const google: EmbeddingCodec = {
  maxTexts: 100,
  encode(texts, request, model) {
    const taskType = googleTaskType(request);
    const own = {
      ...(taskType !== undefined && { taskType }),
      ...(request.dimensions !== undefined && { outputDimensionality: request.dimensions }),
    };
    return {
      path: `${modelPath('google', model)}:batchEmbedContents`,
      body: { requests: texts.map((text) => ({ model: `models/${model}`, content: { parts: [{ text }] }, ...own })) },
    };
  },
  decode: (body) => decoded(asList(asObject(body)?.embeddings).map((item) => asObject(item)?.values)),
};

function vertex(model: string): EmbeddingCodec {
  return {
    // Models of Gemini's family take one text there.
    maxTexts: model.includes('gemini') ? 1 : 100,
    encode(texts, request) {
      const taskType = googleTaskType(request);
      return {
        path: `${modelPath('google-vertex', model)}:predict`,
        body: {
          instances: texts.map((content) => ({ content, ...(taskType !== undefined && { task_type: taskType }) })),
          ...(request.dimensions !== undefined && { parameters: { outputDimensionality: request.dimensions } }),
        },
      };
    },
    decode(body) {
      const items = asList(asObject(body)?.predictions).map((item) => asObject(asObject(item)?.embeddings));
      const tokens = items.map((item) => asCount(asObject(item?.statistics)?.token_count));
      const sum = tokens.reduce((total, count) => total + count, 0);
      return decoded(
        items.map((item) => item?.values),
        tokens.includes(0) ? undefined : sum,
      );
    },
  };
}

const bedrockPath = (model: string): string => `/model/${pathSegment(model)}/invoke`;

const titan: EmbeddingCodec = {
  maxTexts: 1,
  encode: ([inputText], { dimensions }, model) => ({
    path: bedrockPath(model),
    body: { inputText, ...(dimensions !== undefined && { dimensions }) },
  }),
  decode(body) {
    const answer = asObject(body);
    return decoded([answer?.embedding], answer?.inputTextTokenCount);
  },
};

const cohereOnBedrock: EmbeddingCodec = {
  maxTexts: 96,
  encode: (texts, request, model) => ({ path: bedrockPath(model), body: cohereBody(texts, request) }),
  decode: decodeCohere,
};

/** Finds the codec of a model; undefined where its API makes no embeddings, or takes OpenAI's request as it is. */
export function embeddingCodec(dialect: DialectName, model: string): EmbeddingCodec | undefined {
  if (dialect === 'cohere') return cohere;
  if (dialect === 'google') return google;
  if (dialect === 'google-vertex') return vertex(model);
  if (dialect !== 'bedrock') return undefined;
  if (model.includes('amazon.titan-embed')) return titan;
  return model.includes('cohere.embed') ? cohereOnBedrock : undefined;
}

function decoded(lists: readonly unknown[], tokens?: unknown): DecodedEmbeddings | undefined {
  const isNumbers = (list: unknown): list is number[] => Array.isArray(list) && typeof list[0] === 'number';
  if (lists.length === 0 || !lists.every(isNumbers)) return undefined;
  return { embeddings: lists, ...(typeof tokens === 'number' && { promptTokens: tokens }) };
}

/** The list as OpenAI has it: numbers, or their 32-bit floats in base64. */
export function embeddingList(
  embeddings: readonly number[][],
  model: string,
  asBase64: boolean,
  usage: EmbeddingList['usage'],
): EmbeddingList {
  return {
    object: 'list',
    data: embeddings.map((numbers, index) => ({
      object: 'embedding',
      index,
      embedding: asBase64 ? Buffer.from(Float32Array.from(numbers).buffer).toString('base64') : numbers,
    })),
    model,
    usage,
  };
}
