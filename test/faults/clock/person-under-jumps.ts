import { setTimeout as sleep } from 'node:timers/promises';
import { Secret, TOTP } from 'otpauth';
import { ask } from '../accounts/account-client.ts';
import type { Operation } from './check-operations.ts';

export interface PersonOptions {
  readonly url: string;
  /** Nobody else has it. */
  readonly name: string;
  note(operation: Operation): void;
  /** By how much the program's clock is off now. */
  shift(): number;
}

/** Someone who logged in with a second factor before the clock jumped, and whose tokens and codes are tried again after it. */
export interface Person {
  /** Shows the session, and tries the code that was used before. */
  afterJump(): Promise<void>;
  /** Sends the used refresh token once more, when that must not give anything any longer. */
  afterReplayTime(): Promise<void>;
}

const PASSWORD = 'copper kettle 47 over the pass';
const STEP_MS = 30_000;
const REPLAY_MS = 11_000;
/** Five wrong codes lock; the lock is not what is tried here. */
const MAX_CODES = 3;

export async function followPerson({ url, name, note, shift }: PersonOptions): Promise<Person> {
  const email = `${name}@example.org`;
  let calls = 0;
  const send = (method: string, path: string, body?: object, token?: string) => {
    calls += 1;
    const from = `10.1.${calls}.${name.length}`;
    return ask(url, method, path, { from, ...(body !== undefined && { body }), ...(token !== undefined && { token }) });
  };
  const must = async (...[method, path, body, token]: Parameters<typeof send>) => {
    const answer = await send(method, path, body, token);
    if (answer.outcome !== 'ok') throw new Error(`${path} did not work for ${email}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  };

  await must('POST', 'register', { name, email, password: PASSWORD });
  const session = await must('POST', 'login', { identifier: email, password: PASSWORD });
  const { secret } = await must('POST', 'mfa/totp/provision', {}, String(session.token));
  const totp = new TOTP({ secret: Secret.fromBase32(String(secret)) });
  const codeOf = (step: number) => totp.generate({ timestamp: step * STEP_MS });
  const firstStep = Math.floor((Date.now() + shift()) / STEP_MS) - 1;
  await must('POST', 'mfa/totp/verify', { code: codeOf(firstStep) }, String(session.token));
  note({ kind: 'code', email, step: firstStep, outcome: 'ok' });

  let codes = 0;
  const logIn = async (step: number) => {
    const body = { identifier: email, password: PASSWORD, totpCode: codeOf(step) };
    const { outcome, body: answer } = await send('POST', 'login', body);
    note({ kind: 'code', email, step, outcome });
    return answer;
  };
  const usedStep = firstStep + 1;
  const { refresh_token: used } = await logIn(usedStep);
  const usedAt = performance.now();
  const { access_token: token } = await must('POST', 'token/refresh', { refresh_token: used });

  return {
    async afterJump() {
      const { outcome } = await send('GET', 'session', undefined, String(token));
      if (performance.now() - usedAt < REPLAY_MS) note({ kind: 'check', shiftMs: shift(), outcome });
      codes += 1;
      if (codes <= MAX_CODES) await logIn(usedStep);
    },
    async afterReplayTime() {
      await sleep(Math.max(0, usedAt + REPLAY_MS - performance.now()));
      const { outcome } = await send('POST', 'token/refresh', { refresh_token: used });
      note({ kind: 'refresh', sinceUseMs: performance.now() - usedAt, outcome });
    },
  };
}
