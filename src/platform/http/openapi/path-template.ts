/** A path in OpenAPI's spelling, and what it holds. */
export interface PathTemplate {
  readonly path: string;
  readonly parameters: readonly PathParameter[];
}

export interface PathParameter {
  readonly name: string;
  /** Its name in the route's `params` schema: `*` for the rest of a path. */
  readonly routeName: string;
  readonly multiSegment: boolean;
}

/** `/sessions/:id` becomes `/sessions/{id}`, and `/models/*` becomes `/models/{path}`. */
export function pathTemplate(routePath: string): PathTemplate {
  const parameters: PathParameter[] = [];
  const path = routePath.replaceAll(/:(\w+)|\*/g, (routeName, named: string | undefined) => {
    const name = named ?? 'path';
    parameters.push({ name, routeName: named ?? routeName, multiSegment: named === undefined });
    return `{${name}}`;
  });
  return { path, parameters };
}

/** `POST /v1/keys/{id}` becomes `postV1KeysById`: it changes only when the path does. */
export function operationIdOf(method: string, path: string): string {
  const words = path
    .replaceAll(/\{(\w+)\}/g, 'by-$1')
    .split(/[^A-Za-z0-9]+/)
    .filter((word) => word !== '')
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return method.toLowerCase() + (words.join('') || 'Root');
}
