/** One line for a person at a terminal: time of day, level, message, then the fields; an error's frames below it. */
export function prettyLine(
  time: string,
  level: string,
  message: string,
  fields: Readonly<Record<string, unknown>>,
): string {
  const parts = [time.slice(11, 23), level.toUpperCase().padEnd(5), escapeControls(message)];
  const frames: string[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    if (isErrorCopy(value)) {
      const { stack, ...rest } = value;
      frames.push(...stack.split('\n').map((frame) => `    ${escapeControls(frame.trim())}`));
      parts.push(`${escapeControls(name)}=${formatValue(rest)}`);
    } else {
      parts.push(`${escapeControls(name)}=${formatValue(value)}`);
    }
  }
  return `${[parts.join(' '), ...frames].join('\n')}\n`;
}

function formatValue(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value) ? value : JSON.stringify(value);
}

function isErrorCopy(value: unknown): value is { readonly stack: string } {
  return typeof value === 'object' && value !== null && 'stack' in value && typeof value.stack === 'string';
}

function escapeControls(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}
