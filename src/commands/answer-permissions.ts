import { setTimeout as pause } from 'node:timers/promises';
import { styleText } from 'node:util';
import { type AgentSession, type TrestleClient, TrestleError } from '../client/trestle-client.ts';
import type { CommandContext } from './command-context.ts';
import { printable } from './turn-display.ts';

type Question = Awaited<ReturnType<TrestleClient['permissions']['list']>>[number];
type Answer = Parameters<TrestleClient['permissions']['answer']>[1];

/** Where the live socket cannot be opened, questions are looked for this often. */
const LOOK_PAUSE_MS = 2000;
/** Keys that were typed before the question could be read do not count. */
const UNREAD_MS = 300;
const MAX_TITLE = 2000;
const MAX_REASON = 2000;
const CTRL_C = '\x03';
const CTRL_U = '\x15';
const BACKSPACE = '\x7f';
const ESCAPE = '\x1b';

const ANSWERS: Readonly<Record<string, Answer>> = {
  y: { decision: 'allow' },
  s: { decision: 'allow', scope: 'session' },
  a: { decision: 'allow', scope: 'always' },
  n: { decision: 'deny' },
};

/** Where keys come from. */
export interface Keys {
  /** Hands what is typed to the listener until the function that it returns is called. Undefined: there is no terminal. */
  take(listener: (typed: string) => void): (() => void) | undefined;
  /** Ctrl-C was pressed. */
  interrupt(): void;
}

/** The keys of a terminal that nothing else reads. */
export const terminalKeys: Keys = {
  take(listener) {
    const { stdin } = process;
    if (!stdin.isTTY) return undefined;
    const onData = (data: Buffer) => listener(data.toString());
    stdin.setRawMode(true);
    stdin.on('data', onData).resume();
    return () => {
      stdin.off('data', onData).pause();
      stdin.setRawMode(false);
    };
  },
  interrupt: () => void process.emit('SIGINT'),
};

interface Answers {
  readonly trestle: TrestleClient;
  readonly session: Pick<AgentSession, 'sessionId'>;
  readonly context: CommandContext;
  readonly keys: Keys;
  /** Whether somebody is asked here. */
  readonly isAsked: boolean;
}

/**
 * Shows what the agent of a session asks while `work` runs, and answers with the keys that are pressed. Without a terminal
 * it says where to answer.
 */
export async function whileAnswering<Result>(answers: Answers, work: () => Promise<Result>): Promise<Result> {
  if (!answers.isAsked) return work();
  const ended = new AbortController();
  const answering = answerPermissions(answers, ended.signal);
  try {
    return await work();
  } finally {
    ended.abort();
    await answering;
  }
}

async function answerPermissions(answers: Answers, signal: AbortSignal): Promise<void> {
  const { trestle, session } = answers;
  const shown = new Set<string>();
  let changed = Promise.withResolvers<void>();
  const stop = trestle.live.watch(['permissions'], () => changed.resolve());
  while (!signal.aborted) {
    changed = Promise.withResolvers<void>();
    for (const question of await openQuestions(trestle, session.sessionId)) {
      if (signal.aborted || shown.has(question.permissionId)) continue;
      shown.add(question.permissionId);
      await answerOne(answers, question, signal);
    }
    await Promise.race([changed.promise, pause(LOOK_PAUSE_MS, undefined, { signal }).catch(() => undefined)]);
  }
  stop();
}

/** The session may not have started yet; a server that cannot be reached is noticed by the turn itself. */
async function openQuestions(trestle: TrestleClient, sessionId: string): Promise<readonly Question[]> {
  try {
    return await trestle.permissions.list({ sessionId });
  } catch (error) {
    if (error instanceof TrestleError) return [];
    throw error;
  }
}

async function answerOne(
  { trestle, session, context, keys }: Answers,
  { permissionId, title, toolKind }: Question,
  signal: AbortSignal,
): Promise<void> {
  const bold = (text: string) => (context.color ? styleText('bold', text) : text);
  context.stderr(`\n${bold(`${toolKind}?`)} ${visible(title).slice(0, MAX_TITLE)}\n`);
  const answer = await readAnswer(keys, context, signal);
  if (answer === 'no terminal') {
    context.stderr(`waiting for an answer: trestle sessions follow ${printable(session.sessionId)} --ask\n`);
    return;
  }
  if (answer === undefined) return;
  try {
    await trestle.permissions.answer(permissionId, answer);
  } catch (error) {
    if (!(error instanceof TrestleError)) throw error;
    if (error.code !== 'PERMISSION_NOT_REMEMBERED') {
      context.stderr(`trestle: ${error.message}\n`);
      return;
    }
    context.stderr('trestle: this cannot be remembered; it is allowed once\n');
    await trestle.permissions.answer(permissionId, { decision: 'allow' });
  }
}

/** The answer of the next key that is one. Undefined when the turn ended before. */
async function readAnswer(
  keys: Keys,
  { stderr }: CommandContext,
  signal: AbortSignal,
): Promise<Answer | 'no terminal' | undefined> {
  const { promise, resolve } = Promise.withResolvers<Answer | undefined>();
  const since = performance.now();
  /** The reason for a denial, as far as it is typed. */
  let reason: string | undefined;

  function onKey(key: string): void {
    if (key === CTRL_C) keys.interrupt();
    else if (reason !== undefined) onReasonKey(reason, key);
    else if (performance.now() - since < UNREAD_MS) return;
    else if (key.toLowerCase() === 'r') {
      stderr('r\n  reason: ');
      reason = '';
    } else if (Object.hasOwn(ANSWERS, key.toLowerCase())) {
      stderr(`${key.toLowerCase()}\n`);
      resolve(ANSWERS[key.toLowerCase()]);
    }
  }

  function onReasonKey(typed: string, key: string): void {
    if (key === '\r' || key === '\n') {
      stderr('\n');
      resolve({ decision: 'deny', ...(typed.trim() !== '' && { reason: typed.trim() }) });
    } else if (key === BACKSPACE || key === '\b') {
      if (typed !== '') stderr('\b \b');
      reason = [...typed].slice(0, -1).join('');
    } else if (key === CTRL_U) {
      stderr('\b \b'.repeat([...typed].length));
      reason = '';
    } else if (typed.length < MAX_REASON && printable(key) === key) {
      stderr(key);
      reason = typed + key;
    }
  }

  // An arrow key or another key that sends a sequence is not its letters.
  const release = keys.take((typed) => {
    if (!typed.startsWith(ESCAPE)) for (const key of typed) onKey(key);
  });
  if (release === undefined) return 'no terminal';
  stderr('  y allow once · s for this session · a always in this folder · n deny · r deny with a reason ');
  const onAbort = () => resolve(undefined);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
    release();
  }
}

/** Shows characters that would hide or reorder a part of the text: what is allowed must be what is read. */
function visible(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    return character === '\n'
      ? '⏎'
      : `<U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}>`;
  });
}
