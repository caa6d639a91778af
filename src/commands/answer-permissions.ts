import { setTimeout as pause } from 'node:timers/promises';
import { styleText } from 'node:util';
import { type AgentSession, type TrestleClient, TrestleError } from '../client/trestle-client.ts';
import type { CommandContext } from './command-context.ts';
import { printable } from './turn-display.ts';

type Question = Awaited<ReturnType<TrestleClient['permissions']['list']>>[number];
type Answer = Parameters<TrestleClient['permissions']['answer']>[1];
type Form = NonNullable<Question['form']>;
type Field = Form['fields'][number];
type Values = NonNullable<Answer['values']>;

/** Where the live socket cannot be opened, questions are looked for this often. */
const LOOK_PAUSE_MS = 2000;
const LIST_TIMEOUT_MS = 10_000;
/** Keys that were typed before the question could be read do not count. */
const UNREAD_MS = 300;
const MAX_TITLE = 2000;
const MAX_LINE = 16_384;
const CTRL_C = '\x03';
const CTRL_D = '\x04';
const CTRL_U = '\x15';
const BACKSPACE = '\x7f';
const ESCAPE = '\x1b';

const ANSWERS: Readonly<Record<string, Answer>> = {
  y: { decision: 'allow' },
  s: { decision: 'allow', scope: 'session' },
  a: { decision: 'allow', scope: 'always' },
  n: { decision: 'deny' },
};

const KEYS_SHOWN = '  y allow once · s for this session · a always in this folder · n deny · r deny with a reason ';

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
  /** Of the session: others may have one of the same name. Undefined: as the server finds the session by its name. */
  readonly owner?: string | undefined;
  readonly context: CommandContext;
  readonly keys: Keys;
  /** Whether this terminal can ask a person. */
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

/** A question that is on the screen. */
interface Shown {
  readonly permissionId: string;
  /** Aborted when the question is not open any more. */
  readonly gone: AbortController;
  readonly ended: Promise<void>;
}

/** Shows one question after the other. Continues to read the list, because someone else may answer the question. */
async function answerPermissions(answers: Answers, signal: AbortSignal): Promise<void> {
  const settled = new Set<string>();
  let changed = Promise.withResolvers<void>();
  let shown: Shown | undefined;

  function show(question: Question): Shown {
    const { permissionId } = question;
    const gone = new AbortController();
    const ended = answerOne(answers, question, signal, gone.signal).then((isSettled) => {
      if (isSettled) settled.add(permissionId);
      shown = undefined;
      changed.resolve();
    });
    return { permissionId, gone, ended };
  }

  const stop = answers.trestle.live.watch(['permissions'], () => changed.resolve());
  try {
    while (!signal.aborted) {
      changed = Promise.withResolvers<void>();
      const open = await openQuestions(answers);
      if (open !== undefined && !signal.aborted) {
        if (shown !== undefined && !open.some((one) => one.permissionId === shown?.permissionId)) shown.gone.abort();
        const next = open.find(({ permissionId }) => !settled.has(permissionId));
        if (shown === undefined && next !== undefined) shown = show(next);
      }
      const look = pause(LOOK_PAUSE_MS, undefined, { signal }).catch(() => undefined);
      await Promise.race([changed.promise, look, ...(shown === undefined ? [] : [shown.ended])]);
    }
    await shown?.ended;
  } finally {
    stop();
  }
}

/** Undefined: the session has not started yet, or the server did not answer. The turn itself notices a server that is gone. */
async function openQuestions({ trestle, session, owner }: Answers): Promise<readonly Question[] | undefined> {
  try {
    const { sessionId } = session;
    return await trestle.permissions.list(
      { sessionId, ...(owner !== undefined && { owner }) },
      { timeoutMs: LIST_TIMEOUT_MS },
    );
  } catch (error) {
    if (error instanceof TrestleError) return undefined;
    throw error;
  }
}

/** Returns false when the answer may not have reached the server: if the question is still open, it is shown again. */
async function answerOne(
  { trestle, session, context, keys }: Answers,
  { permissionId, title, toolKind, form }: Question,
  signal: AbortSignal,
  gone: AbortSignal,
): Promise<boolean> {
  let isInterrupted = false;
  const onInterrupt = () => {
    isInterrupted = true;
  };
  const terminal = { keys, stderr: context.stderr, signal: AbortSignal.any([signal, gone]), onInterrupt };
  const bold = (text: string) => (context.color ? styleText('bold', text) : text);
  context.stderr(`\n${bold(`${toolKind}?`)} ${visible(title).slice(0, MAX_TITLE)}\n`);
  for (;;) {
    const answer = await (form === null ? readAnswer(terminal) : readForm(terminal, form));
    if (answer === 'no terminal') {
      context.stderr(`waiting for an answer: trestle sessions follow ${printable(session.sessionId)} --ask\n`);
      return true;
    }
    if (answer === undefined) {
      if (!signal.aborted && !isInterrupted) context.stderr('\n  This question is no longer open.\n');
      return true;
    }
    try {
      await trestle.permissions.answer(permissionId, answer);
      return true;
    } catch (error) {
      if (!(error instanceof TrestleError)) throw error;
      if (error.code === 'PERMISSION_NOT_REMEMBERED') {
        context.stderr('trestle: this answer cannot be remembered, so it is allowed only once\n');
        await trestle.permissions.answer(permissionId, { decision: 'allow' });
        return true;
      }
      context.stderr(`trestle: ${printable(error.message)}\n`);
      const isRefused = error.status !== undefined && error.status >= 400 && error.status < 500;
      if (!isRefused) return false;
      // Values that do not fit the form can be given again.
      if (form === null || error.code !== 'INVALID_REQUEST') return true;
    }
  }
}

interface AskedTerminal {
  readonly keys: Keys;
  readonly stderr: CommandContext['stderr'];
  /** Aborts when the turn has ended, or the question is not open any more. */
  readonly signal: AbortSignal;
  /** Ctrl-C was pressed. */
  onInterrupt(): void;
}

/** The answer that was typed; undefined if the turn ended before. */
type Typed<Value> = Value | 'no terminal' | undefined;

/** The answer of the next key that is one. */
async function readAnswer(terminal: AskedTerminal): Promise<Typed<Answer>> {
  const { stderr } = terminal;
  const since = performance.now();
  const answer = await readKeys<Answer | 'reason'>(terminal, KEYS_SHOWN, (key, resolve) => {
    const pressed = key.toLowerCase();
    if (key === CTRL_C) interrupt(terminal);
    else if (performance.now() - since < UNREAD_MS) return;
    else if (pressed === 'r') resolve('reason');
    else if (Object.hasOwn(ANSWERS, pressed)) {
      stderr(`${pressed}\n`);
      resolve(ANSWERS[pressed]);
    }
  });
  if (answer !== 'reason') return answer;
  stderr('r\n');
  const reason = await readLine(terminal, '  reason: ');
  if (reason === undefined || reason === 'no terminal') return reason;
  const said = reason.text?.trim() ?? '';
  return { decision: 'deny', ...(said !== '' && { reason: said.slice(0, MAX_TITLE) }) };
}

/** Asks for each field of a form in a line of its own. */
async function readForm(terminal: AskedTerminal, { fields }: Form): Promise<Typed<Answer>> {
  if (fields.length === 0) {
    const answer = await readField(terminal, CONFIRMATION);
    if (answer === undefined || typeof answer === 'string') return answer;
    return answer.value === true ? { values: {} } : { decision: 'deny' };
  }
  const values: Values = {};
  for (const field of fields) {
    const answer = await readField(terminal, field);
    if (answer === undefined || typeof answer === 'string') return answer;
    if ('isDeclined' in answer) return { decision: 'deny' };
    if (answer.value !== undefined) values[field.name] = answer.value;
  }
  return { values };
}

/** What a form without fields asks. */
const CONFIRMATION: Field = {
  ...{ name: '', title: 'Yes or no', description: '', type: 'boolean', required: true },
  ...{ secret: false, options: [], other: false },
};

interface FieldValue {
  /** Undefined: the field was left out. */
  readonly value: Values[string] | undefined;
}

/** Asks for one field until what is typed can be its value. */
async function readField(
  terminal: AskedTerminal,
  field: Field,
): Promise<Typed<FieldValue | { readonly value?: undefined; readonly isDeclined: true }>> {
  const { title, description, options, required, secret } = field;
  const { stderr } = terminal;
  if (description !== '') stderr(`  ${visible(description).slice(0, MAX_TITLE)}\n`);
  for (const [index, { title: shown, description: more }] of options.entries()) {
    stderr(`    ${index + 1} ${visible(more === '' ? shown : `${shown}: ${more}`).slice(0, MAX_TITLE)}\n`);
  }
  const known = field.default === undefined ? '' : ` [${visible(String(field.default)).slice(0, MAX_TITLE)}]`;
  const hint = `${HINTS[field.type]}${required ? '' : ' (Enter leaves it out)'}`;
  const prompt = `  ${visible(title).slice(0, MAX_TITLE)}${hint}${known}, Ctrl-D declines: `;
  for (;;) {
    const line = await readLine(terminal, prompt, secret);
    if (line === undefined || line === 'no terminal') return line;
    if (line.text === undefined) return { isDeclined: true };
    const text = line.text.trim();
    if (text !== '') {
      const value = PARSERS[field.type](text, field);
      if (value !== undefined) return { value };
      stderr(`  This is not an answer: give ${EXPECTED[field.type]}.\n`);
    } else if (field.default !== undefined || !required) return { value: field.default };
  }
}

const HINTS: Readonly<Record<Field['type'], string>> = {
  ...{ text: '', number: '', integer: '', boolean: ' (y/n)' },
  ...{ choice: ' (a number)', choices: ' (numbers, with commas)' },
};

const EXPECTED: Readonly<Record<Field['type'], string>> = {
  ...{ text: 'a text', number: 'a number', integer: 'an integer', boolean: 'y or n' },
  ...{ choice: 'one of the options', choices: 'some of the options, with commas between them' },
};

/** The value that a text stands for; undefined when it stands for none. Limits are checked by the server. */
const PARSERS: Readonly<Record<Field['type'], (text: string, field: Field) => Values[string] | undefined>> = {
  text: (text) => text,
  number: toNumber,
  integer: toNumber,
  boolean: (text) => (/^(?:y|yes|true)$/i.test(text) ? true : /^(?:n|no|false)$/i.test(text) ? false : undefined),
  choice: (text, field) => findOption(text, field) ?? (field.other ? text : undefined),
  choices(text, field) {
    const found = text.split(',').flatMap((one) => findOption(one.trim(), field) ?? []);
    return found.length === text.split(',').length ? found : undefined;
  },
};

function toNumber(text: string): number | undefined {
  const number = Number(text);
  return Number.isFinite(number) ? number : undefined;
}

function findOption(text: string, { options }: Field): string | undefined {
  const named = options.find(({ value, title }) => value === text || title === text);
  return (named ?? options[/^\d+$/.test(text) ? Number(text) - 1 : -1])?.value;
}

/** The line that is typed; without text when Ctrl-D was pressed. What is secret is not shown. */
async function readLine(
  terminal: AskedTerminal,
  prompt: string,
  isSecret = false,
): Promise<Typed<{ readonly text: string | undefined }>> {
  const echo = (text: string) => terminal.stderr(isSecret ? '' : text);
  let typed = '';
  return readKeys(terminal, prompt, (key, resolve) => {
    if (key === CTRL_C) interrupt(terminal);
    else if (key === '\r' || key === '\n' || key === CTRL_D) {
      terminal.stderr('\n');
      resolve({ text: key === CTRL_D ? undefined : typed });
    } else if (key === BACKSPACE || key === '\b') {
      if (typed !== '') echo('\b \b');
      typed = [...typed].slice(0, -1).join('');
    } else if (key === CTRL_U) {
      echo('\b \b'.repeat([...typed].length));
      typed = '';
    } else if (typed.length < MAX_LINE && printable(key) === key) {
      echo(key);
      typed += key;
    }
  });
}

/** Ends the line of the question, so that what is said about the end has a line of its own. */
function interrupt({ keys, stderr, onInterrupt }: AskedTerminal): void {
  stderr('^C\n');
  onInterrupt();
  keys.interrupt();
}

/** Hands each key to the listener until it resolves, or the turn ends. */
async function readKeys<Value>(
  { keys, stderr, signal }: AskedTerminal,
  prompt: string,
  onKey: (key: string, resolve: (value: Value | undefined) => void) => void,
): Promise<Typed<Value>> {
  const { promise, resolve } = Promise.withResolvers<Value | undefined>();
  let isOver = false;
  const end = (value: Value | undefined) => {
    isOver = true;
    resolve(value);
  };
  // An arrow key or another key that sends a sequence is not its letters.
  const release = keys.take((typed) => {
    if (!typed.startsWith(ESCAPE)) for (const key of typed) if (!isOver) onKey(key, end);
  });
  if (release === undefined) return 'no terminal';
  stderr(prompt);
  const onAbort = () => end(undefined);
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
