import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const STEPS = ['Find where the code is read', 'Accept spaces in a pasted code', 'Run the tests'];
/** The file that the work changes. */
export const FILE = 'src/login/code-step.ts';
export const OLD = `export function readCode(text: string): string {
  if (!/^\\d{6}$/.test(text)) throw new Error('no code');
  return text;
}
`;
const NEW = `export function readCode(text: string): string {
  // People paste codes with a space in the middle.
  const digits = text.replaceAll(/\\s/g, '');
  if (!/^\\d{6}$/.test(digits)) throw new Error('no code');
  return digits;
}
`;
const CHECK = 'biome    \u001b[32m0 problems\u001b[39m in 812 files\ntypes    ok\n';
const TALK = `The check wants exactly six digits, so \`123 456\` is refused. I will:

1. strip white space first
2. keep the error for anything else`;

const text = (value: string) => ({ type: 'text', text: value });
const plan = (done: number) => ({
  sessionUpdate: 'plan',
  entries: STEPS.map((content, index) => ({
    content,
    priority: 'medium',
    status: index < done ? 'completed' : index === done ? 'in_progress' : 'pending',
  })),
});
const call = (toolCallId: string, members: object) => ({
  sessionUpdate: 'tool_call',
  toolCallId,
  status: 'completed',
  ...members,
});

/**
 * A piece of work as a person sees it: thought, plan, reading, a change with its diff, a command, tokens and cost.
 * The file is changed where it is there.
 */
export function workUpdates(folder: string): readonly object[] {
  const path = join(folder, FILE);
  if (existsSync(path)) writeFileSync(path, NEW);
  return [
    { sessionUpdate: 'agent_thought_chunk', content: text('The check may be too strict.') },
    plan(0),
    call('w1', { title: `Read ${FILE}`, kind: 'read', locations: [{ path: FILE }] }),
    { sessionUpdate: 'agent_message_chunk', content: text(TALK) },
    plan(1),
    call('w2', {
      title: `Edit ${FILE}`,
      kind: 'edit',
      content: [{ type: 'diff', path, oldText: OLD, newText: NEW }],
    }),
    plan(2),
    call('w3', { title: 'npm run check', kind: 'execute', content: [{ type: 'content', content: text(CHECK) }] }),
    { sessionUpdate: 'usage_update', used: 41_208, size: 200_000, cost: { amount: 0.18, currency: 'USD' } },
  ];
}

/** Twelve files that are read one after the other. */
export const readUpdates = (): readonly object[] =>
  Array.from({ length: 12 }, (_, index) => call(`r${index}`, { title: `Read file-${index + 1}.ts`, kind: 'read' }));

/** The answers that the agent offers when it asks for permission; one of them is of no kind of the protocol. */
export const ASK_OPTIONS = [
  { optionId: 'always', name: 'Always', kind: 'allow_always' },
  { optionId: 'odd', name: 'Perhaps', kind: 'allow_on_sundays' },
  { optionId: 'once', name: 'Once', kind: 'allow_once' },
  { optionId: 'never', name: 'No', kind: 'reject_once' },
];

/** A form with a field of each type that people fill in most. */
export const FORM_SCHEMA = {
  type: 'object',
  properties: {
    place: { type: 'string', title: 'Where', oneOf: ['staging', 'live'].map((one) => ({ const: one, title: one })) },
    count: { type: 'integer', minimum: 1, maximum: 9, default: 2 },
    sure: { type: 'boolean' },
    note: { type: 'string', maxLength: 20 },
  },
  required: ['place', 'sure'],
};

/** One update of each kind, around a call that is reported twice. */
export const kindUpdates: readonly object[] = [
  { sessionUpdate: 'user_message_chunk', content: text('not shown') },
  { sessionUpdate: 'agent_thought_chunk', content: text('hm') },
  {
    sessionUpdate: 'plan',
    entries: [
      { content: 'look', status: 'completed' },
      { content: 'do', status: 'pending' },
    ],
  },
  { sessionUpdate: 'available_commands_update', availableCommands: [] },
  { sessionUpdate: 'notice', severity: 'warning', title: 'slow', description: 'very' },
  { sessionUpdate: 'agent_message_chunk', content: text('before ') },
  {
    sessionUpdate: 'tool_call',
    toolCallId: 't',
    title: 'read',
    kind: 'read',
    status: 'pending',
    rawInput: { path: 'a' },
    locations: [{ path: '/a', line: 3 }],
  },
  {
    sessionUpdate: 'tool_call_update',
    toolCallId: 't',
    status: 'completed',
    content: [{ type: 'content', content: text('inside') }],
  },
  { sessionUpdate: 'agent_message_chunk', content: text('after') },
  { sessionUpdate: 'usage_update', used: 55, size: 100 },
];

/** One update of each kind that is shown, with every member that the protocol has for it. */
export function everyUpdate(folder: string): readonly object[] {
  const path = join(folder, 'a');
  const edit = { toolCallId: 'e', title: 'Edit a', kind: 'edit', rawInput: { path }, locations: [{ path, line: 2 }] };
  return [
    { sessionUpdate: 'agent_thought_chunk', content: text('hm') },
    {
      sessionUpdate: 'plan',
      entries: [
        { content: 'look', status: 'completed', priority: 'high' },
        { content: 'change', status: 'in_progress', priority: 'low' },
      ],
    },
    { sessionUpdate: 'tool_call', ...edit, status: 'pending' },
    {
      sessionUpdate: 'tool_call_update',
      toolCallId: 'e',
      status: 'completed',
      rawOutput: { written: 4 },
      content: [{ type: 'diff', path, oldText: 'a\n', newText: 'b\nc\n' }],
    },
    {
      sessionUpdate: 'available_commands_update',
      availableCommands: [
        { name: 'test', description: 'runs the tests', input: { hint: 'which' } },
        { name: 'clear', description: 'forgets' },
      ],
    },
    { sessionUpdate: 'current_mode_update', currentModeId: 'build' },
    { sessionUpdate: 'usage_update', used: 7, size: 100, cost: { amount: 0.5, currency: 'USD' } },
    { sessionUpdate: 'agent_message_chunk', content: text('written') },
  ];
}

/** `FIRST EVERY END`: begins a call at that moment and again every so many ms; each is named after its moment. */
export async function* timedReports(given: string): AsyncGenerator<object> {
  const [first = 0, every = 0, end = 0] = given.split(' ').map(Number);
  for (let moment = first; moment < end; moment += every) {
    await pause(Math.max(0, moment - Date.now()));
    yield { sessionUpdate: 'tool_call', toolCallId: `call-${moment}`, title: String(Date.now()) };
  }
  // What a turn does is forgotten at its end: watchers are told before.
  await pause(Math.max(0, end - Date.now()) + 1000);
}

/**
 * How people log in to the scripted agent: `missing`: nobody has, and one call does it; `refused`: the call fails; `several`:
 * there are two ways; `terminal`: only in a terminal, where the client has one; anything else: somebody has.
 */
export function createScriptedLogin(state: string | undefined) {
  let isDone = !['missing', 'unoffered', 'refused', 'several', 'terminal'].includes(state ?? '');
  const login = { id: 'login', name: 'Log in', description: 'run agent login' };
  return {
    offered(clientCapabilities: unknown): object[] {
      if (state === 'several') return [login, { id: 'key', name: 'Key' }];
      if (state !== 'terminal') return [login];
      const { auth } = clientCapabilities as { auth?: { terminal?: boolean } };
      const terminal = { ...login, type: 'terminal', args: ['log in'], env: { MODE: "it's" } };
      return auth?.terminal === true ? [terminal] : [];
    },
    authenticate({ methodId }: Readonly<Record<string, unknown>>): object {
      if (state === 'refused' || state === 'terminal') throw { code: -32603, message: `no ${methodId}` };
      isDone = true;
      return {};
    },
    /** Throws while nobody has logged in. */
    require(): void {
      if (!isDone) throw { code: -32000, message: 'Authentication required' };
    },
  };
}

/** What the scripted agent was started with: its own file says what each does. */
export function readFlags() {
  return parseArgs({
    options: {
      state: { type: 'string' },
      load: { type: 'boolean' },
      name: { type: 'string' },
      version: { type: 'string' },
      hang: { type: 'string' },
      blank: { type: 'string' },
      stubborn: { type: 'boolean' },
      crash: { type: 'boolean' },
      models: { type: 'boolean' },
      modes: { type: 'boolean' },
      option: { type: 'boolean' },
      fork: { type: 'boolean' },
      mcp: { type: 'string' },
      image: { type: 'boolean' },
      context: { type: 'boolean' },
      auth: { type: 'string' },
      delete: { type: 'string' },
    },
  }).values;
}

/** Sends `METHOD PARAMS` to the first MCP server with an address, as clients do, and returns the result or the status. */
export async function askServer(servers: unknown, request: string): Promise<string> {
  const [, method = '', params = ''] = /^(\S+) ?(.*)$/s.exec(request) ?? [];
  type Given = {
    readonly url?: string;
    readonly headers: readonly { readonly name: string; readonly value: string }[];
  };
  const server = (servers as readonly Given[]).find(({ url }) => url !== undefined);
  if (server?.url === undefined) return 'no server';
  const response = await fetch(server.url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...Object.fromEntries(server.headers.map(({ name, value }) => [name, value])),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: JSON.parse(params || '{}') }),
  });
  const text = await response.text();
  if (!response.ok) return `status ${response.status}`;
  const data = text.split('\n').find((line) => line.startsWith('data: {'));
  return JSON.stringify(JSON.parse(data?.slice('data: '.length) ?? text).result);
}

/** By the id of an option of a session, what it chooses. */
export const OPTIONS = { t: 'thinking', m: 'model', o: 'mode' } as const;

/** An option of a session, with the first value unless another one is given. */
export function select(id: string, category: string, values: readonly string[], currentValue = values[0]) {
  const options = values.map((value) => ({ value, name: value }));
  return { id, name: id, category, type: 'select', currentValue, options };
}

/** The mode as an option of the session. */
export function modeOption(currentValue: string) {
  return { configOptions: [select('o', 'mode', ['build', 'plan'], currentValue)] };
}
