import { access, constants, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';
import { hasCredentials, isProxyVariable } from '../network-address/outgoing-proxy.ts';
import type { Environment } from '../runtime/runtime.ts';

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

/** Gives its holder the keys of the user who runs this program. */
const SSH_AGENT = 'SSH_AUTH_SOCK';

/**
 * The environment of a child: the allowed part of ours, and what it is given by name. Our own settings never go along.
 * `isOperators`: the child works for the operator (`main`), and also gets the ssh agent and proxies with a password.
 */
export function childEnvironment(
  parentEnvironment: Environment,
  extra: Readonly<Record<string, string>> = {},
  { isOperators = false }: { readonly isOperators?: boolean } = {},
): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(parentEnvironment)) {
    if (value !== undefined && isPassedOn(name, value, isOperators)) environment[name] = value;
  }
  return Object.assign(environment, extra);
}

function isPassedOn(name: string, value: string, isOperators: boolean): boolean {
  if (ALLOWED.has(name) || ALLOWED_PREFIXES.test(name)) return true;
  if (name === SSH_AGENT) return isOperators;
  return isProxyVariable(name) && (isOperators || !hasCredentials(value));
}

/** The absolute path of a program, searched as a shell would; relative entries of the path are not searched. */
export async function findExecutable(name: string, pathText: string): Promise<string | undefined> {
  if (name === '' || name.includes('\0')) return undefined;
  if (name.includes('/')) return isAbsolute(name) && (await isExecutable(name)) ? name : undefined;
  for (const folder of pathText.split(delimiter)) {
    const candidate = join(folder, name);
    if (isAbsolute(folder) && (await isExecutable(candidate))) return candidate;
  }
  return undefined;
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}
