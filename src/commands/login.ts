import { hostname } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import type { Command } from 'commander';
import { type CommandContext, CommandExit, EXIT_INTERRUPTED, EXIT_USAGE, fail, print } from './command-context.ts';
import {
  askServer,
  callServer,
  forgetLogin,
  hostOf,
  isThisMachine,
  readLogin,
  requireLogin,
  type ServerAnswer,
  ServerUnreachable,
  serverToLogIn,
  storeLogin,
} from './server-login.ts';
import { when } from './sessions.ts';
import { oneLine, printable } from './turn-display.ts';

const SCOPES = ['bridge', 'completions', 'account'];
/** After this many polls in a row without a response, the server counts as unreachable. */
const MAX_SILENCES = 3;
const MAX_INTERVAL_S = 300;

/** `trestle login`, `logout`, `whoami` and `token`. */
export function registerLogin(program: Command, context: CommandContext): void {
  program
    .command('login')
    .summary('log in to a server, for run, chat, sessions, jobs and others')
    .description(
      'Logs in to a server: shows a code to type in a browser, and stores the resulting token in the configuration folder, readable only by you. From then on, run, chat, sessions, jobs, schedules, agents, usage, whoami and token use that server; --server local, --data-dir and --config make them use this machine. Without an address, uses TRESTLE_URL or the server of the last login.',
    )
    .argument('[url]', 'address of the server: https://trestle.example.com')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle login https://trestle.example.com\n  trestle login http://127.0.0.1:8787',
    )
    .action(async (given: string | undefined, _own: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const url = await serverToLogIn(given, options, context);
      const name = oneLine(`trestle on ${hostname()}`, 200);
      const { token, tokenId } = await requestToken(
        url,
        { client_id: 'trestle', name, scope: SCOPES.join(' ') },
        context,
      );
      const former = await readLogin(context).catch(() => undefined);
      const file = await storeLogin({ url, token, tokenId }, context);
      if (former !== undefined) await revokeQuietly(former);
      const person = personOf(await askServer({ url, token, tokenId }, context, 'GET', 'session'));
      if (options.json === true) context.stdout(`${JSON.stringify({ server: url, ...person })}\n`);
      else context.stderr(`Logged in at ${hostOf(url)} as ${describePerson(person)}. The token is in ${file}.\n`);
    });
  program
    .command('logout')
    .summary('log out on this machine')
    .description('Revokes the token of trestle login on its server and removes it from this machine.')
    .action(async () => {
      const login = await readLogin(context);
      if (login === undefined) return fail(context, 'you are not logged in');
      await forgetLogin(context);
      const isRevoked = await revokeQuietly(login);
      context.stderr(`Logged out from ${hostOf(login.url)}.\n`);
      if (!isRevoked) {
        context.stderr(`The server does not answer: revoke the token ${login.tokenId} there, or let it expire.\n`);
      }
    });
  program
    .command('whoami')
    .summary('show who is logged in, and where')
    .description('Shows the user and the server of trestle login, as the server knows them now.')
    .action(async (_own: unknown, command: Command) => {
      const login = await requireLogin(command.optsWithGlobals(), context);
      const person = personOf(await askServer(login, context, 'GET', 'session'));
      print(command, context, { server: login.url, ...person }, `${describePerson(person)} at ${hostOf(login.url)}\n`);
    });
  registerToken(program, context);
}

function registerToken(program: Command, context: CommandContext): void {
  const token = program
    .command('token')
    .summary('list, create, revoke and print personal access tokens')
    .description('Manages your personal access tokens on the server of trestle login.');
  const onServer = async (command: Command) => {
    const login = await requireLogin(command.optsWithGlobals(), context);
    context.stderr(`on ${hostOf(login.url)}\n`);
    return login;
  };
  token
    .command('list')
    .description('Lists your tokens, the newest first. The tokens themselves are not stored.')
    .action(async (_own: unknown, command: Command) => {
      const login = await onServer(command);
      const body = await askServer(login, context, 'GET', 'tokens');
      print(command, context, body, [...tokenLines(body, login.tokenId)].join(''));
    });
  token
    .command('create')
    .summary('create a token and print it, once')
    .description(
      'Creates a token for a program or another machine and prints it. You approve it in a browser, like a login.',
    )
    .argument('<name>', 'what the token is for')
    .option(
      '--scopes <names>',
      'what it may be used for, separated by commas: bridge, completions, account',
      'completions',
    )
    .option('--days <number>', 'how many days it is valid (default: 90)')
    .addHelpText('after', '\nExamples:\n  trestle token create ci --scopes completions --days 30')
    .action(async (name: string, given: { readonly scopes: string; readonly days?: string }, command: Command) => {
      const login = await onServer(command);
      const days = given.days === undefined ? undefined : readDays(given.days, context);
      const scope = given.scopes.split(',').join(' ');
      const asked = {
        client_id: 'trestle token create',
        name,
        scope,
        ...(days !== undefined && { expires_in_days: days }),
      };
      context.stderr('A new token needs your approval in a browser, like a login.\n');
      const created = await requestToken(login.url, asked, context);
      print(command, context, { id: created.tokenId, token: created.token }, `${created.token}\n`);
    });
  token
    .command('revoke')
    .description('Revokes a token; it stops working immediately.')
    .argument('<id>', 'id of the token: tok_...')
    .action(async (id: string, _own: unknown, command: Command) => {
      const login = await onServer(command);
      await askServer(login, context, 'DELETE', `tokens/${encodeURIComponent(id)}`);
      print(command, context, { id, revoked: true }, `Revoked ${printable(id)}.\n`);
    });
  token
    .command('print')
    .summary('print the token of trestle login, for tools that get their key from a command')
    .description('Prints the stored token of trestle login, and nothing else, to standard output.')
    .action(async (_own: unknown, command: Command) => {
      const login = await requireLogin(command.optsWithGlobals(), context);
      context.stdout(`${login.token}\n`);
    });
}

/** Shows a code, and waits until the person has approved it in a browser (RFC 8628). */
async function requestToken(
  url: string,
  asked: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<{ readonly token: string; readonly tokenId: string }> {
  const stop = new AbortController();
  const interrupt = () => stop.abort();
  process.on('SIGINT', interrupt);
  try {
    if (url.startsWith('http:') && !isThisMachine(url)) {
      context.stderr('trestle: warning: the connection is not encrypted; others on the network can read the token\n');
    }
    const { status, body } = await callServer({ url }, 'POST', 'device/code', asked, stop.signal);
    if (status >= 400) return fail(context, printable(String(body.message)));
    const { device_code, user_code, verification_uri, interval } = body;
    if (typeof device_code !== 'string' || typeof user_code !== 'string' || typeof verification_uri !== 'string') {
      return fail(context, `what answers at ${url} is not a Trestle server with accounts; check the address`);
    }
    context.stderr(
      `Open ${printable(verification_uri)} in a browser and type this code:\n\n    ${printable(user_code)}\n\n`,
    );
    context.stderr('Waiting for your approval; Ctrl-C stops.\n');
    const every = typeof interval === 'number' && interval > 0 ? Math.min(interval, MAX_INTERVAL_S) : 5;
    const { access_token: token, id: tokenId } = await waitForApproval(url, device_code, every, context, stop.signal);
    if (typeof token === 'string' && typeof tokenId === 'string') return { token, tokenId };
    return fail(context, `what answers at ${url} is not a Trestle server with accounts; check the address`);
  } catch (error) {
    if (stop.signal.aborted) {
      context.stderr('\nStopped. Nothing was stored.\n');
      throw new CommandExit(EXIT_INTERRUPTED);
    }
    if (error instanceof ServerUnreachable) return fail(context, error.message);
    throw error;
  } finally {
    process.off('SIGINT', interrupt);
  }
}

async function waitForApproval(
  url: string,
  device_code: string,
  firstInterval: number,
  context: CommandContext,
  signal: AbortSignal,
): Promise<ServerAnswer['body']> {
  let interval = firstInterval;
  let silences = 0;
  for (;;) {
    await pause(interval * 1000, undefined, { signal });
    try {
      const { status, body } = await callServer({ url }, 'POST', 'device/token', { device_code }, signal);
      if (status < 400) return body;
      silences = 0;
      if (body.error === 'slow_down') interval += 5;
      else if (body.error === 'access_denied') return fail(context, 'the request was denied in the browser');
      else if (body.error === 'expired_token') return fail(context, 'the code has expired; start again');
      else if (body.error !== 'authorization_pending') return fail(context, printable(String(body.message)));
    } catch (error) {
      silences += 1;
      if (!(error instanceof ServerUnreachable) || silences >= MAX_SILENCES) throw error;
      if (silences === 1) context.stderr(`${error.message}; trying again\n`);
    }
  }
}

/** Whether the server has revoked the token, or knew nothing of it any more. */
async function revokeQuietly(login: {
  readonly url: string;
  readonly token: string;
  readonly tokenId: string;
}): Promise<boolean> {
  try {
    const { status } = await callServer(login, 'DELETE', `tokens/${encodeURIComponent(login.tokenId)}`);
    return status < 500;
  } catch (error) {
    if (error instanceof ServerUnreachable) return false;
    throw error;
  }
}

interface Person {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly role: string;
}

function personOf({ user }: ServerAnswer['body']): Person {
  const found: Readonly<Record<string, unknown>> = typeof user === 'object' && user !== null ? { ...user } : {};
  const text = (name: string) => printable(String(found[name] ?? ''));
  return { id: text('id'), name: text('name'), email: text('email'), role: text('role') };
}

function describePerson({ name, email, role }: Person): string {
  return `${name} <${email}> (${role})`;
}

function readDays(text: string, context: CommandContext): number {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  return fail(context, '--days takes a number of days, such as 30', EXIT_USAGE);
}

function* tokenLines({ tokens }: ServerAnswer['body'], ownId: string): Generator<string> {
  if (!Array.isArray(tokens) || tokens.length === 0) return yield 'There are no tokens.\n';
  for (const one of tokens as readonly Readonly<Record<string, unknown>>[]) {
    const [id, hint] = [one.id, one.hint].map((value) => printable(String(value)));
    const expires = printable(when(String(one.expiresAt), Date.now()));
    const scopes = Array.isArray(one.scopes) ? printable(one.scopes.join(', ')) : '';
    const own = id === ownId ? '  (this machine)' : '';
    yield `  ${id}  ${hint}...  expires ${expires}  ${scopes}  ${oneLine(String(one.name), 60)}${own}\n`;
  }
}
