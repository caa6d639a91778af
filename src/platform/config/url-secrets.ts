import { isSecretParameter } from '../log/secret-names.ts';

/** Returns the secrets inside a URL, as written there and decoded. */
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
