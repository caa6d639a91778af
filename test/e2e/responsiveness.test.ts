import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { Agent, createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { CHATS, MESSAGES, many, RESPONSES } from '../kit/worst-requests.ts';

const MEBIBYTE = 1024 * 1024;
const MAX_BYTES = 8 * MEBIBYTE - 1024;
/** Parts of a body that is accepted: with most shapes close to the limit of 50,000 members. */
const PARTS = 9_000;
const MAX_BLOCKED_MS = 100;
/** A machine on which parsing alone takes longer than 100 ms may take this multiple of it. */
const MAX_OF_PARSING = 1.5;
const TRIES = 6;
/** What one parsing of `members(49_000)` takes on the machine that the 100 ms are meant for. A slower one may take longer. */
const YARDSTICK_MS = 36;
const LIMIT_MS = 110_000;

interface Row {
  readonly name: string;
  readonly path: string;
  readonly body: () => string;
  /** Of a body that is refused before it is parsed, so that the time of parsing does not count. */
  readonly status?: number;
}

const members = (size: number) => `{${many(size, (at) => `"k${at}":0`).join(',')}}`;
const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
const fill = (piece: string) => piece.repeat(Math.floor(MAX_BYTES / piece.length));

/** JSON of the worst shapes. Those that are slow anywhere (`everywhere`) are sent to every route, the others to one. */
const VALUES: Readonly<
  Record<string, { readonly text: () => string; readonly tooMany?: true; readonly everywhere?: true }>
> = {
  '700,000 members': { text: () => members(700_000), tooMany: true },
  '49,000 members': { text: () => members(49_000), everywhere: true },
  'objects that each have a name of their own': {
    text: () => `[${many(49_000, (at) => `{"k${at}":0}`).join(',')}]`,
    everywhere: true,
  },
  'four million numbers': { text: () => `[${fill('0,')}0]`, tooMany: true },
  '190,000 numbers': { text: () => `[${'0,'.repeat(190_000)}0]` },
  '95,000 empty objects': { text: () => `[${'{},'.repeat(95_000)}0]` },
  'as deep as allowed, many times': { text: () => `[${many(1_500, () => nested(110)).join(',')}]` },
  'too deep': { text: () => nested(MAX_BYTES / 2) },
  'a long text': { text: () => `"${fill('a')}"` },
  'a text of quotes': { text: () => `"${fill('\\"')}"`, everywhere: true },
  'a text of backslashes': { text: () => `"${fill('\\\\')}"`, everywhere: true },
  'a text of one letter of a keyword': { text: () => `"${fill('n')}"`, everywhere: true },
  'a text of escapes': { text: () => `"${fill('\\u00e9')}"` },
  'a text of brackets and commas': { text: () => `"${fill('{[,:')}"` },
  'white space': { text: () => `0${fill(' ')}` },
};

const ROUTES: Readonly<Record<string, (value: string) => string>> = {
  '/v1/chat/completions': (value) =>
    `{"model":"lab-openai/small","messages":[{"role":"user","content":"x"}],"metadata":{"x":${value}}}`,
  '/v1/messages': (value) =>
    `{"model":"lab-google/gemini-2.0-flash","max_tokens":9,"messages":[{"role":"user","content":"x"}],"metadata":{"x":${value}}}`,
  '/v1/responses': (value) =>
    `{"model":"lab-bedrock/anthropic.claude-sonnet-4-5","input":"x","metadata":{"x":${value}}}`,
  '/v1/completions': (value) => `{"model":"lab-openai/small","prompt":"x","metadata":${value}}`,
  '/v1/embeddings': (value) => `{"model":"lab-openai/small","input":${value}}`,
  '/acp/rpc': (value) => `{"jsonrpc":"2.0","id":1,"method":"session.start","params":${value}}`,
  '/api/auth/login': (value) => `{"email":"a@b.example","password":${value}}`,
};

const CHAT_MODELS = ['lab-google/gemini-2.0-flash', 'lab-bedrock/anthropic.claude-sonnet-4-5'];
/** The shapes that take encoders and decoders longest. */
const SLOW_SHAPES = /^(?:many (?:tools|calls|results)|a strict answer|a schema with|fields|tools whose)/;
const slow = <Make>(shapes: Readonly<Record<string, Make>>) =>
  Object.entries(shapes).filter(([name]) => SLOW_SHAPES.test(name));

const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params });
const BRIDGE_CALLS: Readonly<Record<string, () => unknown>> = {
  'a batch of as many calls as allowed': () =>
    many(100, (id) => ({ ...rpc('nothing', { x: many(400, () => 0) }), id })),
  'a batch of too many calls': () => many(45_000, () => 0),
  'steps with long templates': () =>
    rpc('session.start', {
      sessionId: 'steps',
      taskPrompt: 'x',
      multiAgent: true,
      workingDirectory: '/nowhere',
      routing: {
        orchestrationMode: 'sequence',
        steps: many(64, () => ({ providerId: 'builtin', prompt: '{{input}}{{'.repeat(10_000) })),
      },
    }),
  'a long task and many skills': () =>
    rpc('session.start', {
      sessionId: 'skills',
      // Smaller than the others: the fingerprint of a task of 6 MiB alone takes 60 ms (stringify and SHA-256).
      taskPrompt: 'a1'.repeat(2 * MEBIBYTE),
      workingDirectory: '/nowhere',
      routing: { availableSkills: many(4096, (at) => `a${at}`) },
    }),
};

const ROWS: readonly Row[] = [
  ...Object.entries(ROUTES).flatMap(([path, wrap], route) =>
    Object.entries(VALUES)
      .filter(([, { everywhere }]) => everywhere || route === 0)
      .map(
        ([name, { text, tooMany }]): Row => ({ name, path, body: () => wrap(text()), ...(tooMany && { status: 400 }) }),
      ),
  ),
  ...CHAT_MODELS.flatMap((model) =>
    slow(CHATS).map(
      ([name, make]): Row => ({
        name: `${model}: ${name}`,
        path: '/v1/chat/completions',
        body: () => JSON.stringify({ ...make(PARTS), model }),
      }),
    ),
  ),
  ...slow(MESSAGES).map(
    ([name, make]): Row => ({
      name,
      path: '/v1/messages',
      body: () => JSON.stringify({ ...make(PARTS), model: 'lab-google/gemini-2.0-flash' }),
    }),
  ),
  ...slow(RESPONSES).map(
    ([name, make]): Row => ({
      name,
      path: '/v1/responses',
      body: () => JSON.stringify({ ...make(PARTS), model: 'lab-bedrock/anthropic.claude-sonnet-4-5' }),
    }),
  ),
  ...Object.entries(BRIDGE_CALLS).map(
    ([name, make]): Row => ({ name, path: '/acp/rpc', body: () => JSON.stringify(make()) }),
  ),
];

interface Answer {
  readonly status: number;
  readonly text: string;
}

function send(url: string, agent: Agent, body?: Buffer): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = body && { 'content-type': 'application/json', 'content-length': body.length };
    const request = httpRequest(url, { agent, method: body ? 'POST' : 'GET', ...(headers && { headers }) });
    request.on('error', reject).on('response', async (response) => {
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
      resolve({ status: response.statusCode ?? 0, text });
    });
    request.end(body);
  });
}

/** Processor time of the program's main thread in milliseconds: other processes do not count. Where there is no /proc, the clock's. */
function createWatch(pid: number): () => number {
  const file = `/proc/${pid}/task/${pid}/schedstat`;
  const computed = () => Number(readFileSync(file, 'utf8').split(' ')[0]) / 1e6;
  try {
    computed();
    return computed;
  } catch {
    return () => performance.now();
  }
}

/** Posts a body, and returns the longest time that the program computed while a `/healthz` of another connection waited. */
async function mostBlocked({ url, pid }: RunningProgram, agent: Agent, path: string, body: Buffer) {
  const watch = createWatch(pid);
  const poller = new Agent({ keepAlive: true, maxSockets: 1 });
  await send(`${url}/healthz`, poller);
  let answer: Answer | undefined;
  const posted = send(`${url}${path}`, agent, body).then(
    (found) => {
      answer = found;
    },
    // The program closes the connection of a body that it does not read.
    () => {
      answer = { status: 413, text: '' };
    },
  );
  let most = 0;
  while (answer === undefined) {
    const before = watch();
    assert.equal((await send(`${url}/healthz`, poller)).status, 200);
    most = Math.max(most, watch() - before);
  }
  await posted;
  poller.destroy();
  return { most, answer };
}

/** Processor time of a bare `JSON.parse`: the longer of two, because the program parses each body only once. */
function timeOfParsing(body: Buffer): number {
  let most = 0;
  for (let run = 0; run < 2; run += 1) {
    const before = process.cpuUsage();
    try {
      JSON.parse(body.toString('utf8'));
    } catch {
      // Some bodies of the table are not JSON.
    }
    const { user, system } = process.cpuUsage(before);
    most = Math.max(most, (user + system) / 1000);
  }
  return most;
}

/** How much slower the machine is right now than the one of `YARDSTICK_MS`; a faster one is no reason for less time. */
function slowness(yardstick: Buffer): number {
  return Math.max(1, timeOfParsing(yardstick) / YARDSTICK_MS);
}

test('DC-1: `/healthz` answers within 100 ms while the worst bodies of 8 MiB arrive', {
  timeout: LIMIT_MS,
}, async (t) => {
  const upstream = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(400).end('{"error":{"message":"seen"}}'));
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.after(() => {
    upstream.close();
    upstream.closeAllConnections();
  });
  const base = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const dialects = ['openai', 'google', 'bedrock'];
  const apis = Object.fromEntries(
    dialects.map((dialect) => [`lab-${dialect}`, { dialect, base_url: base, api_key: `key-of-${dialect}` }]),
  );
  await writeFile(config, JSON.stringify({ completions: { apis } }), { mode: 0o600 });
  const program = await startProgram(t, { args: ['--config', config] });
  const agent = new Agent({ keepAlive: false });
  const yardstick = Buffer.from(members(49_000));
  const blocked: string[] = [];
  const accepted: string[] = [];
  for (const { name, path, body, status } of ROWS) {
    const bytes = Buffer.from(body());
    assert.ok(bytes.length <= 8 * MEBIBYTE + 1024 || status !== undefined, `${path}: ${name}`);
    const parsing = timeOfParsing(bytes);
    const allowed = status === undefined ? Math.max(MAX_BLOCKED_MS, parsing * MAX_OF_PARSING) : MAX_BLOCKED_MS;
    let least = Number.POSITIVE_INFINITY;
    for (let run = 0; run < TRIES && least > allowed; run += 1) {
      const { most, answer } = await mostBlocked(program, agent, path, bytes);
      least = Math.min(least, most > allowed ? most / slowness(yardstick) : most);
      if (status !== undefined && answer.status !== status) accepted.push(`${path}: ${name}: ${answer.status}`);
    }
    if (least > allowed)
      blocked.push(`${path}: ${name}: ${least.toFixed(0)} ms (parsing alone: ${parsing.toFixed(0)} ms)`);
  }
  agent.destroy();
  assert.deepEqual(blocked, []);
  assert.deepEqual(accepted, []);
});
