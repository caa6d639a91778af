import { type Agent, request } from 'node:http';
import { endedJob, submit } from '../../kit/bridge/job-client.ts';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { createScope } from '../../kit/create-scope.ts';
import type { CallEnd, CallName } from './check-operations.ts';

/** Whom the calls reach, and as whom. */
export interface SteadyCaller {
  readonly url: string;
  readonly agent: Agent;
  readonly email: string;
  readonly password: string;
  /** A name that no other session has. */
  newSession(): string;
}

type Ended = Omit<CallEnd, 'name'>;

const CALL_LIMIT_MS = 30_000;
/** No status of HTTP. */
const NO_ANSWER = -1;
const PROMPT = 'one two three';
/** The built-in agent takes a while, so that its client can leave in the middle. */
const SLOW = { model: 'demo/echo?delay=50' };

/** Makes one call of the kind. Status 0: it was left, or there was no answer. */
export async function callOnce(name: CallName, caller: SteadyCaller): Promise<CallEnd> {
  try {
    return { name, ...(await (CALLERS[name] ?? complete(name))(caller)) };
  } catch (error) {
    return { name, status: NO_ANSWER, isWhole: false, problem: String(error).slice(0, 200) };
  }
}

const CALLERS: Partial<Record<CallName, (caller: SteadyCaller) => Promise<Ended>>> = {
  /** Two turns of one conversation over HTTP. */
  async turn({ url, newSession }) {
    const sessionId = newSession();
    const first = await call(url, 'session.start', { sessionId, taskPrompt: PROMPT });
    const second = await call(url, 'session.message', { sessionId, taskPrompt: PROMPT });
    const closed = await call(url, 'session.close', { sessionId });
    return wholeIf(hasAnswered(first.result) && hasAnswered(second.result) && closed.result?.accepted === true);
  },

  async streamedTurn({ url, newSession }) {
    const sessionId = newSession();
    const { updates, final } = await stream(url, {
      method: 'session.start',
      params: { sessionId, taskPrompt: PROMPT },
    });
    await call(url, 'session.close', { sessionId });
    return wholeIf(hasAnswered(final?.result) && updates.every(({ seq }, index) => seq === index + 1));
  },

  /** A turn whose client goes in the middle, and a close while it still runs. */
  async leftTurn({ url, newSession }) {
    const sessionId = newSession();
    const params = { sessionId, taskPrompt: PROMPT, ...SLOW };
    const { final } = await stream(url, { method: 'session.start', params }, {}, ({ type }) => type === 'delta');
    const closed = await call(url, 'session.close', { sessionId });
    return { status: closed.result?.accepted === true && final?.result === undefined ? 0 : 500, isWhole: false };
  },

  async socketTurn({ url, newSession }) {
    const sessionId = newSession();
    const scope = createScope();
    try {
      const client = await openClient(scope, url);
      const { result } = await client.call('session.start', { sessionId, taskPrompt: PROMPT });
      const closed = await client.call('session.close', { sessionId });
      return wholeIf(hasAnswered(result) && closed.result?.accepted === true && client.updates.length > 0);
    } finally {
      await scope.end();
    }
  },

  async job({ url }) {
    const { status } = await endedJob(url, await submit(url, { taskPrompt: PROMPT }));
    return wholeIf(status === 'completed');
  },

  /** A login, a look at the session, and a logout after which the token is worth nothing. */
  async login({ url, email, password }) {
    const statuses: number[] = [];
    const answer = await fetch(`${url}/api/auth/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email, password }),
    });
    const { token } = (await answer.json()) as { readonly token?: string };
    statuses.push(answer.status);
    for (const method of ['GET', 'DELETE', 'GET']) {
      const headers = { authorization: `Bearer ${token}` };
      const response = await fetch(`${url}/api/auth/session`, { method, headers });
      await response.text();
      statuses.push(response.status);
    }
    const wrong = statuses.find((status, index) => status !== [200, 200, 204, 401][index]);
    return { status: wrong ?? 200, isWhole: true };
  },

  /** What the console reads. */
  async lists({ url }) {
    for (const path of ['/api/bridge/sessions', '/usage/calls?limit=20', '/v1/models', '/api/system', '/metrics']) {
      const response = await fetch(`${url}${path}`);
      const text = await response.text();
      if (!response.ok) return { status: response.status, isWhole: text !== '' };
    }
    return wholeIf(true);
  },
};

function wholeIf(isWhole: boolean): Ended {
  return { status: 200, isWhole };
}

function hasAnswered(result: Readonly<Record<string, unknown>> | undefined): boolean {
  return result?.status === 'completed' && result.output === PROMPT;
}

/** A chat completion. */
function complete(name: CallName): (caller: SteadyCaller) => Promise<Ended> {
  const body = JSON.stringify({
    model: name === 'unknown' ? 'nobody/knows' : 'fake/m',
    stream: name === 'stream' || name === 'hang',
    messages: [{ role: 'user', content: name }],
  });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return ({ url, agent }) =>
    new Promise((resolve) => {
      const asked = request(`${url}/v1/chat/completions`, { agent, method: 'POST', headers }, (answer) => {
        let last = '';
        answer.setEncoding('latin1').on('data', (piece: string) => {
          last = (last + piece).slice(-20);
          if (name === 'hang') asked.destroy();
        });
        const isWhole = () => (name === 'stream' ? last.endsWith('data: [DONE]\n\n') : last.endsWith('}'));
        answer.once('end', () => resolve({ status: answer.statusCode ?? 0, isWhole: isWhole() }));
        answer.once('error', () => undefined);
      });
      asked.setTimeout(CALL_LIMIT_MS, () => asked.destroy());
      asked.once('error', () => undefined);
      asked.once('close', () => resolve({ status: 0, isWhole: false }));
      asked.end(body);
    });
}
