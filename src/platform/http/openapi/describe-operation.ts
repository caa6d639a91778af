import type { TSchema } from 'typebox';
import { nodeHttp } from '../node-http.ts';
import type { RouteSchema } from '../surface.ts';
import { type ComponentSchemas, isObject, type JsonObject, type JsonSchema } from './component-schemas.ts';
import type { MethodSchemas } from './describe-methods.ts';
import type { DescribedRoute, DescribedUpgrade } from './described-surface.ts';
import type { PathParameter } from './path-template.ts';

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly parameters?: readonly JsonObject[];
  readonly requestBody?: JsonObject;
  readonly responses: Readonly<Record<string, JsonObject>>;
  /** The address is a WebSocket; `message` is what a client may send. */
  readonly 'x-websocket'?: { readonly message?: JsonSchema };
}

export interface OperationDescriber {
  ofRoute(
    operationId: string,
    route: DescribedRoute,
    path: readonly PathParameter[],
    methods: MethodSchemas | undefined,
  ): Operation;
  ofUpgrade(
    operationId: string,
    upgrade: DescribedUpgrade,
    path: readonly PathParameter[],
    message: JsonSchema | undefined,
    plain: Operation | undefined,
  ): Operation;
}

export interface DescriberInput {
  readonly components: ComponentSchemas;
  readonly tag: string;
  readonly error: JsonSchema | undefined;
}

const JSON_TYPE = 'application/json';
const SOCKET_DESCRIPTION = 'A WebSocket: ask for an upgrade. Messages are text frames, one JSON value each.';

export function createOperationDescriber({ components, tag, error }: DescriberInput): OperationDescriber {
  const ofRoute: OperationDescriber['ofRoute'] = (operationId, route, path, methods) => {
    const parameters = [...pathParameters(path, route.schema?.params), ...queryParameters(route.schema?.query)];
    return {
      operationId,
      summary: route.summary,
      tags: [tag],
      ...(parameters.length > 0 && { parameters }),
      ...(route.body !== undefined && { requestBody: requestBody(route, methods) }),
      responses: responses(route.schema ?? {}, methods),
    };
  };

  const ofUpgrade: OperationDescriber['ofUpgrade'] = (operationId, upgrade, path, message, plain) => {
    const own = [...pathParameters(path, undefined), ...queryParameters(upgrade.query)];
    const isOwn = (other: JsonObject) => own.some(({ name, in: place }) => name === other.name && place === other.in);
    const parameters = [...own, ...(plain?.parameters ?? []).filter((other) => !isOwn(other))];
    return {
      operationId,
      summary: plain ? `${upgrade.summary} Without an upgrade: ${plain.summary}` : upgrade.summary,
      description: SOCKET_DESCRIPTION,
      tags: [tag],
      ...(parameters.length > 0 && { parameters }),
      responses: { 101: { description: 'Switching Protocols' }, ...(plain?.responses ?? errorResponse()) },
      'x-websocket': message === undefined ? {} : { message },
    };
  };

  function requestBody({ schema, body }: DescribedRoute, methods: MethodSchemas | undefined): JsonObject {
    if (methods) return { required: true, content: { [JSON_TYPE]: { schema: methods.request } } };
    if (schema?.body) return { required: true, content: contentOf(schema.body) };
    return { required: true, content: { [body === 'json' ? JSON_TYPE : 'application/octet-stream']: {} } };
  }

  function responses({ response = {}, error: ownError }: RouteSchema, methods: MethodSchemas | undefined) {
    const described: Record<string, JsonObject> = {};
    for (const [status, schema] of Object.entries(response)) {
      const content = contentOf(schema);
      described[status] = {
        description: descriptionOf(schema) ?? nodeHttp.STATUS_CODES[status] ?? `Status ${status}`,
        ...(Object.keys(content).length > 0 && { content }),
      };
    }
    if (methods) {
      // Once a call was dispatched, its error travels with the same status as its result.
      const schema = error === undefined ? methods.response : { anyOf: [methods.response, error] };
      const content = { [JSON_TYPE]: { schema }, ...(described[200]?.content ?? {}) };
      described[200] = { description: 'OK', ...described[200], content };
    }
    if (Object.keys(described).length === 0) described[200] = { description: 'OK' };
    return { ...described, ...errorResponse(ownError === undefined ? error : components.describe(ownError)) };
  }

  function errorResponse(schema: JsonSchema | undefined = error): Record<string, JsonObject> {
    return schema === undefined ? {} : { default: { description: 'An error', content: { [JSON_TYPE]: { schema } } } };
  }

  /**
   * By media type. A string schema names another one than JSON with the keyword `contentMediaType`;
   * a union may mix both (an answer that is JSON, or a stream of events). A null schema is an empty body.
   */
  function contentOf(schema: TSchema): JsonObject {
    const variants = isObject(schema) && Array.isArray(schema.anyOf) ? schema.anyOf : [];
    const content: JsonObject = {};
    const jsonVariants = variants.filter((variant) => mediaTypeOf(variant) === JSON_TYPE);
    if (variants.length === 0 || jsonVariants.length === variants.length) {
      if (!(isObject(schema) && schema.type === 'null')) addContent(content, schema);
      return content;
    }
    if (jsonVariants.length > 0)
      addContent(content, jsonVariants.length === 1 ? jsonVariants[0] : { anyOf: jsonVariants });
    for (const variant of variants) {
      if (!jsonVariants.includes(variant)) addContent(content, variant);
    }
    return content;
  }

  function addContent(content: JsonObject, schema: unknown): void {
    content[mediaTypeOf(schema)] = { schema: components.describe(schema) };
  }

  function queryParameters(schema: TSchema | undefined): JsonObject[] {
    return propertiesOf(schema).map(([name, property, required]) => parameter('query', name, property, required));
  }

  function pathParameters(path: readonly PathParameter[], schema: TSchema | undefined): JsonObject[] {
    const properties = new Map(propertiesOf(schema).map(([name, property]) => [name, property]));
    return path.map(({ name, routeName, multiSegment }) => ({
      ...parameter('path', name, properties.get(routeName) ?? { type: 'string' }, true),
      // OpenAPI cannot say that a parameter may hold slashes.
      ...(multiSegment && { 'x-multi-segment': true }),
    }));
  }

  function parameter(place: 'path' | 'query', name: string, schema: unknown, required: boolean): JsonObject {
    const description = descriptionOf(schema);
    return {
      name,
      in: place,
      required,
      ...(description !== undefined && { description }),
      schema: components.describe(schema),
    };
  }

  return { ofRoute, ofUpgrade };
}

function mediaTypeOf(schema: unknown): string {
  return isObject(schema) && schema.type === 'string' && typeof schema.contentMediaType === 'string'
    ? schema.contentMediaType
    : JSON_TYPE;
}

function descriptionOf(schema: unknown): string | undefined {
  return isObject(schema) && typeof schema.description === 'string' ? schema.description : undefined;
}

function propertiesOf(schema: TSchema | undefined): [name: string, property: unknown, required: boolean][] {
  if (!isObject(schema) || !isObject(schema.properties)) return [];
  const required = Array.isArray(schema.required) ? schema.required : [];
  return Object.entries(schema.properties).map(([name, property]) => [name, property, required.includes(name)]);
}
