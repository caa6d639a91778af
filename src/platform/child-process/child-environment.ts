export type Environment = Readonly<Record<string, string | undefined>>;

/** What a program needs to find its files, its language and its user. Nothing here may hold a credential. */
const ALLOWED: ReadonlySet<string> = new Set([
  'HOME',
  'LANG',
  'LANGUAGE',
  'LOGNAME',
  'NODE_EXTRA_CA_CERTS',
  'PATH',
  'SHELL',
  'SSL_CERT_DIR',
  'SSL_CERT_FILE',
  'TEMP',
  'TERM',
  'TMP',
  'TMPDIR',
  'TZ',
  'USER',
]);

const ALLOWED_PREFIXES = /^(?:LC|XDG)_/;

/** The environment of a child: the allowed part of ours, and what it is given by name. Our own settings never go along. */
export function childEnvironment(
  parentEnvironment: Environment,
  extra: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(parentEnvironment)) {
    if (value !== undefined && (ALLOWED.has(name) || ALLOWED_PREFIXES.test(name))) environment[name] = value;
  }
  return Object.assign(environment, extra);
}
