import { readdirSync, readFileSync } from 'node:fs';
import type {
  ApiRequest,
  OpenApiDocument,
  Operation,
  RequestValues,
  Schema,
  StreamEvent,
} from '../../../src/platform/http/api-page/browser/openapi-types.d.ts';

export type { OpenApiDocument, Operation, RequestValues, Schema, StreamEvent };

const folder = new URL('../../../src/platform/http/api-page/browser/', import.meta.url);

/** What the tests call of the page's own modules: those are JavaScript, checked with a configuration of their own. */
export interface BrowserModules {
  operations: {
    groupOperations(document: OpenApiDocument): { title: string; operations: Operation[] }[];
    matches(document: OpenApiDocument, operation: Operation, words: string): boolean;
    messageSchema(operation: Operation): Schema | undefined;
    resolve(document: OpenApiDocument, schema: Schema | boolean | undefined): Schema;
    variantsOf(document: OpenApiDocument, schema: Schema | undefined): (Schema & { title: string })[];
  };
  request: {
    buildRequest(operation: Operation, values: RequestValues, origin: string): ApiRequest;
    missingParameters(operation: Operation, values: RequestValues): string[];
    curlCommand(request: ApiRequest, withToken: boolean): string;
  };
  element: { prose(text: string): unknown[] };
  'response-view': {
    createEventParser(onEvent: (event: StreamEvent) => void): { push(bytes: Uint8Array): void };
    addedText(data: string): string;
    prettyJson(text: string): string;
    createResponseView(
      nextRequest: () => ApiRequest | undefined,
      token: () => string,
    ): { panel: unknown; run(): Promise<void>; close(): void };
  };
  'schema-tree': {
    schemaTree(document: OpenApiDocument, schema: Schema): unknown;
    exampleOf(document: OpenApiDocument, schema: Schema | boolean | undefined): unknown;
  };
}

export async function browserModule<Name extends keyof BrowserModules>(name: Name): Promise<BrowserModules[Name]> {
  return import(new URL(`${name}.js`, folder).href);
}

/** All files of the page by name, without the declarations that only the type checker reads. */
export function browserSources(): Map<string, string> {
  const names = readdirSync(folder).filter((name) => /\.(js|css)$/.test(name));
  return new Map(names.map((name) => [name, readFileSync(new URL(name, folder), 'utf8')]));
}

export function documentOf(schemas: Record<string, Schema> = {}): OpenApiDocument {
  return { info: { title: 'Sample', version: '1' }, tags: [], paths: {}, components: { schemas } };
}

export function operationOf(parts: Partial<Operation> = {}): Operation {
  return { operationId: 'it', method: 'GET', path: '/', summary: 'It.', tags: [], responses: {}, ...parts };
}
