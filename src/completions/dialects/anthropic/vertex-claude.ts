import { type Dialect, type DialectName, pathSegment } from '../dialect.ts';
import { asObject, type JsonObject } from '../json-value.ts';
import { type AnthropicStreamState, anthropicDialect } from './anthropic-dialect.ts';

/** What Vertex wants in the body, instead of the header `anthropic-version` and the name of the model. */
const VERSION = 'vertex-2023-10-16';
/** What the catalogue says of the operation that serves a model. */
type Served = { readonly operation?: string };

const PUBLISHERS = ['publishers/anthropic/models/', 'anthropic/'];

/**
 * Whether a model of an API is Claude on Vertex: the catalogue says so, or the name has its publisher, as in
 * `publishers/anthropic/models/claude-x`.
 */
export function isVertexClaude(dialect: DialectName, model: string, known: Served | undefined): boolean {
  if (dialect !== 'google-vertex') return false;
  return known?.operation === 'rawPredict' || PUBLISHERS.some((prefix) => model.startsWith(prefix));
}

/** Where Vertex takes a request of the Messages API for a model. */
export function vertexClaudePath(model: string, stream: boolean): string {
  const prefix = PUBLISHERS.find((each) => model.startsWith(each)) ?? '';
  // Versions follow an at sign, which Google's own library does not escape.
  const name = pathSegment(model.slice(prefix.length)).replaceAll('%40', '@');
  return `/publishers/anthropic/models/${name}:${stream ? 'streamRawPredict' : 'rawPredict'}`;
}

export const VERTEX_CLAUDE_COUNT_PATH = '/publishers/anthropic/models/count-tokens:rawPredict';

/** The body of a request of the Messages API, as Vertex takes it: the address names the model. */
export function vertexClaudeBody({ model: _, ...body }: JsonObject): JsonObject {
  return { anthropic_version: VERSION, ...body };
}

/** A count of tokens names the model in the body, without its publisher. */
export function vertexClaudeCountBody(body: JsonObject, model: string): JsonObject {
  const prefix = PUBLISHERS.find((each) => model.startsWith(each)) ?? '';
  return { anthropic_version: VERSION, ...body, model: model.slice(prefix.length) };
}

/** Claude on Vertex: the Messages API at other addresses. */
export const vertexClaudeDialect: Dialect<AnthropicStreamState> = {
  ...anthropicDialect,
  name: 'vertex-claude',
  encodeRequest(request, context) {
    const { headers: _, body, ...encoded } = anthropicDialect.encodeRequest(request, context);
    const path = vertexClaudePath(context.model, context.stream);
    return { ...encoded, path, headers: {}, body: vertexClaudeBody(asObject(body) ?? {}) };
  },
};
