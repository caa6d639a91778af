import { createComponentSchemas, type JsonObject, type JsonSchema } from './component-schemas.ts';
import { type DescribedMethods, describeMethods } from './describe-methods.ts';
import { createOperationDescriber, type Operation } from './describe-operation.ts';
import type { DescribedSurface } from './described-surface.ts';
import { operationIdOf, pathTemplate } from './path-template.ts';

export interface OpenApiInput {
  readonly title: string;
  /** Version of the contract, not of the program. */
  readonly version: string;
  readonly surfaces: readonly DescribedSurface[];
  readonly methods?: DescribedMethods;
}

export interface OpenApiDocument {
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
  const methodSchemas = methods && methods.rows.length > 0 ? describeMethods(methods.rows, components) : undefined;
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
    for (const upgrade of surface.upgrades) {
      const { path, parameters } = pathTemplate(upgrade.path);
      const operations = operationsAt(path);
      // An address can answer plain requests too: then both share the one GET operation that OpenAPI has for them.
      const plain = operations.get;
      if (plain?.['x-websocket'] !== undefined) throw new Error(`Two upgrades serve ${upgrade.path}.`);
      const operationId = plain?.operationId ?? uniqueId(operationIds, operationIdOf('GET', path));
      operations.get = describer.ofUpgrade(operationId, upgrade, parameters, methodsAt(upgrade.path)?.request, plain);
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
