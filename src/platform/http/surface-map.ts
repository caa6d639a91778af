import type { HttpSurface } from './surface.ts';

/** Finds the surface whose prefix of a path is the longest; a prefix ends where a segment does. */
export function createSurfaceMap(surfaces: readonly HttpSurface[]): (path: string) => HttpSurface | undefined {
  const prefixes = surfaces
    .flatMap((surface) => surface.prefixes.map((prefix) => ({ prefix, surface })))
    .sort((left, right) => right.prefix.length - left.prefix.length);
  return (path) => prefixes.find(({ prefix }) => isBelow(path, prefix))?.surface;
}

function isBelow(path: string, prefix: string): boolean {
  if (!path.startsWith(prefix)) return false;
  return path.length === prefix.length || prefix.endsWith('/') || path[prefix.length] === '/';
}
