/** The parts of OpenAPI 3.1 that the page reads. Only for the type checker: never served. */
export interface Schema {
  $ref?: string;
  title?: string;
  description?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  default?: unknown;
  examples?: unknown[];
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  required?: string[];
  items?: Schema | boolean;
  prefixItems?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

export type Content = Record<string, { schema?: Schema }>;

export interface Parameter {
  name: string;
  in: 'path' | 'query';
  required: boolean;
  description?: string;
  schema: Schema;
  'x-multi-segment'?: boolean;
}

export interface DocumentedOperation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, { description: string; content?: Content }>;
  'x-websocket'?: { message?: Schema };
}

export interface OpenApiDocument {
  info: { title: string; version: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, DocumentedOperation>>;
  components: { schemas: Record<string, Schema> };
}

/** One operation with its address. `method` is in upper case; `WS` for a WebSocket. */
export interface Operation extends DocumentedOperation {
  method: string;
  path: string;
  /** The JSON-RPC method that is called at the path. */
  variant?: string;
  /** The same operation is listed with `/v1` before its path. */
  isRepeated?: boolean;
}

/** What the form holds when it is sent. */
export interface RequestValues {
  parameters: Record<string, string>;
  body: string | undefined;
  eventStream: boolean;
}

export interface ApiRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
}

export interface StreamEvent {
  event: string;
  id: string;
  data: string;
}
