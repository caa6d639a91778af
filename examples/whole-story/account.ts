import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { say } from './narration.ts';

const CALL_LIMIT_MS = 30_000;

export interface Account {
  readonly email: string;
  readonly password: string;
}

export interface IssuedKey {
  readonly id: string;
  /** Shown this once. */
  readonly key: string;
}

export interface Usage {
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
}

export interface UsageReport {
  readonly data: readonly (Usage & { readonly group: string })[];
  readonly total: Usage;
}

/** Registers with the code that was mailed: without a mail server, mail is a file of the data directory. */
export async function register(url: string, dataDirectory: string, { email, password }: Account): Promise<void> {
  await call(`${url}/api/auth/register/send`, { body: { email } });
  const code = await mailedCode(join(dataDirectory, 'outbox'));
  await call(`${url}/api/auth/register`, { body: { name: 'Ann', email, password, code } });
}

/** Returns the token of the new session. */
export async function logIn(url: string, { email, password }: Account): Promise<string> {
  const { token } = await call(`${url}/api/auth/login`, { body: { identifier: email, password } });
  return String(token);
}

export interface Person extends Account {
  readonly name: string;
  readonly id: string;
  readonly plan: string;
  /** A personal access token. */
  readonly token: string;
  /** The token of the login session. */
  readonly login: string;
}

/** Creates the first administrator with the link that the first start printed. Returns the token of the login. */
export async function setUp(url: string, setupLink: string, { email, password }: Account): Promise<string> {
  const token = new URL(setupLink).hash.slice(1);
  await call(`${url}/api/auth/setup`, { body: { token, name: 'Root', email, password } });
  return logIn(url, { email, password });
}

/** Invites a person as the administrator, accepts the invitation, logs in, and creates a token for programs. */
export async function invite(
  url: string,
  admin: string,
  { name, plan, password }: Pick<Person, 'name' | 'plan' | 'password'>,
): Promise<Person> {
  const auth = `${url}/api/auth`;
  const email = `${name.toLowerCase()}@example.org`;
  const invitation = await call(`${auth}/admin/invitations`, { credential: admin, body: { email, plan, mail: false } });
  const accepted = await call(`${auth}/invitations/accept`, { body: { token: invitation.token, name, password } });
  const login = await logIn(url, { email, password });
  const body = { name: 'laptop', scopes: ['bridge', 'completions'] };
  const { token } = (await call(`${auth}/tokens`, { credential: login, body })) as { token: string };
  say(
    `${name} has accepted the invitation to the plan "${plan}", logged in, and has the token ${token.slice(0, 8)}...`,
  );
  return { name, email, password, plan, token, login, id: accepted.user.id };
}

/** Creates a key of the completions API for the user who is logged in. */
export async function issueKey(url: string, token: string): Promise<IssuedKey> {
  return call(`${url}/api/auth/keys`, { credential: token, body: { name: 'the whole story' } });
}

/** Returns what was used with a key, by model. */
export async function usageOf(url: string, key: string): Promise<UsageReport> {
  return call(`${url}/usage?group_by=model`, { credential: key });
}

/** Returns the status of a chat completion with this credential, or without one. */
export async function statusOfChat(url: string, credential: string): Promise<number> {
  const body = { model: 'demo/echo', messages: [{ role: 'user', content: 'Is anybody there?' }] };
  const response = await send(`${url}/v1/chat/completions`, { credential, body });
  await response.arrayBuffer();
  return response.status;
}

async function mailedCode(outbox: string): Promise<string> {
  const newest = (await readdir(outbox)).filter((name) => name.endsWith('.eml')).sort();
  const mail = await readFile(join(outbox, newest.at(-1) ?? ''), 'utf8');
  const code = /code is (\d{6})/.exec(mail)?.[1];
  if (code === undefined) throw new Error(`There is no code in this mail:\n${mail}`);
  return code;
}

interface CallInput {
  readonly credential?: string;
  /** With one it is a POST. */
  readonly body?: object;
}

function send(url: string, { credential = '', body }: CallInput): Promise<Response> {
  return fetch(url, {
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
    headers: {
      'content-type': 'application/json',
      ...(credential !== '' && { authorization: `Bearer ${credential}` }),
    },
    signal: AbortSignal.timeout(CALL_LIMIT_MS),
  });
}

// biome-ignore lint/suspicious/noExplicitAny: each caller says what its endpoint answers
export async function call(url: string, input: CallInput): Promise<any> {
  const response = await send(url, input);
  const text = await response.text();
  if (!response.ok) throw new Error(`${new URL(url).pathname} answered ${response.status}: ${text}`);
  return text === '' ? {} : JSON.parse(text);
}
