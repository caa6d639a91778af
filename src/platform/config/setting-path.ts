const PLAIN_KEY = /^[A-Za-z_][\w-]*$/;

/** `log` + `level` = `log.level`; list items as `list[0]`, keys that are no plain words as `map["a/b"]`. */
export function joinPath(base: string, key: string | number): string {
  if (typeof key === 'number') return `${base}[${key}]`;
  if (!PLAIN_KEY.test(key)) return `${base}[${JSON.stringify(key)}]`;
  return base === '' ? key : `${base}.${key}`;
}

/** Whether `path` is `ancestor` itself or lies below it. */
export function isWithin(path: string, ancestor: string): boolean {
  if (!path.startsWith(ancestor)) return false;
  const next = path.charAt(ancestor.length);
  return ancestor === '' || next === '' || next === '.' || next === '[';
}

/** `a.b[0].c`, then `a.b[0]`, `a.b`, `a`. */
export function selfAndAncestors(path: string): readonly string[] {
  const paths = [path];
  for (let end = path.length - 1; end > 0; end -= 1) {
    if (path[end] === '.' || path[end] === '[') paths.push(path.slice(0, end));
  }
  return paths;
}
