/** @import { OpenApiDocument, Operation, Schema } from './openapi-types.d.ts' */

/**
 * All operations, group by group in the order of the document's tags. What browsers alone send is left out. A path that
 * takes JSON-RPC requests is one operation for each method.
 * @param {OpenApiDocument} document
 * @returns {{ title: string, operations: Operation[] }[]}
 */
export function groupOperations(document) {
  const operations = Object.entries(document.paths).flatMap(([path, byMethod]) =>
    Object.entries(byMethod)
      .filter(([method]) => method !== 'options')
      .flatMap(([method, operation]) => {
        const isPrefixed = document.paths[`/v1${path}`]?.[method] !== undefined;
        const shown = { ...operation, path, method: operation['x-websocket'] ? 'WS' : method.toUpperCase() };
        return perVariant(document, { ...shown, ...(isPrefixed && { isRepeated: true }) });
      }),
  );
  return document.tags.map(({ name, description }) => ({
    title: description,
    operations: operations.filter(({ tags }) => tags.includes(name)),
  }));
}

/**
 * @param {OpenApiDocument} document
 * @param {Operation} operation
 * @returns {Operation[]}
 */
function perVariant(document, operation) {
  const [type = ''] = Object.keys(operation.requestBody?.content ?? {});
  const variants = operation['x-websocket'] ? [] : variantsOf(document, messageSchema(operation));
  if (variants.length === 0) return [operation];
  return variants.map((schema) => ({
    ...operation,
    operationId: `${operation.operationId}/${schema.title}`,
    variant: schema.title,
    summary: schema.description ?? operation.summary,
    requestBody: { content: { [type]: { schema } } },
  }));
}

/**
 * Every word must occur in the method, the path, the summary or the name of a variant.
 * @param {OpenApiDocument} document
 * @param {Operation} operation
 * @param {string} words
 */
export function matches(document, operation, words) {
  const { method, path, summary, variant = '' } = operation;
  const variants = variantsOf(document, messageSchema(operation)).map(({ title }) => title);
  const text = [method, path, variant, summary, ...variants].join(' ').toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

/**
 * What can be sent: the body of a request, or a message of a WebSocket.
 * @param {Operation} operation
 * @returns {Schema | undefined}
 */
export function messageSchema(operation) {
  const content = operation.requestBody?.content;
  return operation['x-websocket']?.message ?? Object.values(content ?? {})[0]?.schema;
}

/**
 * A reference replaced by what it refers to. What leads nowhere is a schema that allows everything.
 * @param {OpenApiDocument} document
 * @param {Schema | boolean | undefined} schema
 * @returns {Schema}
 */
export function resolve(document, schema) {
  if (typeof schema !== 'object') return {};
  if (schema.$ref === undefined) return schema;
  const { $ref, ...rest } = schema;
  const target = document.components.schemas[refName($ref)];
  return { ...resolve(document, target), ...rest };
}

/** @param {string} reference */
export function refName(reference) {
  return reference.slice(reference.lastIndexOf('/') + 1);
}

/**
 * The titled alternatives of a schema, such as one per JSON-RPC method; empty when it is not such a union.
 * @param {OpenApiDocument} document
 * @param {Schema | undefined} schema
 * @returns {(Schema & { title: string })[]}
 */
export function variantsOf(document, schema) {
  const { oneOf, anyOf } = resolve(document, schema);
  const variants = (oneOf ?? anyOf ?? []).map((variant) => resolve(document, variant));
  const titled = variants.flatMap((variant) =>
    variant.title === undefined ? [] : [{ ...variant, title: variant.title }],
  );
  return titled.length === variants.length ? titled : [];
}
