// A program that speaks the agent's side of the Agent Client Protocol over its standard streams and does what the prompt
// says: `node scripted-acp-agent.ts [options]`. Written without the protocol's SDK, to be independent of it.
//   --state FOLDER     conversations are kept there and can be resumed      --load       offers loading, not resuming
//   --name NAME        what it calls itself                                 --version N  the protocol version it speaks
//   --hang WHEN        never answers `initialize` or `session/new`; --blank METHOD: answers null   --stubborn   outlives SIGTERM and its input
//   --auth STATE       offers a way to log in: a state of `createScriptedLogin`
//   --crash            ends at once, with words on standard error           --models     offers models and levels of thinking to choose from
//   --fork             offers to copy sessions                              --mcp WHAT   `http`: takes such servers, `fail`: opens nothing
//   --image, --context  takes images, and embedded files, in prompts
//   --delete           offers to delete sessions, `--delete fail` fails to  --modes      offers the modes build and plan, of which plan does not write; --option: as an option
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import {
  ASK_OPTIONS,
  askServer,
  createScriptedLogin,
  everyUpdate,
  FORM_SCHEMA,
  kindUpdates,
  modeOption,
  OPTIONS,
  readFlags,
  readUpdates,
  select,
  timedReports,
  workUpdates,
} from './scripted-work.ts';

const flags = readFlags();

interface Message {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
}

interface Conversation extends Record<'model' | 'mode' | 'thinking', string> {
  readonly id: string;
  readonly folder: string;
  readonly prompts: string[];
  blocks: unknown;
  readonly servers: unknown;
  cancelled: PromiseWithResolvers<void>;
}

const conversations = new Map<string, Conversation>();
const questions = new Map<number, (answer: Message) => void>();
let lastQuestion = -1;
let lastConversation = 0;

const write = (message: object) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const update = (sessionId: string, fields: object) =>
  write({ method: 'session/update', params: { sessionId, update: fields } });
const text = (value: string) => ({ type: 'text', text: value });
const say = (sessionId: string, value: string) =>
  update(sessionId, { sessionUpdate: 'agent_message_chunk', content: text(value) });
const sayAll = (sessionId: string, value: string) => {
  say(sessionId, value);
  return 'end_turn';
};
const tell = async (sessionId: string, updates: Iterable<object> | AsyncIterable<object>) => {
  for await (const one of updates) update(sessionId, one);
  return 'end_turn';
};

function ask(method: string, params: object): Promise<Message> {
  lastQuestion += 1;
  const id = lastQuestion;
  return new Promise((resolve) => {
    questions.set(id, resolve);
    write({ id, method, params });
  });
}

/** What a prompt can say: its first word, and the rest. The value is the reason why the turn stops. */
const commands: Record<string, (conversation: Conversation, rest: string) => Promise<string> | string> = {
  say({ id }, rest) {
    for (const word of rest.split(/(?<= )/)) say(id, word);
    return 'end_turn';
  },
  /** `spend DOLLARS`: tells what the conversation has cost by then. */
  spend({ id }, rest) {
    update(id, { sessionUpdate: 'usage_update', used: 5, size: 100, cost: { amount: Number(rest), currency: 'USD' } });
    say(id, 'spent');
    return 'end_turn';
  },
  /** `burst COUNT LENGTH`: so many pieces of text, each that long, as fast as its output takes them. */
  async burst({ id }, rest) {
    const [count = 0, length = 0] = rest.split(' ').map(Number);
    for (let index = 0; index < count; index += 1) {
      const isTaken = say(id, `#${index} `.padEnd(length, 'x'));
      if (!isTaken) await new Promise((resolve) => process.stdout.once('drain', resolve));
    }
    return 'end_turn';
  },
  async ask({ id, folder }) {
    const toolCall = { toolCallId: 'call-1', title: 'touch made', kind: 'execute' };
    const answer = await ask('session/request_permission', { sessionId: id, toolCall, options: ASK_OPTIONS });
    const { outcome, optionId } = (answer.result?.outcome ?? {}) as { outcome?: string; optionId?: string };
    const isAllowed = optionId === 'once';
    if (isAllowed) writeFileSync(join(folder, 'made'), '');
    // As Gemini does: an update for a call that was never announced.
    update(id, { sessionUpdate: 'tool_call_update', ...toolCall, status: isAllowed ? 'completed' : 'failed' });
    const { reason } = (answer.result?._meta ?? {}) as { reason?: string };
    say(id, `answered ${outcome} ${optionId}${reason === undefined ? '' : ` because ${reason}`}`);
    return 'end_turn';
  },
  /** Asks with a form, and says what came back. */
  async form({ id }) {
    const question = { sessionId: id, mode: 'form', message: 'Where to deploy?', requestedSchema: FORM_SCHEMA };
    say(id, JSON.stringify((await ask('elicitation/create', question)).result));
    return 'end_turn';
  },
  async noise({ id }) {
    process.stdout.write(
      'Loading plug-ins...\n\u001b[31mwarning\u001b[0m {not json}\n{"level":30,"msg":"a log line"}\n[1,2]\n{"half":\n',
    );
    process.stderr.write('between the messages\n');
    process.stdout.write('no line break before this: ');
    say(id, 'first ');
    const bytes = Buffer.from(
      `${JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params: { sessionId: id, update: { sessionUpdate: 'agent_message_chunk', content: text('zwölf €🙂 ') } } })}\n`,
    );
    for (const byte of bytes) {
      process.stdout.write(Buffer.of(byte));
      if (byte > 127) await pause(2);
    }
    write({ id: 4711, result: { nobody: 'asked' } });
    update(id, { sessionUpdate: 'a_kind_of_the_future', content: text('not shown') });
    update('another', { sessionUpdate: 'agent_message_chunk', content: text('not shown') });
    // An object that cannot even become text.
    write({ method: 'session/update', params: { sessionId: { toString: null }, update: {} } });
    const refused = (await ask('craft/unknown', {})) as { error?: { code: number } };
    say(id, `refused ${refused.error?.code}`);
    return 'end_turn';
  },
  kinds: ({ id }) => tell(id, kindUpdates),
  report: ({ id }, rest) => tell(id, timedReports(rest)),
  async work(conversation, rest) {
    await tell(
      conversation.id,
      (rest === 'every' ? everyUpdate : rest === 'reads' ? readUpdates : workUpdates)(conversation.folder),
    );
    return (await commands.ask?.(conversation, '')) ?? 'end_turn';
  },
  async wait({ id, cancelled }) {
    say(id, 'waiting');
    await cancelled.promise;
    return 'cancelled';
  },
  async ignore({ id }) {
    say(id, 'deaf');
    await new Promise(() => undefined);
    return 'end_turn';
  },
  async child({ id, cancelled }) {
    const child = spawn('sleep', ['1000'], { stdio: 'ignore' });
    say(id, String(child.pid));
    await cancelled.promise;
    await new Promise(() => undefined);
    return 'cancelled';
  },
  async die(_conversation, rest) {
    process.stderr.write('the disk is on fire, api_key=sk-abcdefghijklmnop\n');
    await pause(20);
    if (rest === 'signal') process.kill(process.pid, 'SIGSEGV');
    process.exit(Number(rest));
  },
  /** Closes its output and goes on running. */
  async mute() {
    process.stdout.end();
    await new Promise(() => undefined);
    return 'end_turn';
  },
  /** Ends, and leaves a child that keeps its output open. */
  async orphan() {
    spawn('sleep', ['1000'], { stdio: 'inherit' });
    await pause(20);
    process.exit(1);
  },
  flood({ id }, rest) {
    for (let number = 0; number < Number(rest); number += 1) say(id, `${number} `);
    return 'end_turn';
  },
  /** `pace RATE SECONDS`: says numbered words, so many in a second. */
  async pace({ id }, rest) {
    const [rate = 1, seconds = 1] = rest.split(' ').map(Number);
    const started = performance.now();
    for (let number = 1; number <= rate * seconds; number += 1) {
      await pause(Math.max(0, started + (number * 1000) / rate - performance.now()));
      say(id, `word-${number} `);
    }
    return 'end_turn';
  },
  /** `sh LINE`: runs a line of a shell in its folder, and says what came out of it. */
  sh({ id, folder }, rest) {
    const { status, stdout, stderr } = spawnSync('sh', ['-c', rest], { cwd: folder, encoding: 'utf8' });
    say(id, `${stdout}${stderr}[${status}]`);
    return 'end_turn';
  },
  echo: ({ id }, rest) => sayAll(id, rest),
  /** Says what its prompt consists of. */
  blocks: ({ id, blocks }) => sayAll(id, JSON.stringify(blocks)),
  recall: ({ id, prompts }) => sayAll(id, prompts.join('|')),
  environment: ({ id }) =>
    sayAll(id, JSON.stringify({ variables: process.env, argv: process.argv.slice(2), folder: process.cwd() })),
  model: ({ id, model }) => sayAll(id, model),
  thinking: ({ id, thinking }) => sayAll(id, thinking),
  /** Says which MCP servers it was given. */
  servers: ({ id, servers }) => sayAll(id, JSON.stringify(servers)),
  /** `tool METHOD PARAMS`: sends a request to its server over HTTP, and says what it answers. */
  tool: async ({ id, servers }, rest) => sayAll(id, await askServer(servers, rest)),
  /** `edit NAME TEXT`: writes a line to a file, and reports the change as a diff. */
  edit({ id, folder }, rest) {
    const [name = '', ...words] = rest.split(' ');
    const path = join(folder, name);
    const oldText = existsSync(path) ? readFileSync(path, 'utf8') : null;
    const newText = `${words.join(' ')}\n`;
    writeFileSync(path, newText);
    const content = [{ type: 'diff', path, oldText, newText }];
    const call = { toolCallId: 'edit-1', title: `Edit ${name}`, kind: 'edit', status: 'completed', content };
    update(id, { sessionUpdate: 'tool_call', ...call });
    say(id, 'edited');
    return 'end_turn';
  },
  /** Writes a file without asking, unless its mode forbids it. */
  write({ id, folder, mode }, rest) {
    if (mode !== 'plan') writeFileSync(join(folder, rest), '');
    say(id, `in mode ${mode}`);
    return 'end_turn';
  },
  /** Leaves its mode by itself, and writes when the bridge had time to object. */
  async leave(conversation, rest) {
    conversation.mode = 'build';
    const asOption = { sessionUpdate: 'config_option_update', ...modeOption('build') };
    update(conversation.id, flags.option ? asOption : { sessionUpdate: 'current_mode_update', currentModeId: 'build' });
    await pause(500);
    return commands.write?.(conversation, rest) ?? 'end_turn';
  },
  stop: (_conversation, rest) => rest,
  forget: ({ id }) => {
    conversations.delete(id);
    return 'end_turn';
  },
};

const login = createScriptedLogin(flags.auth);
const methods: Record<string, (params: Record<string, unknown>) => unknown> = {
  initialize({ clientCapabilities }) {
    if (flags.hang === 'initialize') return new Promise(() => undefined);
    const continues = flags.state !== undefined;
    return {
      protocolVersion: Number(flags.version ?? 1),
      ...(flags.auth !== undefined && flags.auth !== 'unoffered' && { authMethods: login.offered(clientCapabilities) }),
      agentInfo: { name: flags.name ?? 'scripted', version: '1.2.3' },
      agentCapabilities: {
        promptCapabilities: { image: flags.image === true, embeddedContext: flags.context === true },
        mcpCapabilities: { http: flags.mcp === 'http', sse: false },
        loadSession: continues && flags.load === true,
        sessionCapabilities: {
          ...(continues && flags.load !== true && { resume: {} }),
          close: {},
          ...(flags.fork === true && { fork: {} }),
          ...(flags.delete !== undefined && { delete: {} }),
        },
      },
    };
  },
  authenticate: login.authenticate,
  'session/new'({ cwd, mcpServers }) {
    if (flags.mcp === 'fail') throw { code: -32603, message: `cannot start ${JSON.stringify(mcpServers)}` };
    if (flags.hang === 'session/new') return new Promise(() => undefined);
    login.require();
    lastConversation += 1;
    const id = `conversation-${process.pid}-${lastConversation}`;
    return { sessionId: remember(id, String(cwd), [], mcpServers), ...choice() };
  },
  'session/fork'({ sessionId, cwd, mcpServers }) {
    lastConversation += 1;
    const prompts = [...find(sessionId).prompts];
    return {
      sessionId: remember(`conversation-${process.pid}-${lastConversation}`, String(cwd), prompts, mcpServers),
      ...choice(),
    };
  },
  'session/resume': takeUp,
  'session/load'(params) {
    const answer = takeUp(params);
    for (const prompt of conversations.get(String(params.sessionId))?.prompts ?? []) {
      say(String(params.sessionId), `(again) ${prompt}`);
    }
    return answer;
  },
  'session/set_config_option'({ sessionId, configId, value }) {
    find(sessionId)[OPTIONS[configId as keyof typeof OPTIONS]] = String(value);
    return flags.option ? modeOption(String(value)) : choice();
  },
  'session/set_mode'({ sessionId, modeId }) {
    find(sessionId).mode = String(modeId);
    return {};
  },
  'session/delete'({ sessionId }) {
    if (flags.delete === 'fail') throw { code: -32603, message: 'the disk is read-only' };
    rmSync(join(flags.state ?? '', String(sessionId)));
    return {};
  },
  'session/close'({ sessionId }) {
    conversations.delete(String(sessionId));
    return {};
  },
  async 'session/prompt'({ sessionId, prompt }) {
    const conversation = find(sessionId);
    const [block] = prompt as { text: string }[];
    const [, command = '', rest = ''] = /^(\w+) ?(.*)$/s.exec(block?.text ?? '') ?? [];
    conversation.prompts.push(block?.text ?? '');
    conversation.blocks = prompt;
    conversation.cancelled = Promise.withResolvers();
    store(conversation);
    const run = commands[command];
    if (run === undefined) throw { code: -32603, message: 'Internal error', data: { details: `cannot ${command}` } };
    const stopReason = await run(conversation, rest);
    return { stopReason, ...(command === 'say' && { usage: { inputTokens: 3, outputTokens: 4, totalTokens: 7 } }) };
  },
};

function choice(): object {
  if (flags.option) return modeOption('build');
  const modes = { currentModeId: 'build', availableModes: ['build', 'plan'].map((id) => ({ id, name: id })) };
  if (flags.models !== true) return flags.modes === true ? { modes } : {};
  const models = select('m', 'model', ['vendor/small', 'vendor/large']);
  return { configOptions: [models, select('t', 'thought_level', ['off', 'deep'])] };
}

function remember(id: string, folder: string, prompts: string[], servers: unknown): string {
  conversations.set(id, {
    id,
    folder,
    prompts,
    blocks: undefined,
    servers,
    model: 'vendor/small',
    mode: 'build',
    thinking: 'off',
    cancelled: Promise.withResolvers(),
  });
  return id;
}

function find(id: unknown): Conversation {
  const conversation = conversations.get(String(id));
  if (conversation === undefined) throw { code: -32602, message: `Invalid params: session not found: ${id}` };
  return conversation;
}

function store({ id, folder, prompts }: Conversation): void {
  if (flags.state !== undefined) writeFileSync(join(flags.state, id), JSON.stringify({ folder, prompts }));
}

function takeUp({ sessionId, mcpServers }: Record<string, unknown>): object {
  const file = join(flags.state ?? '', String(sessionId));
  if (flags.state === undefined || !existsSync(file))
    throw { code: -32603, message: 'Internal error: service failure' };
  const { folder, prompts } = JSON.parse(readFileSync(file, 'utf8')) as { folder: string; prompts: string[] };
  remember(String(sessionId), folder, prompts, mcpServers);
  return choice();
}

async function serve({ id, method = '', params = {} }: Message): Promise<void> {
  try {
    const handler = methods[method];
    if (handler === undefined) throw { code: -32601, message: 'Method not found' };
    write({ id, result: flags.blank === method ? null : await handler(params) });
  } catch (error) {
    write({ id, error });
  }
}

if (flags.crash === true) {
  process.stderr.write('cannot start: no licence\n');
  process.exit(3);
}
if (flags.stubborn === true) {
  process.on('SIGTERM', () => undefined);
  setInterval(() => undefined, 1000);
}

const input = createInterface({ input: process.stdin });
input.on('close', () => {
  if (flags.stubborn !== true) process.exit();
});
input.on('line', (line) => {
  const message = JSON.parse(line) as Message;
  if (message.method === 'session/cancel') conversations.get(String(message.params?.sessionId))?.cancelled.resolve();
  else if (message.method !== undefined) void serve(message);
  else questions.get(Number(message.id))?.(message);
});
