import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { chunkOf } from '../kit/scripted-upstream.ts';
import { until } from '../kit/until.ts';

const STREAMS = 60;
const MAX_BYTES_PER_STREAM = 256 * 1024;
const LIMIT_MS = 110_000;
const QUIET_MS = 1000;
const REPORT_MEMORY = fileURLToPath(new URL('report-memory.cjs', import.meta.url));
const WORDS = 'a stream that never ends '.repeat(6);
const HELLO = { messages: [{ role: 'user', content: 'hi' }], stream: true, max_tokens: 10 };

/** What each dialect sends: the start of a stream, and the event that then repeats without end. */
const DIALECTS = {
  openai: { begin: '', event: `data: ${JSON.stringify(chunkOf({ content: WORDS }))}\n\n` },
  anthropic: {
    begin: [
      { type: 'message_start', message: { id: 'm', model: 'm', usage: { input_tokens: 1, output_tokens: 1 } } },
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ]
      .map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
      .join(''),
    event: `event: content_block_delta\ndata: ${JSON.stringify({
      type: 'content_block_delta',
      index: 0,
      delta: { type: 'text_delta', text: WORDS },
    })}\n\n`,
  },
} as const;

interface EndlessUpstream {
  readonly url: string;
  /** How many bytes all streams have taken. */
  sent(): number;
}

/** Sends every stream as fast as the program reads it. */
async function startEndlessUpstream(t: TestContext, dialect: keyof typeof DIALECTS): Promise<EndlessUpstream> {
  const { begin, event } = DIALECTS[dialect];
  const block = Buffer.from(event.repeat(50));
  let sent = 0;
  const send = (response: ServerResponse) => {
    while (!response.destroyed && response.write(block)) sent += block.length;
  };
  const server: Server = createServer((request, response) => {
    request.resume();
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.on('drain', () => send(response));
    response.on('error', () => undefined);
    response.write(begin);
    send(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, sent: () => sent };
}

/** Opens a stream, reads its start, and then nothing more. */
async function stall(t: TestContext, port: number, model: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  t.after(() => socket.destroy());
  socket.on('error', () => undefined);
  const body = JSON.stringify({ ...HELLO, model });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\ncontent-type: application/json\r\n`;
  socket.write(`${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  const [first] = (await once(socket, 'data')) as [Buffer];
  socket.pause();
  assert.match(first.toString('latin1'), /^HTTP\/1\.1 200 /);
  return socket;
}

/** Starts the program with one API, `lab`, and lets it report its memory. */
async function startWithApi(t: TestContext, dialect: string, url: string) {
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const memoryFile = join(folder, 'memory');
  const apis = { lab: { dialect, base_url: url, api_key: 'k-1234567890' } };
  await writeFile(config, JSON.stringify({ completions: { apis } }), { mode: 0o600 });
  const program = await startProgram(t, {
    args: ['--config', config],
    environment: { NODE_OPTIONS: `--require ${REPORT_MEMORY}`, MEMORY_REPORT: memoryFile },
  });
  return { program, held: () => heldBytes(program, memoryFile) };
}

/** Bytes that the program still holds after it has collected its garbage: what a client costs, however busy the program was. */
async function heldBytes({ child }: RunningProgram, file: string): Promise<number> {
  await rm(file, { force: true });
  child.kill('SIGUSR2');
  let text = '';
  await until(
    'the program to report its memory',
    async () => {
      text = await readFile(file, 'utf8').catch(() => '');
      return text !== '';
    },
    LIMIT_MS,
  );
  return Number(text);
}

for (const dialect of ['openai', 'anthropic'] as const) {
  test(`DC-27: a stalled client of a stream (${dialect}) holds less than 256 KB`, { timeout: LIMIT_MS }, async (t) => {
    const upstream = await startEndlessUpstream(t, dialect);
    const { program, held } = await startWithApi(t, dialect, upstream.url);

    /** What is held when no stream takes anything any more. A machine that stood still looks the same, so what was sent is compared again afterwards. */
    const heldInQuiet = async () => {
      for (;;) {
        const before = upstream.sent();
        await delay(QUIET_MS);
        if (upstream.sent() !== before) continue;
        const bytes = await held();
        await delay(QUIET_MS);
        if (upstream.sent() === before) return bytes;
      }
    };
    const stallMany = (count: number) =>
      Promise.all(Array.from({ length: count }, () => stall(t, program.port, 'lab/m')));
    // Code that the first streams load and compile does not count.
    await stallMany(10);
    const before = await heldInQuiet();
    await stallMany(STREAMS);
    const perStream = ((await heldInQuiet()) - before) / STREAMS;
    t.diagnostic(`${Math.round(perStream / 1024)} KB for each stream`);
    assert.ok(perStream < MAX_BYTES_PER_STREAM, `${Math.round(perStream / 1024)} KB for each stream`);
  });
}

const MEBIBYTE = 1024 * 1024;
const BODY_BYTES = 60 * MEBIBYTE;
/** The bytes as they came, one copy (the parsed request), and a tenth for everything else. */
const MAX_HELD_BYTES = 2.1 * BODY_BYTES;
const COMPLETION = {
  id: 'c',
  object: 'chat.completion',
  created: 1,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
};

test('DC-22: at most one copy is made of a relayed body of 60 MiB', { timeout: LIMIT_MS }, async (t) => {
  const arrived: { readonly length: number; readonly announced: number; answer(): void }[] = [];
  const server = createServer((request, response) => {
    let length = 0;
    request.on('data', (chunk: Buffer) => {
      length += chunk.length;
    });
    request.on('end', () => {
      const announced = Number(request.headers['content-length']);
      arrived.push({ length, announced, answer: () => response.end(JSON.stringify(COMPLETION)) });
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { program, held } = await startWithApi(
    t,
    'openai',
    `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  );
  for (const { path, bodyOf } of [
    { path: '/v1/chat/completions', bodyOf: (text: string) => ({ messages: [{ role: 'user', content: text }] }) },
    { path: '/v1/completions', bodyOf: (text: string) => ({ prompt: text }) },
  ]) {
    const post = (size: number) =>
      fetch(`${program.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...bodyOf('x'.repeat(size)), model: 'lab/m' }),
      });
    const next = async () => {
      await until('the body to arrive at the model API', () => arrived.length > 0, LIMIT_MS);
      const [first] = arrived.splice(0);
      assert.ok(first !== undefined && first.length === first.announced);
      return first;
    };
    const small = post(10);
    (await next()).answer();
    assert.equal((await small).status, 200);
    const before = await held();
    const large = post(BODY_BYTES);
    const { length, answer } = await next();
    assert.ok(length > BODY_BYTES);
    const growth = (await held()) - before;
    t.diagnostic(`${path}: ${Math.round(growth / MEBIBYTE)} MiB held, peak ${await peakMebibytes(program.pid)} MiB`);
    assert.ok(growth < MAX_HELD_BYTES, `${path}: ${Math.round(growth / MEBIBYTE)} MiB`);
    answer();
    assert.equal((await large).status, 200);
  }
});

test('the memory that only the start needed is given back', { timeout: LIMIT_MS }, async (t) => {
  const report = join(await temporaryFolder(t), 'collection');
  const program = await startProgram(t, {
    environment: { NODE_OPTIONS: `--require ${REPORT_MEMORY}`, COLLECTION_REPORT: report },
  });
  let text = '';
  await until(
    'the program to collect what the start left',
    async () => {
      text = await readFile(report, 'utf8').catch(() => '');
      return text.endsWith('\n');
    },
    LIMIT_MS,
  );
  const [before = 0, after = 0] = text.split(' ').map(Number);
  t.diagnostic(`young generation ${before} bytes before, ${after} after`);
  assert.ok(after < before / 2, text);
  assert.equal((await fetch(`${program.url}/readyz`)).status, 200);
});

/** The most memory that a process has had so far. */
async function peakMebibytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Math.round(Number(/^VmHWM:\s{1,20}(\d{1,15}) kB$/m.exec(status)?.[1]) / 1024);
}
