// A program that speaks Codex's app-server protocol over its standard streams and does what the prompt says:
// `node scripted-codex-agent.ts [--state FOLDER] [--archive]`. Threads that had a turn are kept in the folder and can be resumed.
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { FORM_SCHEMA } from './scripted-work.ts';

const { values: flags } = parseArgs({
  options: { state: { type: 'string' }, archive: { type: 'boolean' }, login: { type: 'string' } },
});

interface Message {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number };
}

interface Thread {
  readonly id: string;
  readonly prompts: string[];
  input: unknown;
  cwd: string;
  model: string;
  /** That came with the turn. */
  effort: string;
  policy: string;
  config: unknown;
  turnId: string;
  /** What was sent to the running turn. */
  steered: string[];
  onSteer: () => void;
  totalTokens: number;
  interrupted: PromiseWithResolvers<void>;
}

const threads = new Map<string, Thread>();
const questions = new Map<number, (answer: Message) => void>();
let lastQuestion = -1;
let lastId = 0;
let isInitialized = false;

const write = (message: object) => process.stdout.write(`${JSON.stringify(message)}\n`);
const nextId = (kind: string) => {
  lastId += 1;
  return `${kind}-${process.pid}-${lastId}`;
};
const tell = (thread: Thread, method: string, params: object) =>
  write({ method, params: { threadId: thread.id, turnId: thread.turnId, ...params } });

function ask(thread: Thread, method: string, params: object): Promise<Message> {
  lastQuestion += 1;
  const id = lastQuestion;
  return new Promise((resolve) => {
    questions.set(id, resolve);
    write({ id, method, params: { threadId: thread.id, turnId: thread.turnId, ...params } });
  });
}

function say(thread: Thread, text: string): void {
  const item = { type: 'agentMessage', id: nextId('msg'), text, phase: null };
  tell(thread, 'item/started', { item: { ...item, text: '' } });
  for (const delta of text.split(/(?<= )/)) tell(thread, 'item/agentMessage/delta', { itemId: item.id, delta });
  tell(thread, 'item/completed', { item });
}

function use(thread: Thread): void {
  thread.totalTokens += 10;
  const count = (totalTokens: number) => ({
    totalTokens,
    inputTokens: totalTokens * 0.6,
    outputTokens: totalTokens * 0.4,
  });
  tell(thread, 'thread/tokenUsage/updated', { tokenUsage: { total: count(thread.totalTokens), last: count(10) } });
}

/** The value is the status of the turn, with its error if there is one. */
const commands: Record<string, (thread: Thread, rest: string) => Promise<object> | object> = {
  say(thread, rest) {
    tell(thread, 'warning', { message: 'model metadata not found' });
    tell(thread, 'item/reasoning/summaryTextDelta', { itemId: 'r', delta: 'hm', summaryIndex: 0 });
    tell(thread, 'item/completed', { item: { type: 'reasoning', id: 'r', summary: ['hm'], content: [] } });
    say(thread, rest);
    use(thread);
    return { status: 'completed' };
  },
  async run(thread, rest) {
    const item = {
      type: 'commandExecution',
      id: nextId('call'),
      command: rest,
      cwd: thread.cwd,
      aggregatedOutput: null,
    };
    say(thread, 'I run it.');
    use(thread);
    tell(thread, 'item/started', { item: { ...item, status: 'inProgress' } });
    const answer = await ask(thread, 'item/commandExecution/requestApproval', { itemId: item.id, command: rest });
    const isAccepted = answer.result?.decision === 'accept';
    if (isAccepted) tell(thread, 'item/commandExecution/outputDelta', { itemId: item.id, delta: 'printed' });
    const outcome = isAccepted ? { status: 'completed', aggregatedOutput: 'printed' } : { status: 'declined' };
    tell(thread, 'item/completed', { item: { ...item, ...outcome } });
    const further = thread.steered.map((text) => `, then: ${text}`).join('');
    say(thread, `answered ${String(answer.result?.decision)}${further}`);
    use(thread);
    return { status: 'completed' };
  },
  print(thread, rest) {
    const item = { type: 'commandExecution', id: 'long', command: 'build', cwd: thread.cwd };
    tell(thread, 'item/started', { item: { ...item, status: 'inProgress' } });
    const lines = Array.from({ length: Number(rest) }, (_none, index) => `line ${index}\n`);
    for (const delta of lines) tell(thread, 'item/commandExecution/outputDelta', { itemId: item.id, delta });
    tell(thread, 'item/completed', { item: { ...item, status: 'completed', aggregatedOutput: lines.join('') } });
    return { status: 'completed' };
  },
  async questions(thread) {
    const permissions = { network: { enabled: true }, fileSystem: null };
    const answers = [
      await ask(thread, 'item/fileChange/requestApproval', { itemId: 'f' }),
      await ask(thread, 'item/permissions/requestApproval', { itemId: 'p', reason: 'the net', permissions }),
      await ask(thread, 'mcpServer/elicitation/request', {}),
      await ask(thread, 'item/tool/requestUserInput', {}),
      await ask(thread, 'item/somethingNew', {}),
    ];
    say(thread, JSON.stringify(answers.map(({ result, error }) => result ?? error?.code)));
    return { status: 'completed' };
  },
  /** Asks with the form of an MCP server, then with questions of its own, and says what came back. */
  async form(thread) {
    const form = { serverName: 'deploys', mode: 'form', message: 'Where to deploy?', requestedSchema: FORM_SCHEMA };
    const options = ['red', 'blue'].map((label) => ({ label, description: '' }));
    const color = { id: 'color', header: 'Color', question: 'Which color?', isOther: true, isSecret: false, options };
    const pin = { id: 'pin', header: 'PIN', question: 'Your PIN?', isOther: false, isSecret: true, options: null };
    const answers = [
      await ask(thread, 'mcpServer/elicitation/request', form),
      await ask(thread, 'item/tool/requestUserInput', { itemId: 'q', questions: [color, pin], isBlocking: true }),
    ];
    say(thread, JSON.stringify(answers.map(({ result }) => result)));
    return { status: 'completed' };
  },
  items(thread) {
    const item = (fields: object) => {
      tell(thread, 'item/started', { item: { status: 'inProgress', ...fields } });
      tell(thread, 'item/completed', { item: { status: 'completed', ...fields } });
    };
    item({ type: 'fileChange', id: 'f', changes: [{ path: '/a.txt', kind: { type: 'add' }, diff: '+a' }] });
    item({
      type: 'mcpToolCall',
      id: 'm',
      server: 'docs',
      tool: 'find',
      arguments: { q: 1 },
      result: null,
      error: null,
    });
    item({ type: 'somethingNew', id: 'n' });
    tell(thread, 'turn/plan/updated', { plan: [{ step: 'look', status: 'completed' }] });
    tell(thread, 'something/new', { text: 'not shown' });
    tell(thread, 'item/completed', { item: { type: 'agentMessage', id: 'whole', text: 'said at once' } });
    return { status: 'completed' };
  },
  async wait(thread) {
    tell(thread, 'item/agentMessage/delta', { itemId: 'w', delta: 'waiting' });
    await thread.interrupted.promise;
    return { status: 'interrupted' };
  },
  fail(thread, rest) {
    tell(thread, 'error', { error: { message: 'stream broke' }, willRetry: true });
    return { status: 'failed', error: { message: rest } };
  },
  /** Waits for a message to the running turn, and says it. */
  async listen(thread) {
    if (thread.steered.length === 0) {
      await new Promise<void>((resolve) => {
        thread.onSteer = resolve;
      });
    }
    say(thread, `heard ${thread.steered.join('|')}`);
    thread.turnId = '';
    return { status: 'completed' };
  },
  /** Says what its prompt consists of. */
  input(thread) {
    say(thread, JSON.stringify(thread.input));
    return { status: 'completed' };
  },
  recall(thread) {
    say(thread, `${thread.prompts.join('|')} in ${thread.cwd}`);
    return { status: 'completed' };
  },
  effort(thread) {
    say(thread, thread.effort);
    return { status: 'completed' };
  },
  model(thread) {
    say(thread, thread.model);
    return { status: 'completed' };
  },
  /** Says the settings that its thread was given. */
  config(thread) {
    say(thread, JSON.stringify(thread.config));
    return { status: 'completed' };
  },
  policy(thread) {
    say(thread, thread.policy);
    return { status: 'completed' };
  },
  reroute(thread) {
    tell(thread, 'model/rerouted', { fromModel: thread.model, toModel: 'another' });
    say(thread, 'rerouted');
    return { status: 'completed' };
  },
  forget(thread) {
    threads.delete(thread.id);
    return { status: 'completed' };
  },
  die: () => process.exit(9),
};

function remember(
  id: string,
  { cwd, model, sandbox, approvalPolicy, config }: Record<string, unknown>,
  prompts: string[],
): Thread {
  const thread = {
    id,
    cwd: String(cwd),
    prompts,
    input: undefined,
    policy: `${String(sandbox)} ${String(approvalPolicy)}`,
    model: String(model ?? 'own'),
    effort: 'unset',
    config,
    turnId: '',
    steered: [],
    onSteer: () => undefined,
    totalTokens: 0,
    interrupted: Promise.withResolvers<void>(),
  };
  threads.set(id, thread);
  return thread;
}

function sandboxText(policy: unknown): string {
  const { type, writableRoots = [] } = policy as { type: string; writableRoots?: string[] };
  return [type, ...writableRoots].join(' ');
}

function find(id: unknown): Thread {
  const thread = threads.get(String(id));
  if (thread === undefined) throw { code: -32600, message: `thread not found: ${String(id)}` };
  return thread;
}

async function runTurn(thread: Thread, prompt: string): Promise<void> {
  const [, command = '', rest = ''] = /^(\w+) ?(.*)$/s.exec(prompt) ?? [];
  const turn = (await commands[command]?.(thread, rest)) ?? { status: 'failed', error: null };
  write({
    method: 'turn/completed',
    params: { threadId: thread.id, turn: { id: thread.turnId, error: null, ...turn } },
  });
}

const methods: Record<string, (params: Record<string, unknown>) => unknown> = {
  initialize: () => ({ userAgent: 'scripted/0.166.0 (Linux; x86_64) trestle' }),
  'account/read'() {
    if (flags.login === undefined) throw { code: -32601, message: 'Method not found' };
    return { account: flags.login === 'missing' ? null : { type: 'apiKey' }, requiresOpenaiAuth: true };
  },
  'thread/start'(params) {
    if (!isInitialized) throw { code: -32600, message: 'not initialized' };
    const thread = remember(nextId('thread'), params, []);
    const sandbox = { type: 'workspaceWrite', writableRoots: ['/extra'] };
    return { thread: { id: thread.id }, model: thread.model, sandbox };
  },
  'thread/resume'(params) {
    const { threadId } = params;
    const file = join(flags.state ?? '', String(threadId));
    if (flags.state === undefined || !existsSync(file))
      throw { code: -32600, message: `no rollout found for thread id ${String(threadId)}` };
    const thread = remember(String(threadId), params, JSON.parse(readFileSync(file, 'utf8')) as string[]);
    return { thread: { id: threadId }, model: thread.model };
  },
  'thread/fork'(params) {
    const thread = remember(nextId('thread'), params, [...find(params.threadId).prompts]);
    return { thread: { id: thread.id }, model: thread.model };
  },
  'turn/steer'({ threadId, expectedTurnId, input }) {
    const thread = find(threadId);
    if (thread.turnId !== expectedTurnId) throw { code: -32600, message: 'no active turn' };
    const [block] = input as { text: string }[];
    thread.steered.push(block?.text ?? '');
    thread.onSteer();
    return { turnId: thread.turnId };
  },
  'turn/start'({ threadId, input, model, cwd, sandboxPolicy, effort }) {
    const thread = find(threadId);
    const [block] = input as { text: string }[];
    const prompt = block?.text ?? '';
    if (prompt === 'vanish') process.exit(9);
    if (prompt === 'refuse') throw { code: -32600, message: 'not now' };
    thread.prompts.push(prompt);
    thread.input = input;
    thread.cwd = String(cwd);
    if (typeof model === 'string') thread.model = model;
    thread.effort = String(effort ?? 'unset');
    thread.turnId = nextId('turn');
    thread.steered = [];
    if (sandboxPolicy !== undefined) thread.policy = `${sandboxText(sandboxPolicy)} untrusted`;
    thread.interrupted = Promise.withResolvers();
    if (flags.state !== undefined) writeFileSync(join(flags.state, thread.id), JSON.stringify(thread.prompts));
    setImmediate(() => void runTurn(thread, prompt));
    return { turn: { id: thread.turnId, status: 'inProgress' } };
  },
  'turn/interrupt'({ threadId, turnId }) {
    const thread = find(threadId);
    if (thread.turnId === turnId) thread.interrupted.resolve();
    return {};
  },
  'thread/delete'({ threadId }) {
    if (flags.archive === true) throw { code: -32601, message: 'Method not found' };
    rmSync(fileOf(threadId));
    return {};
  },
  'thread/archive'({ threadId }) {
    renameSync(fileOf(threadId), `${fileOf(threadId)}.archived`);
    return {};
  },
  'thread/unsubscribe'({ threadId }) {
    threads.delete(String(threadId));
    return { status: 'unsubscribed' };
  },
};

function fileOf(threadId: unknown): string {
  const file = join(flags.state ?? '', String(threadId));
  if (flags.state === undefined || !existsSync(file)) throw { code: -32600, message: 'no rollout found for thread' };
  return file;
}

function serve({ id, method = '', params = {} }: Message): void {
  try {
    const handler = methods[method];
    if (handler === undefined) throw { code: -32601, message: 'Method not found' };
    write({ id, result: handler(params) });
  } catch (error) {
    write({ id, error });
  }
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line) as Message;
  if ('jsonrpc' in message) throw new Error('there must be no jsonrpc member');
  if (message.method === 'initialized') isInitialized = true;
  else if (message.method !== undefined) serve(message);
  else questions.get(Number(message.id))?.(message);
});
