const SECRET_PARAMETER = /pass|secret|token|key/i;

/** Whether a parameter in the query of a URL is likely to be a secret, by its name. */
export function isSecretParameter(name: string): boolean {
  return SECRET_PARAMETER.test(name);
}

/** The secrets inside a URL, as they stand there and as they are meant. */
export function secretsOfUrl(text: string): readonly string[] {
  const url = URL.parse(text);
  if (url === null) return [text];
  const parameters = [...url.searchParams].flatMap(([name, value]) => (isSecretParameter(name) ? [value] : []));
  return [url.password, decoded(url.password), ...parameters].filter((secret) => secret !== '');
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
