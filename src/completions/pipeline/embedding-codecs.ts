import type { EmbeddingList, EmbeddingsRequest } from '../contract/embeddings.ts';
import type { DialectName } from '../dialects/dialect.ts';
import { asList, asObject } from '../dialects/json-value.ts';

/** How an upstream of another dialect makes embeddings. Texts only: none of them takes token numbers. */
export interface EmbeddingCodec {
  encode(texts: readonly string[], request: EmbeddingsRequest, model: string): { path: string; body: object };
  /** The numbers for each text; undefined when the answer holds something else. */
  decode(body: unknown): { embeddings: readonly number[][]; promptTokens?: number } | undefined;
}

export const embeddingCodecs: Readonly<Partial<Record<DialectName, EmbeddingCodec>>> = {
  cohere: {
    encode: (texts, { dimensions }, model) => ({
      path: '/embed',
      body: {
        model,
        texts,
        input_type: 'search_document',
        embedding_types: ['float'],
        ...(dimensions !== undefined && dimensions !== null && { output_dimension: dimensions }),
      },
    }),
    decode(body) {
      const answer = asObject(body);
      const embeddings = readAll(asList(asObject(answer?.embeddings)?.float), (item) => item);
      const tokens = asObject(asObject(answer?.meta)?.billed_units)?.input_tokens;
      return embeddings && { embeddings, ...(typeof tokens === 'number' && { promptTokens: tokens }) };
    },
  },
  google: {
    encode: (texts, { dimensions }, model) => ({
      path: `/models/${encodeURIComponent(model)}:batchEmbedContents`,
      body: {
        requests: texts.map((text) => ({
          model: `models/${model}`,
          content: { parts: [{ text }] },
          ...(dimensions !== undefined && dimensions !== null && { outputDimensionality: dimensions }),
        })),
      },
    }),
    decode(body) {
      const embeddings = readAll(asList(asObject(body)?.embeddings), (item) => asObject(item)?.values);
      return embeddings && { embeddings };
    },
  },
};

function readAll(items: readonly unknown[], read: (item: unknown) => unknown): number[][] | undefined {
  const lists = items.map(read);
  const isNumbers = (list: unknown): list is number[] => Array.isArray(list) && typeof list[0] === 'number';
  return lists.length > 0 && lists.every(isNumbers) ? lists : undefined;
}

/** As OpenAI has it: numbers, or their 32-bit floats in base64. */
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
