import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { readAtMost } from '../platform/http/bounded-fetch.ts';
import { isLoopbackHost } from '../platform/network-address/classify-address.ts';
import { withoutSlash } from '../platform/network-address/ip-address.ts';
import { type CommandContext, EXIT_USAGE, fail, type Options } from './command-context.ts';
import { printable } from './turn-display.ts';

/** What `trestle login` stores: where, and the token of the person. */
export interface ServerLogin {
  /** Without a slash at the end. */
  readonly url: string;
  readonly token: string;
  readonly tokenId: string;
}

type Place = Pick<CommandContext, 'environment' | 'homeDirectory'>;

/** The value of `--server` that stands for the server of this machine. */
const LOCAL = 'local';
const ANSWER_MS = 30_000;
const MAX_ANSWER = 4 * 1024 * 1024;

/** The file in the configuration folder (XDG) that the login is stored in. */
export function loginFile({ environment, homeDirectory }: Place): string {
  const { XDG_CONFIG_HOME: given = '' } = environment;
  return join(isAbsolute(given) ? given : join(homeDirectory, '.config'), 'trestle', 'login.json');
}

export async function readLogin(context: CommandContext): Promise<ServerLogin | undefined> {
  const file = loginFile(context);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    return fail(context, `${file} cannot be read (${(error as NodeJS.ErrnoException).code}); log in again`);
  }
  const found = asObject(text);
  const [url, token, tokenId] = ['url', 'token', 'tokenId'].map((name) => found?.[name]);
  if (typeof url === 'string' && typeof token === 'string' && typeof tokenId === 'string') {
    return { url, token, tokenId };
  }
  return fail(context, `${file} is damaged; remove it and log in again`);
}

/** Writes the file so that only its owner can read it, and a crash never leaves a part of it. */
export async function storeLogin(login: ServerLogin, context: CommandContext): Promise<string> {
  const file = loginFile(context);
  await mkdir(join(file, '..'), { recursive: true, mode: 0o700 });
  const draft = `${file}.${process.pid}`;
  await writeFile(draft, `${JSON.stringify(login)}\n`, { mode: 0o600 });
  await rename(draft, file);
  return file;
}

export async function forgetLogin(context: CommandContext): Promise<void> {
  await rm(loginFile(context), { force: true });
}

/**
 * The login that a command uses: of the server that `--server` or TRESTLE_URL names, else the stored one. Undefined: the
 * command works with the server of this machine, because nobody has logged in, or the command line names a data directory.
 */
export async function findLogin(options: Options, context: CommandContext): Promise<ServerLogin | undefined> {
  const named = namedServer(options, context);
  if (named === LOCAL) return undefined;
  const login = await readLogin(context);
  if (named === undefined || login?.url === named) return login;
  return fail(context, `you are not logged in at ${hostOf(named)}; log in with: trestle login ${named}`);
}

/** As `findLogin`, for commands that are about a login. */
export async function requireLogin(options: Options, context: CommandContext): Promise<ServerLogin> {
  const login = await findLogin(options, context);
  return login ?? fail(context, 'you are not logged in; log in with: trestle login <address of the server>');
}

/** Where to log in: the given address, `--server`, TRESTLE_URL, or the server of the last login. */
export async function serverToLogIn(
  given: string | undefined,
  options: Options,
  context: CommandContext,
): Promise<string> {
  if (given !== undefined) return readUrl(given, context);
  const named = namedServer(options, context);
  const url = named === LOCAL ? undefined : (named ?? (await readLogin(context))?.url);
  return url ?? fail(context, 'name the server: trestle login https://trestle.example.com', EXIT_USAGE);
}

function namedServer(options: Options, context: CommandContext): string | undefined {
  if (options.dataDir !== undefined || options.config !== undefined) return LOCAL;
  const given = options.server ?? context.environment.TRESTLE_URL;
  if (typeof given !== 'string' || given === '') return undefined;
  return given === LOCAL ? LOCAL : readUrl(given, context);
}

function readUrl(text: string, context: CommandContext): string {
  const url = URL.parse(
    text.includes('://') ? text : `${isThisMachine(`http://${text}`) ? 'http' : 'https'}://${text}`,
  );
  const isUsable = url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.search === '';
  if (!isUsable) {
    return fail(
      context,
      `"${printable(text)}" is not the address of a server, such as https://trestle.example.com`,
      EXIT_USAGE,
    );
  }
  return withoutSlash(url.origin + url.pathname);
}

export function hostOf(url: string): string {
  return URL.parse(url)?.host ?? url;
}

/** Whether the server sees the files of this machine. */
export function isThisMachine(url: string): boolean {
  return isLoopbackHost(hostOf(url));
}

export interface ServerAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

/** The server does not answer, or something else answers at its address. */
export class ServerUnreachable extends Error {}

/** Calls accounts of a server. Redirects are refused: the token is for this server alone. */
export async function callServer(
  { url, token }: Pick<ServerLogin, 'url'> & { readonly token?: string },
  method: string,
  path: string,
  body?: object,
  signal: AbortSignal = AbortSignal.timeout(ANSWER_MS),
): Promise<ServerAnswer> {
  let status: number;
  let bytes: Buffer | undefined;
  try {
    const response = await fetch(`${url}/api/auth/${path}`, {
      method,
      redirect: 'error',
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
    });
    status = response.status;
    bytes = await readAtMost(response.body, MAX_ANSWER);
  } catch (error) {
    signal.throwIfAborted();
    throw new ServerUnreachable(`the server at ${hostOf(url)} does not answer`, { cause: error });
  }
  const found = bytes && (bytes.length === 0 ? {} : asObject(String(bytes)));
  const isOurs = found !== undefined && (status < 400 || typeof found.error === 'string');
  if (!isOurs)
    throw new ServerUnreachable(`what answers at ${url} is not a Trestle server with accounts; check the address`);
  return { status, body: found };
}

/** Calls a server with a login; prints a refusal, and ends the command with 1. */
export async function askServer(
  login: ServerLogin,
  context: CommandContext,
  method: string,
  path: string,
): Promise<ServerAnswer['body']> {
  try {
    const { status, body } = await callServer(login, method, path);
    if (status === 401) return refuseEnded(login.url, context);
    if (status >= 400) return fail(context, printable(String(body.message)));
    return body;
  } catch (error) {
    if (error instanceof ServerUnreachable) return fail(context, error.message);
    throw error;
  }
}

/** The token of a login was revoked or has expired, or its person was paused. */
export function refuseEnded(url: string, context: CommandContext): never {
  return fail(context, `the login at ${hostOf(url)} has ended or was revoked; log in again with: trestle login ${url}`);
}

function asObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
