export type Outcome = 'ok' | 'fail' | 'unknown';

/** What a client did and was told, one line of the log each. Times are the wall clock's; tokens stand as their digests. */
export type Operation = { readonly startedAt: number; readonly endedAt: number; readonly outcome: Outcome } & (
  | { readonly kind: 'register'; readonly email: string; readonly userId?: string }
  | { readonly kind: 'login'; readonly email: string; readonly refresh?: string }
  /** `used` was sent, `next` came back. */
  | { readonly kind: 'refresh'; readonly used: string; readonly next?: string }
  /** A logout; the session is named by one of its refresh tokens. */
  | { readonly kind: 'end'; readonly refresh: string }
  /** Whether the session's newest token is answered to. */
  | { readonly kind: 'check'; readonly refresh: string }
  /** A code of the second factor: the one that switches it on, or one to log in with. */
  | { readonly kind: 'code'; readonly email: string; readonly step: number }
);

export interface StoredAccounts {
  readonly users: ReadonlyMap<string, { readonly id: string; readonly lastStep: number; readonly hasTotp: boolean }>;
  readonly refreshTokens: ReadonlyMap<string, StoredRefreshToken>;
  /** The generation of each session that can still be used. */
  readonly sessions: ReadonlyMap<string, number>;
  /** What the file's own check says. */
  readonly integrity: string;
}

export interface StoredRefreshToken {
  readonly sessionId: string;
  readonly generation: number;
  readonly usedAt: number | null;
}

/** So long a used refresh token gives its pair again. */
const REPLAY_MS = 10_000;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(operations: readonly Operation[], stored: StoredAccounts): string[] {
  return [
    ...(stored.integrity === 'ok' ? [] : [`the file is damaged: ${stored.integrity}`]),
    ...operations.flatMap((operation) => checkKept(operation, stored)),
    ...checkSecondFactors(operations),
    ...checkRotations(operations, stored),
    ...checkForks(stored),
    ...checkEnds(operations, stored),
  ];
}

/** What was acknowledged is there. */
function checkKept(operation: Operation, { users, refreshTokens }: StoredAccounts): string[] {
  if (operation.outcome !== 'ok') return [];
  switch (operation.kind) {
    case 'register': {
      const isThere = users.get(operation.email)?.id === operation.userId;
      return isThere ? [] : [`the registered user ${operation.email} is lost`];
    }
    case 'login':
      return refreshTokens.has(operation.refresh ?? '') ? [] : [`a session of ${operation.email} is lost`];
    case 'code': {
      const user = users.get(operation.email);
      const isThere = user?.hasTotp === true && user.lastStep >= operation.step;
      return isThere ? [] : [`step ${operation.step} of ${operation.email} was accepted and is forgotten`];
    }
    default:
      return [];
  }
}

function checkSecondFactors(operations: readonly Operation[]): string[] {
  const accepted = new Set<string>();
  return operations.flatMap((operation) => {
    if (operation.kind !== 'code' || operation.outcome !== 'ok') return [];
    const key = `step ${operation.step} of ${operation.email}`;
    if (accepted.has(key)) return [`${key} was accepted twice`];
    accepted.add(key);
    return [];
  });
}

function checkRotations(operations: readonly Operation[], { refreshTokens, sessions }: StoredAccounts): string[] {
  return operations.flatMap((operation) => {
    if (operation.kind !== 'refresh' || operation.outcome !== 'ok') return [];
    const used = refreshTokens.get(operation.used);
    const next = refreshTokens.get(operation.next ?? '');
    const name = `the rotation ${operation.used} -> ${operation.next}`;
    if (used === undefined || used.usedAt === null || next === undefined) return [`${name} is lost`];
    const problems: string[] = [];
    // There is one token of each generation (see checkForks), so that a second answer must have been the first one again.
    if (next.sessionId !== used.sessionId || next.generation !== used.generation + 1) {
      problems.push(`${name} is not the one that is stored`);
    }
    if ((sessions.get(next.sessionId) ?? next.generation) < next.generation) problems.push(`${name} was undone`);
    if (operation.startedAt > used.usedAt + REPLAY_MS) {
      problems.push(`${name} was given ${operation.startedAt - used.usedAt} ms after its first use`);
    }
    return problems;
  });
}

function checkForks({ refreshTokens }: StoredAccounts): string[] {
  const seen = new Set<string>();
  return [...refreshTokens.values()].flatMap(({ sessionId, generation }) => {
    const key = `generation ${generation} of session ${sessionId}`;
    if (seen.has(key)) return [`${key} has two refresh tokens`];
    seen.add(key);
    return [];
  });
}

/** An ended session stays ended, and no session ends by itself. */
function checkEnds(operations: readonly Operation[], { refreshTokens, sessions }: StoredAccounts): string[] {
  const sessionOf = (token: string): string | undefined => refreshTokens.get(token)?.sessionId;
  const ended = new Map<string, number>();
  const mayHaveEnded = new Map<string, number>();
  for (const operation of operations) {
    const isEnd = operation.kind === 'end' && operation.outcome !== 'fail';
    // A refused token may be a stolen one: that ends the session too.
    const isReuse = operation.kind === 'refresh' && operation.outcome !== 'ok';
    if (!isEnd && !isReuse) continue;
    const session = sessionOf(operation.kind === 'end' ? operation.refresh : operation.used);
    if (session === undefined) continue;
    mayHaveEnded.set(session, Math.min(operation.startedAt, mayHaveEnded.get(session) ?? Number.POSITIVE_INFINITY));
    if (isEnd && operation.outcome === 'ok') ended.set(session, operation.endedAt);
  }
  const problems = [...ended.keys()].flatMap((id) =>
    sessions.has(id) ? [`session ${id} was ended and is there`] : [],
  );
  for (const operation of operations) {
    if (operation.kind !== 'check' && operation.kind !== 'refresh' && operation.kind !== 'login') continue;
    const session = sessionOf((operation.kind === 'refresh' ? operation.used : operation.refresh) ?? '');
    if (session === undefined) continue;
    const { kind, outcome, startedAt, endedAt } = operation;
    const endedBefore = (ended.get(session) ?? Number.POSITIVE_INFINITY) < startedAt;
    if (outcome === 'ok' && endedBefore) problems.push(`session ${session} was ended, and then a ${kind} was answered`);
    const mayBeGone = (mayHaveEnded.get(session) ?? Number.POSITIVE_INFINITY) <= endedAt;
    if (kind === 'check' && outcome === 'fail' && !mayBeGone) problems.push(`session ${session} was refused too early`);
    if (kind === 'login' && !mayHaveEnded.has(session) && !sessions.has(session)) {
      problems.push(`session ${session} is gone, and nobody has ended it`);
    }
  }
  return problems;
}
