import { Secret, TOTP } from 'otpauth';
import { tokenKey } from '../../../src/accounts/flows.ts';
import { type Answered, ask, type Sent } from './account-client.ts';
import type { Operation } from './check-operations.ts';

/** Someone at a client: registers, logs in, refreshes, logs out; remembers what is theirs over every restart of the server. */
export interface AccountWorker {
  /** Does things until it is over. */
  workUntil(url: string, isOver: () => boolean): Promise<void>;
  /** Looks at every session that it has or had. */
  checkAll(url: string): Promise<void>;
}

export interface AccountWorkerOptions {
  readonly name: string;
  random(): number;
  note(operation: Operation): void;
}

interface OwnSession {
  token: string;
  /** All refresh tokens, oldest first. */
  readonly refreshTokens: string[];
  /** Whether the last refresh was left without an answer. */
  inDoubt: boolean;
}

interface TotpOwner {
  readonly email: string;
  readonly totp: TOTP;
  /** The last step that was tried, and whether it is known what became of it. */
  lastStep: number;
  inDoubt: boolean;
  replays: number;
}

const PASSWORD = 'copper kettle 47 over the pass';
const STEP_MS = 30_000;
const MAX_REPLAYS = 2;

export function createAccountWorker({ name, random, note }: AccountWorkerOptions): AccountWorker {
  const people: string[] = [];
  const live: OwnSession[] = [];
  const ended: OwnSession[] = [];
  const owners: TotpOwner[] = [];
  let made = 0;

  const pick = <Item>(items: readonly Item[]): Item | undefined => items[Math.floor(random() * items.length)];
  const from = (): string => `10.${byte(random)}.${byte(random)}.${byte(random)}`;
  const send = (url: string, method: string, path: string, sent: Omit<Sent, 'from'>) =>
    ask(url, method, path, { ...sent, from: from() });

  async function register(url: string): Promise<string | undefined> {
    made += 1;
    const email = `${name}.${made}@example.org`;
    const body = { name: `${name} ${made}`, email, password: PASSWORD };
    const { body: answer, ...rest } = await send(url, 'POST', 'register', { body });
    const { id } = (answer.user ?? {}) as { id?: string };
    note({ ...rest, kind: 'register', email, ...(id !== undefined && { userId: id }) });
    return rest.outcome === 'ok' ? email : undefined;
  }

  function login(url: string, email: string, more: object = {}): Promise<Answered> {
    return send(url, 'POST', 'login', { body: { identifier: email, password: PASSWORD, ...more } });
  }

  async function openSession(url: string, email: string): Promise<void> {
    const { body, ...rest } = await login(url, email);
    const refresh = String(body.refresh_token ?? '');
    note({ ...rest, kind: 'login', email, ...(refresh !== '' && { refresh: tokenKey(refresh) }) });
    if (rest.outcome === 'ok') live.push({ token: String(body.token), refreshTokens: [refresh], inDoubt: false });
  }

  async function refreshWith(url: string, used: string): Promise<Answered> {
    const answered = await send(url, 'POST', 'token/refresh', { body: { refresh_token: used } });
    const { body, ...rest } = answered;
    const next = body.refresh_token;
    note({
      ...rest,
      kind: 'refresh',
      used: tokenKey(used),
      ...(next !== undefined && { next: tokenKey(String(next)) }),
    });
    return answered;
  }

  async function refresh(url: string, session: OwnSession): Promise<void> {
    const used = session.refreshTokens.at(-1) ?? '';
    const twice = random() < 0.2;
    const answers = await Promise.all(Array.from({ length: twice ? 2 : 1 }, () => refreshWith(url, used)));
    const good = answers.find(({ outcome }) => outcome === 'ok');
    session.inDoubt = good === undefined && answers.some(({ outcome }) => outcome === 'unknown');
    if (good !== undefined) {
      session.token = String(good.body.access_token);
      session.refreshTokens.push(String(good.body.refresh_token));
    } else if (!session.inDoubt) {
      // In doubt for longer than the ten seconds: the whole family ends.
      forget(session);
    }
  }

  /** As a thief would: with a token that was used long ago. It must end the session, and give nothing. */
  async function reuse(url: string, session: OwnSession): Promise<void> {
    forget(session);
    await refreshWith(url, session.refreshTokens[0] ?? '');
  }

  async function end(url: string, session: OwnSession): Promise<void> {
    const { body: _, ...rest } = await send(url, 'DELETE', 'session', { token: session.token });
    note({ ...rest, kind: 'end', refresh: tokenKey(session.refreshTokens.at(-1) ?? '') });
    forget(session);
  }

  async function check(url: string, session: OwnSession): Promise<void> {
    const { body: _, ...rest } = await send(url, 'GET', 'session', { token: session.token });
    note({ ...rest, kind: 'check', refresh: tokenKey(session.refreshTokens.at(-1) ?? '') });
  }

  function forget(session: OwnSession): void {
    const index = live.indexOf(session);
    if (index >= 0) live.splice(index, 1);
    ended.push(session);
  }

  async function enrol(url: string): Promise<void> {
    const email = await register(url);
    if (email === undefined) return;
    const { body: session } = await login(url, email);
    const token = String(session.token ?? '');
    const { outcome, body } = await send(url, 'POST', 'mfa/totp/provision', { body: {}, token });
    if (outcome !== 'ok') return;
    const totp = new TOTP({ secret: Secret.fromBase32(String(body.secret)) });
    const step = currentStep() - 1;
    const { body: _, ...rest } = await send(url, 'POST', 'mfa/totp/verify', {
      body: { code: codeOf(totp, step) },
      token,
    });
    note({ ...rest, kind: 'code', email, step });
    if (rest.outcome === 'ok') owners.push({ email, totp, lastStep: step, inDoubt: false, replays: 0 });
  }

  /** The next code where there is one already; else one that was used before. */
  async function useCode(url: string, owner: TotpOwner): Promise<void> {
    const fresh = Math.max(owner.lastStep + 1, currentStep() - 1);
    const isReplay = owner.inDoubt || fresh > currentStep() + 1;
    if (isReplay && owner.replays >= MAX_REPLAYS) return;
    const step = isReplay ? owner.lastStep : fresh;
    const { body: _, ...rest } = await login(url, owner.email, { totpCode: codeOf(owner.totp, step) });
    note({ ...rest, kind: 'code', email: owner.email, step });
    owner.lastStep = step;
    owner.inDoubt = rest.outcome === 'unknown';
    owner.replays = isReplay && !owner.inDoubt ? owner.replays + 1 : 0;
  }

  async function doSomething(url: string): Promise<void> {
    const person = pick(people);
    const session = pick(live);
    const chance = random();
    if (person === undefined || chance < 0.15) {
      const email = await register(url);
      if (email !== undefined) people.push(email);
    } else if (session === undefined || chance < 0.3) {
      await openSession(url, person);
    } else if (session.inDoubt || chance < 0.65) {
      await refresh(url, session);
    } else if (chance < 0.75) {
      await (random() < 0.3 && session.refreshTokens.length > 2 ? reuse(url, session) : end(url, session));
    } else if (chance < 0.85) {
      await check(url, pick(random() < 0.5 ? ended : live) ?? session);
    } else {
      const owner = random() < 0.8 ? pick(owners) : undefined;
      await (owner === undefined ? enrol(url) : useCode(url, owner));
    }
  }

  return {
    async workUntil(url, isOver) {
      while (!isOver()) await doSomething(url);
    },
    async checkAll(url) {
      for (const session of live) if (session.inDoubt) await refresh(url, session);
      for (const session of [...live, ...ended]) await check(url, session);
    },
  };
}

function byte(random: () => number): number {
  return Math.floor(random() * 256);
}

function currentStep(): number {
  return Math.floor(Date.now() / STEP_MS);
}

function codeOf(totp: TOTP, step: number): string {
  return totp.generate({ timestamp: step * STEP_MS });
}
