/** Whether a text matches a pattern in which `*` stands for any run of characters. Takes linear time but for the stars. */
export function matchesPattern(pattern: string, text: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return text === pattern;
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  const end = text.length - last.length;
  let from = first.length;
  for (const part of rest) {
    const at = text.indexOf(part, from);
    if (at === -1 || at + part.length > end) return false;
    from = at + part.length;
  }
  return true;
}

/** No patterns: every model. */
export function matchesAny(patterns: readonly string[], model: string): boolean {
  return patterns.length === 0 || patterns.some((pattern) => matchesPattern(pattern, model));
}
