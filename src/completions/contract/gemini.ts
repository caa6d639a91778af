import { type Static, Type } from 'typebox';
import { optional } from './read-request.ts';

/**
 * Google's Gemini API (`generateContent`). As in `chat.ts`, every object is open and only what we check or translate is named. Names
 * are Google's JSON names; `plainNames` in `ingress/gemini/gemini-content.ts` turns its other spelling (`system_instruction`) into them.
 */
const Part = Type.Object({
  text: optional(Type.String()),
  thought: optional(Type.Boolean()),
  thoughtSignature: optional(Type.String()),
  inlineData: optional(
    Type.Object({ mimeType: Type.String(), data: Type.String(), displayName: optional(Type.String()) }),
  ),
  fileData: optional(Type.Object({ mimeType: optional(Type.String()), fileUri: Type.String() })),
  functionCall: optional(
    Type.Object({ id: optional(Type.String()), name: optional(Type.String()), args: optional(Type.Object({})) }),
  ),
  functionResponse: optional(
    Type.Object({
      id: optional(Type.String()),
      name: optional(Type.String()),
      response: optional(Type.Object({})),
      parts: optional(Type.Array(Type.Unknown())),
    }),
  ),
});

const Content = Type.Object({ role: optional(Type.String()), parts: optional(Type.Array(Part)) });

const Tool = Type.Object({
  functionDeclarations: optional(
    Type.Array(
      Type.Object({
        name: Type.String({ minLength: 1 }),
        description: optional(Type.String()),
        parameters: optional(Type.Object({})),
        parametersJsonSchema: optional(Type.Object({})),
      }),
    ),
  ),
});

const GenerationConfig = Type.Object({
  temperature: optional(Type.Number({ minimum: 0, maximum: 2 })),
  topP: optional(Type.Number({ minimum: 0, maximum: 1 })),
  topK: optional(Type.Number({ minimum: 0 })),
  maxOutputTokens: optional(Type.Integer({ minimum: 1 })),
  candidateCount: optional(Type.Integer({ minimum: 1, maximum: 128 })),
  stopSequences: optional(Type.Array(Type.String(), { maxItems: 10_000 })),
  seed: optional(Type.Integer()),
  presencePenalty: optional(Type.Number({ minimum: -2, maximum: 2 })),
  frequencyPenalty: optional(Type.Number({ minimum: -2, maximum: 2 })),
  responseLogprobs: optional(Type.Boolean()),
  logprobs: optional(Type.Integer({ minimum: 0, maximum: 20 })),
  responseMimeType: optional(Type.String()),
  responseSchema: optional(Type.Object({})),
  responseJsonSchema: optional(Type.Object({})),
  responseModalities: optional(Type.Array(Type.String())),
  thinkingConfig: optional(
    Type.Object({
      includeThoughts: optional(Type.Boolean()),
      thinkingBudget: optional(Type.Integer()),
      thinkingLevel: optional(Type.String()),
    }),
  ),
});

const PromptFields = {
  contents: Type.Array(Content, {
    minItems: 1,
    maxItems: 10_000,
    examples: [[{ role: 'user', parts: [{ text: 'Hello, Trestle' }] }]],
  }),
  systemInstruction: optional(Content),
  tools: optional(Type.Array(Tool)),
  toolConfig: optional(
    Type.Object({
      functionCallingConfig: optional(
        Type.Object({ mode: optional(Type.String()), allowedFunctionNames: optional(Type.Array(Type.String())) }),
      ),
    }),
  ),
  generationConfig: optional(GenerationConfig),
  cachedContent: optional(Type.String()),
};

export const GenerateContentRequest = Type.Object(PromptFields, { $id: 'GenerateContentRequest' });

/** The prompt stands in `contents`, or with instructions and tools in `generateContentRequest`. */
export const GeminiCountRequest = Type.Object(
  {
    contents: optional(PromptFields.contents),
    generateContentRequest: optional(Type.Object(PromptFields)),
  },
  { $id: 'GeminiCountRequest' },
);

const EmbedFields = {
  content: Content,
  taskType: optional(Type.String({ description: 'What the text is for: `RETRIEVAL_QUERY`, ...' })),
  outputDimensionality: optional(Type.Integer({ minimum: 1 })),
};

export const EmbedContentRequest = Type.Object(EmbedFields, { $id: 'EmbedContentRequest' });

export const BatchEmbedRequest = Type.Object(
  { requests: Type.Array(Type.Object(EmbedFields), { minItems: 1, maxItems: 2048 }) },
  { $id: 'BatchEmbedRequest' },
);

const GeminiUsage = Type.Object({
  promptTokenCount: Type.Integer(),
  candidatesTokenCount: Type.Integer({ description: 'Without those of thoughts.' }),
  totalTokenCount: Type.Integer(),
  thoughtsTokenCount: Type.Optional(Type.Integer()),
  cachedContentTokenCount: Type.Optional(Type.Integer()),
  promptTokensDetails: Type.Optional(Type.Array(Type.Object({ modality: Type.String(), tokenCount: Type.Integer() }))),
  estimated: Type.Optional(Type.Boolean()),
});

export const GenerateContentResponse = Type.Object(
  {
    candidates: Type.Array(
      Type.Object({
        content: Type.Object({ role: Type.String(), parts: Type.Array(Type.Object({})) }),
        finishReason: Type.Optional(Type.String()),
        finishMessage: Type.Optional(Type.String({ description: 'Why the model refused.' })),
        groundingMetadata: Type.Optional(Type.Object({}, { description: 'Sources that the answer names.' })),
        logprobsResult: Type.Optional(Type.Object({})),
        index: Type.Integer(),
      }),
    ),
    usageMetadata: Type.Optional(GeminiUsage),
    modelVersion: Type.String(),
    responseId: Type.String(),
  },
  { $id: 'GenerateContentResponse' },
);

const Embedding = Type.Object({ values: Type.Array(Type.Number()) });

/** What the operations other than `generateContent` give. */
export const GeminiResults = Type.Union([
  Type.Object({ totalTokens: Type.Integer(), estimated: Type.Optional(Type.Literal(true)) }),
  Type.Object({ embedding: Embedding }),
  Type.Object({ embeddings: Type.Array(Embedding) }),
]);

export const GeminiModel = Type.Object(
  {
    name: Type.String({ description: 'The id of the model after `models/`.' }),
    displayName: Type.String(),
    inputTokenLimit: Type.Optional(Type.Integer()),
    outputTokenLimit: Type.Optional(Type.Integer()),
    supportedGenerationMethods: Type.Array(Type.String()),
  },
  { $id: 'GeminiModel' },
);

export const GeminiModelsQuery = Type.Object({
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'Default: 50.' })),
  pageToken: Type.Optional(Type.String({ maxLength: 500, description: '`nextPageToken` of the page before.' })),
});

export const GeminiModelList = Type.Object({
  models: Type.Array(GeminiModel),
  nextPageToken: Type.Optional(Type.String()),
});

/** Errors of these paths, in the shape that clients of Google's APIs read. */
export const GeminiError = Type.Object(
  {
    error: Type.Object({
      code: Type.Integer({ description: 'The status.' }),
      message: Type.String(),
      status: Type.String({ description: 'The status in the words of Google: `INVALID_ARGUMENT`.' }),
      details: Type.Array(
        Type.Object({
          '@type': Type.String(),
          reason: Type.Optional(Type.String({ description: 'Our own code: `MODEL_NOT_FOUND`.' })),
          domain: Type.Optional(Type.String()),
          retryDelay: Type.Optional(Type.String({ description: 'Seconds: `3s`.' })),
        }),
      ),
    }),
  },
  { $id: 'GeminiError' },
);

export type GeminiPart = Static<typeof Part>;
export type GeminiContent = Static<typeof Content>;
export type GeminiTool = Static<typeof Tool>;
export type GenerationConfig = Static<typeof GenerationConfig>;
export type GenerateContentRequest = Static<typeof GenerateContentRequest>;
export type GeminiCountRequest = Static<typeof GeminiCountRequest>;
export type EmbedContentRequest = Static<typeof EmbedContentRequest>;
export type GeminiUsage = Static<typeof GeminiUsage>;
export type GenerateContentResponse = Static<typeof GenerateContentResponse>;
export type GeminiModel = Static<typeof GeminiModel>;
export type GeminiModelsQuery = Static<typeof GeminiModelsQuery>;
export type GeminiModelList = Static<typeof GeminiModelList>;
