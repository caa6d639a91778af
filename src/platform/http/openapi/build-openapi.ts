import type { TSchema } from 'typebox';
import { nodeHttp } from '../../runtime/runtime.ts';
import type { RouteSchema } from '../surface.ts';
import {
  type ComponentSchemas,
  createComponentSchemas,
  type DescribedRoute,
  type DescribedSurface,
  type DescribedUpgrade,
  isObject,
  type JsonObject,
  type JsonSchema,
  operationIdOf,
  type PathParameter,
  pathTemplate,
} from './component-schemas.ts';

export interface OpenApiInput {
  readonly title: string;
  /** Version of the contract, not of the program. */
  readonly version: string;
  readonly surfaces: readonly DescribedSurface[];
  readonly methods?: DescribedMethods;
}

interface OpenApiDocument {
  readonly openapi: '3.1.0';
  readonly info: { readonly title: string; readonly version: string };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, JsonSchema>>;
    readonly securitySchemes: Readonly<Record<string, JsonObject>>;
  };
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
}

/** The OpenAPI 3.1 document of everything that the given tables serve. Pure: the same tables give the same text. */
export function buildOpenApi({ title, version, surfaces, methods }: OpenApiInput): OpenApiDocument {
  const components = createComponentSchemas();
  const methodSchemas = methods && methods.rows.length > 0 ? describeMethods(methods, components) : undefined;
  const paths: Record<string, Record<string, Operation>> = {};
  const operationIds = new Set<string>();
  const operationsAt = (path: string) => {
    paths[path] ??= {};
    return paths[path];
  };

  const shown = surfaces.filter(({ routes, upgrades }) => routes.length + upgrades.length > 0);

  for (const surface of shown) {
    const error = surface.errorSchema && components.define(`${surface.name}Error`, surface.errorSchema);
    const describer = createOperationDescriber({ components, tag: surface.name, error });
    const methodsAt = (path: string) => (methods?.paths.includes(path) ? methodSchemas : undefined);

    for (const route of surface.routes) {
      if (route.unlisted === true) continue;
      const { path, parameters } = pathTemplate(route.path);
      const operations = operationsAt(path);
      const key = route.method.toLowerCase();
      if (operations[key] !== undefined) throw new Error(`Two routes serve ${route.method} ${route.path}.`);
      const operationId = uniqueId(operationIds, operationIdOf(route.method, path));
      const ofMethods = route.body === undefined ? undefined : methodsAt(route.path);
      operations[key] = describer.ofRoute(operationId, route, parameters, ofMethods);
    }
    for (const upgrade of surface.upgrades.filter(({ unlisted }) => unlisted !== true)) {
      const { path, parameters } = pathTemplate(upgrade.path);
      const operations = operationsAt(path);
      // An address can answer plain requests too: then both share the one GET operation that OpenAPI has for them.
      const plain = operations.get;
      if (plain?.['x-websocket'] !== undefined) throw new Error(`Two upgrades serve ${upgrade.path}.`);
      const operationId = plain?.operationId ?? uniqueId(operationIds, operationIdOf('GET', path));
      operations.get = describer.ofUpgrade(operationId, upgrade, parameters, methodsAt(upgrade.path), plain);
    }
  }

  return {
    openapi: '3.1.0',
    info: { title, version },
    tags: shown.map(({ name, title: description }) => ({ name, description })),
    paths,
    components: {
      schemas: components.collect(),
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
    },
    // Whether a token is needed depends on the configuration of the running server.
    security: [{ bearer: [] }, {}],
  };
}

function uniqueId(taken: Set<string>, wanted: string): string {
  let id = wanted;
  for (let number = 2; taken.has(id); number += 1) id = `${wanted}${number}`;
  taken.add(id);
  return id;
}

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly parameters?: readonly JsonObject[];
  readonly requestBody?: JsonObject;
  readonly responses: Readonly<Record<string, JsonObject>>;
  /** The address is a WebSocket; `message` is what a client may send, `received` what it gets. */
  readonly 'x-websocket'?: { readonly message?: JsonSchema; readonly received?: JsonSchema };
}

interface OperationDescriber {
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
    methods: MethodSchemas | undefined,
    plain: Operation | undefined,
  ): Operation;
}

interface DescriberInput {
  readonly components: ComponentSchemas;
  readonly tag: string;
  readonly error: JsonSchema | undefined;
}

const JSON_TYPE = 'application/json';
/** The schema describes the data of one event. */
const EVENTS_TYPE = 'text/event-stream';
const SOCKET_DESCRIPTION = 'A WebSocket: request an upgrade. Each message is a text frame with one JSON value.';

function createOperationDescriber({ components, tag, error }: DescriberInput): OperationDescriber {
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

  const ofUpgrade: OperationDescriber['ofUpgrade'] = (operationId, upgrade, path, methods, plain) => {
    const own = [...pathParameters(path, undefined), ...queryParameters(upgrade.query)];
    const isOwn = (other: JsonObject) => own.some(({ name, in: place }) => name === other.name && place === other.in);
    const parameters = [...own, ...(plain?.parameters ?? []).filter((other) => !isOwn(other))];
    return {
      operationId,
      summary: plain ? `${upgrade.summary} Without an upgrade: ${plain.summary}` : upgrade.summary,
      description: SOCKET_DESCRIPTION,
      tags: [tag],
      ...(parameters.length > 0 && { parameters }),
      responses: {
        101: { description: 'Switching Protocols' },
        ...(plain?.responses ?? errorResponse(ownError(upgrade.error))),
      },
      'x-websocket': methods === undefined ? {} : { message: methods.request, received: methods.received },
    };
  };

  function requestBody({ schema, body }: DescribedRoute, methods: MethodSchemas | undefined): JsonObject {
    if (methods) return { required: true, content: { [JSON_TYPE]: { schema: methods.request } } };
    if (schema?.body) return { required: true, content: contentOf(schema.body) };
    return { required: true, content: { [body === 'json' ? JSON_TYPE : 'application/octet-stream']: {} } };
  }

  function ownError(own: TSchema | undefined): JsonSchema | undefined {
    return own === undefined ? error : components.describe(own);
  }

  function responses({ response = {}, error: own }: RouteSchema, methods: MethodSchemas | undefined) {
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
      const events = { type: 'string', contentMediaType: JSON_TYPE, contentSchema: methods.received };
      const content = {
        [JSON_TYPE]: { schema },
        [EVENTS_TYPE]: { schema: events },
        ...(described[200]?.content ?? {}),
      };
      described[200] = { description: 'OK', ...described[200], content };
    }
    if (Object.keys(described).length === 0) described[200] = { description: 'OK' };
    return { ...described, ...errorResponse(ownError(own)) };
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

/** What the document says of one JSON-RPC method; any method table has these columns. */
interface DescribedMethod {
  readonly name: string;
  readonly summary: string;
  readonly params: TSchema;
  readonly result: TSchema;
}

/** JSON-RPC methods and the paths (routes with a body, and upgrades) at which they can be called. */
interface DescribedMethods {
  readonly paths: readonly string[];
  readonly rows: readonly DescribedMethod[];
  /** What the server sends on its own. */
  readonly notifications?: readonly Omit<DescribedMethod, 'result'>[];
}

/** References to the union of all requests and to that of all answers. Each variant has its method's name as title. */
interface MethodSchemas {
  readonly request: JsonSchema;
  readonly response: JsonSchema;
  /** Whatever the server sends over a connection. */
  readonly received: JsonSchema;
}

const REQUEST_ID = { type: ['string', 'number', 'null'], description: 'Returned as sent.', examples: ['1'] };

function describeMethods({ rows, notifications = [] }: DescribedMethods, components: ComponentSchemas): MethodSchemas {
  const requests = rows.map(({ name, summary, params }) => ({
    title: name,
    description: summary,
    type: 'object',
    properties: {
      jsonrpc: { const: '2.0' },
      id: { ...REQUEST_ID, description: `${REQUEST_ID.description} Without it the call is a notification.` },
      method: { const: name },
      params,
    },
    required: ['jsonrpc', 'method'],
  }));
  const responses = rows.map(({ name, result }) => ({
    title: name,
    type: 'object',
    properties: {
      jsonrpc: { const: '2.0' },
      id: REQUEST_ID,
      result,
      ok: { const: true },
      type: { const: 'res' },
      payload: { description: 'The same as `result`.' },
      seq: { type: 'integer', description: 'Increases with each message of the connection.' },
    },
    required: ['jsonrpc', 'id', 'result', 'ok', 'type', 'payload', 'seq'],
  }));
  const sent = notifications.map(({ name, summary, params }) => ({
    title: name,
    description: summary,
    type: 'object',
    properties: {
      jsonrpc: { const: '2.0' },
      method: { const: name },
      params,
      type: { const: 'event' },
      event: { const: name },
      payload: { description: 'The same as `params`.' },
      seq: { type: 'integer', description: 'Increases with each message of the connection.' },
    },
    required: ['jsonrpc', 'method', 'params', 'type', 'event', 'payload', 'seq'],
  }));
  // Two methods may answer alike, so here more than one variant can match.
  const response = components.define('JsonRpcResponse', { anyOf: responses });
  return {
    request: components.define('JsonRpcRequest', { oneOf: requests }),
    response,
    received:
      sent.length === 0 ? response : { anyOf: [components.define('JsonRpcNotification', { oneOf: sent }), response] },
  };
}
