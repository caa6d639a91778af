import type { CodecName, Dialect } from './dialect.ts';
import { azureDialect, openaiDialect } from './openai/openai-dialect.ts';

/** OpenAI's is needed by nearly everybody; the others are loaded with their first call. */
const loaders: Readonly<Record<CodecName, () => Promise<Dialect>>> = {
  openai: async () => asDialect(openaiDialect),
  azure: async () => asDialect(azureDialect),
  responses: async () => asDialect((await import('./openai/responses-dialect.ts')).responsesDialect),
  anthropic: async () => asDialect((await import('./anthropic/anthropic-dialect.ts')).anthropicDialect),
  'vertex-claude': async () => asDialect((await import('./anthropic/vertex-claude.ts')).vertexClaudeDialect),
  google: async () => asDialect((await import('./google/google-dialect.ts')).googleDialect),
  'google-vertex': async () => asDialect((await import('./google/google-dialect.ts')).vertexDialect),
  bedrock: async () => asDialect((await import('./bedrock/bedrock-dialect.ts')).bedrockDialect),
  cohere: async () => asDialect((await import('./cohere/cohere-dialect.ts')).cohereDialect),
};

const loaded = new Map<CodecName, Dialect>();

/** A dialect that was loaded before, so that a call need not wait for anything. */
export function loadedDialect(name: CodecName): Dialect | undefined {
  return loaded.get(name);
}

export async function loadDialect(name: CodecName): Promise<Dialect> {
  const dialect = loaded.get(name) ?? (await loaders[name]());
  loaded.set(name, dialect);
  return dialect;
}

/** A dialect is only ever given the states that it made. */
function asDialect<State>(dialect: Dialect<State>): Dialect {
  return dialect as Dialect;
}
