import { Secret, TOTP } from 'otpauth';
import type { FakeClock } from '../fake-clock.ts';
import { until } from '../until.ts';

export interface CallOptions {
  readonly body?: unknown;
  /** Sent as it stands, instead of `body`. */
  readonly text?: string;
  readonly token?: string;
  readonly cookie?: string;
  /** The client's address, as a trusted proxy gives it. */
  readonly from?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look at answers of every shape.
  readonly body: any;
}

export interface Person {
  readonly name: string;
  readonly email: string;
  readonly password: string;
  readonly id: string;
}

export interface LoggedIn extends Person {
  readonly token: string;
  readonly refreshToken: string;
  readonly answer: Answer;
}

export interface AccountsClient {
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  post(path: string, body?: unknown, options?: CallOptions): Promise<Answer>;
  get(path: string, options?: CallOptions): Promise<Answer>;
  /** The latest code that was mailed to an address. */
  mailedCode(email: string): Promise<string>;
  /** The latest token that was mailed to an address. */
  mailedToken(email: string): Promise<string>;
  /** Registers someone, by a mailed code. */
  register(name?: string): Promise<Person>;
  login(person: Person, more?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<Answer>;
  /** Registers someone and logs them in. */
  loggedIn(name?: string): Promise<LoggedIn>;
  /** Waits for what happens after an answer, such as a mail. */
  eventually(happened: () => Promise<boolean>): Promise<void>;
  /** Turns the second factor on; answers with what is needed to go on. */
  enrol(person: LoggedIn): Promise<Enrolled>;
}

export interface Enrolled {
  readonly secret: string;
  readonly recoveryCodes: readonly string[];
  readonly token: string;
  /** The code of the time step `steps` away from now. */
  code(steps?: number): string;
}

export const GOOD_PASSWORD = 'copper kettle 47 over the pass';

/** How long a newer mail than the last one is waited for. */
const OLD_MAIL_MS = 500;

export function createAccountsClient(parts: {
  readonly url: string;
  readonly clock: FakeClock;
  mails(to?: string): Promise<string[]>;
}): AccountsClient {
  const { url, clock, mails } = parts;
  let people = 0;

  const call: AccountsClient['call'] = async (method, path, options = {}) => {
    const { body, text, token, cookie, from, headers = {} } = options;
    const sent = text ?? (body === undefined ? undefined : JSON.stringify(body));
    const response = await fetch(`${url}${path.startsWith('/') ? path : `/api/auth/${path}`}`, {
      method,
      redirect: 'manual',
      headers: {
        ...(sent === undefined ? {} : { 'content-type': 'application/json' }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(cookie === undefined ? {} : { cookie }),
        ...(from === undefined ? {} : { 'x-forwarded-for': from }),
        ...headers,
      },
      ...(sent === undefined ? {} : { body: sent }),
    });
    const answer = await response.text();
    const isJson = (response.headers.get('content-type') ?? '').startsWith('application/json');
    return {
      status: response.status,
      headers: response.headers,
      text: answer,
      body: isJson ? JSON.parse(answer) : undefined,
    };
  };
  const post: AccountsClient['post'] = (path, body = {}, options = {}) => call('POST', path, { body, ...options });

  /** By address and pattern, what was given last: some mails are sent after the answer, and an old one is not meant. */
  const given = new Map<string, string>();
  const mailed = async (email: string, pattern: RegExp): Promise<string> => {
    const name = `${email} ${pattern}`;
    const started = performance.now();
    const value = await until(`a mail to ${email} with ${pattern}`, async () => {
      const [, last] = pattern.exec(unfolded((await mails(email)).at(-1))) ?? [];
      const isOld = last === given.get(name) && performance.now() - started < OLD_MAIL_MS;
      return isOld ? undefined : last;
    });
    given.set(name, value);
    return value;
  };
  const mailedCode = (email: string) => mailed(email, /code is (\d{6})/);
  const mailedToken = (email: string) => mailed(email, /token: ([\w-]{43})/);

  const register = async (given?: string): Promise<Person> => {
    people += 1;
    const name = given ?? `person ${people}`;
    const email = `${name.replaceAll(/[^a-z0-9]/gi, '.').toLowerCase()}@example.org`;
    await ok(post('register/send', { email }, { from: `10.1.${people % 250}.${(people / 250) | 0}` }));
    const code = await mailedCode(email);
    const answer = await ok(post('register', { name, email, password: GOOD_PASSWORD, code }));
    return { name, email, password: GOOD_PASSWORD, id: answer.body.user.id };
  };
  const login: AccountsClient['login'] = (person, more = {}, options = {}) =>
    post('login', { identifier: person.email, password: person.password, ...more }, options);
  const loggedIn = async (name?: string): Promise<LoggedIn> => {
    const person = await register(name);
    const answer = await ok(login(person));
    return { ...person, token: answer.body.token, refreshToken: answer.body.refresh_token, answer };
  };

  return {
    call,
    post,
    get: (path, options) => call('GET', path, options),
    mailedCode,
    mailedToken,
    register,
    login,
    loggedIn,
    async eventually(happened) {
      await until('what follows an answer', happened);
    },
    async enrol({ token }) {
      const { secret } = (await ok(post('mfa/totp/provision', {}, { token }))).body;
      const totp = new TOTP({ secret: Secret.fromBase32(secret) });
      const code = (steps = 0) => totp.generate({ timestamp: clock.now() + steps * 30_000 });
      const { body } = await ok(post('mfa/totp/verify', { code: code() }, { token }));
      return { secret, recoveryCodes: body.recoveryCodes, token: body.token, code };
    },
  };
}

async function ok(answer: Promise<Answer>): Promise<Answer> {
  const given = await answer;
  if (given.status >= 300) throw new Error(`${given.status}: ${given.text}`);
  return given;
}

/** Long lines of a mail are folded with "=" (quoted printable). */
function unfolded(mail = ''): string {
  return mail.replaceAll(/=\r?\n/g, '');
}
