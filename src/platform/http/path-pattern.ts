/**
 * Compiles the part of Fastify's path syntax that route tables use: fixed segments, `:name` for one segment and a final
 * `*` for the rest. Paths are compared as sent: nothing is decoded, no slash is merged, no dot segment resolved.
 */
export function compilePath(pattern: string): (path: string) => boolean {
  if (!pattern.startsWith('/') || /[()?]|::|\*.|[^/]:|[^/]\*/.test(pattern)) {
    throw new Error(`The path "${pattern}" uses more than fixed segments, :name and a final *`);
  }
  const parts = pattern.split('/');
  const open = parts.at(-1) === '*';
  const fixed = open ? parts.slice(0, -1) : parts;
  if (!open && !pattern.includes(':')) return (path) => path === pattern;
  return (path) => {
    const segments = path.split('/');
    if (open ? segments.length <= fixed.length : segments.length !== fixed.length) return false;
    return fixed.every((part, index) => (part.startsWith(':') ? segments[index] !== '' : segments[index] === part));
  };
}
