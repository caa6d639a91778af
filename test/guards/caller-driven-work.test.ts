import assert from 'node:assert/strict';
import { test } from 'node:test';
import { normalizeEmail } from '../../src/accounts/registration/identity.ts';
import { fillTemplate } from '../../src/bridge/multi-agent/multi-agent-plan.ts';
import { matchSkills } from '../../src/bridge/routing/match-skills.ts';
import { matchesToolPattern } from '../../src/bridge/tools/invoke-tool.ts';
import { ChatRequest } from '../../src/completions/contract/chat.ts';
import { MessagesRequest } from '../../src/completions/contract/messages.ts';
import { ResponsesRequest } from '../../src/completions/contract/responses.ts';
import { type Dialect, MAX_STEPS } from '../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../src/completions/dialects/dialect-table.ts';
import { googleSchema } from '../../src/completions/dialects/google/google-schema.ts';
import { createAnswerReader } from '../../src/completions/ingress/answer-blocks.ts';
import { decodeMessagesRequest } from '../../src/completions/ingress/messages/messages-request.ts';
import { decodeResponsesRequest } from '../../src/completions/ingress/responses/responses-request.ts';
import { createCustomToolInput } from '../../src/completions/ingress/responses/responses-tools.ts';
import { matchesPattern } from '../../src/completions/keys/issued-key.ts';
import { createByteReader } from '../../src/completions/pipeline/byte-reader.ts';
import { estimatePromptTokens } from '../../src/completions/pipeline/estimate-tokens.ts';
import { createEventSplitter } from '../../src/completions/pipeline/event-splitter.ts';
import { usesLegacyFunctions, withTools } from '../../src/completions/pipeline/legacy-functions.ts';
import { spliceModel } from '../../src/completions/pipeline/splice-body.ts';
import { createSseFraming } from '../../src/completions/pipeline/sse-framing.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';
import { createSchemaCheck } from '../../src/platform/http/request-body.ts';
import { forwardedAddress } from '../../src/platform/http/request-state.ts';
import { parseJson } from '../../src/platform/json/parse-json.ts';
import { createFrameReader } from '../../src/platform/json-rpc/message-framing.ts';
import { hideCredentials } from '../../src/platform/log/hidden-secrets.ts';
import { ask, CHATS, MESSAGES, many, RESPONSES } from './worst-requests.ts';

/**
 * Work that a caller drives. Each row makes the worst input of a size that it knows, and does the work on it. Whoever
 * adds a codec, a template, a matcher, a walk over a schema or a parser that reads what a caller sends adds a row.
 */
interface Row {
  readonly name: string;
  /** How many parts: as many as a call may have, or as take a few milliseconds. */
  readonly size: number;
  readonly work: (size: number) => () => unknown;
}

const check = {
  chat: createSchemaCheck(ChatRequest, 'body'),
  messages: createSchemaCheck(MessagesRequest, 'body'),
  responses: createSchemaCheck(ResponsesRequest, 'body'),
};

const PARTS = 6_000;

async function encoderRows(): Promise<readonly Row[]> {
  const models: readonly (readonly [Dialect, string])[] = [
    [await loadDialect('openai'), 'small'],
    [await loadDialect('anthropic'), 'claude-sonnet-4-5'],
    [await loadDialect('bedrock'), 'anthropic.claude-sonnet-4-5'],
    [await loadDialect('google'), 'gemini-3-pro-preview'],
    [await loadDialect('google-vertex'), 'gemini-2.0-flash'],
    [await loadDialect('cohere'), 'command-a'],
  ];
  return models.flatMap(([dialect, model]) =>
    Object.entries(CHATS).map(
      ([name, make]): Row => ({
        name: `${dialect.name} encodes ${name}`,
        size: PARTS,
        work: (size) => {
          const request = make(size);
          const context = { model, stream: true, id: 'c', created: 1 };
          return () => JSON.stringify(dialect.encodeRequest(request, context).body);
        },
      }),
    ),
  );
}

const event = (delta: object) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;

const ROWS: readonly Row[] = [
  ...Object.entries(CHATS).flatMap(([name, make]): Row[] => [
    {
      name: `the size of ${name} is estimated`,
      size: PARTS,
      work: (size) => withInput(make(size), estimatePromptTokens),
    },
    { name: `${name} are checked against the schema`, size: PARTS, work: (size) => withInput(make(size), check.chat) },
  ]),
  ...Object.entries(MESSAGES).flatMap(([name, make]): Row[] => [
    {
      name: `messages: ${name} are decoded`,
      size: PARTS,
      work: (size) => withInput(make(size), decodeMessagesRequest),
    },
    { name: `messages: ${name} are checked`, size: PARTS, work: (size) => withInput(make(size), check.messages) },
  ]),
  ...Object.entries(RESPONSES).flatMap(([name, make]): Row[] => [
    {
      name: `responses: ${name} are decoded`,
      size: PARTS,
      work: (size) => withInput(make(size), decodeResponsesRequest),
    },
    { name: `responses: ${name} are checked`, size: PARTS, work: (size) => withInput(make(size), check.responses) },
  ]),
  {
    name: 'legacy functions become tools',
    size: PARTS,
    work: (size) => {
      const functions = many(size, (at) => ({ name: `f${at}` }));
      const messages = many(size, (at) => ({
        role: at % 2 ? 'function' : 'assistant',
        name: 'f',
        function_call: { name: 'f', arguments: '{}' },
      }));
      return withInput(ask({ functions, messages }), (request) => usesLegacyFunctions(request) && withTools(request));
    },
  },
  {
    name: 'the input of a custom tool comes letter by letter',
    size: 40_000,
    work: (size) => () => {
      const input = createCustomToolInput();
      input.read('{"input":"');
      for (let at = 0; at < size; at += 1) input.read('a');
      return input.whole();
    },
  },
  {
    name: 'the input of a custom tool has no beginning',
    size: 40_000,
    work: (size) => () => {
      const input = createCustomToolInput();
      for (let at = 0; at < size; at += 1) input.read(' ');
      return input.whole();
    },
  },
  {
    name: 'an answer of many blocks is read',
    size: 12_000,
    work: (size) => () => {
      const reader = createAnswerReader('c');
      for (let at = 0; at < size; at += 1) {
        const delta = at % 2 ? { content: 'x' } : { reasoning_content: 'y' };
        reader.read({
          id: 'c',
          object: 'chat.completion.chunk',
          created: 1,
          model: 'm',
          choices: [{ index: 0, delta, finish_reason: null }],
        });
      }
      return reader.finish();
    },
  },
  {
    name: 'an event comes byte by byte',
    size: 60_000,
    work: (size) => {
      const bytes = Buffer.from(`data: ${'x'.repeat(size)}\n\n`);
      return () => {
        const splitter = createEventSplitter();
        for (let at = 0; at < bytes.length; at += 1) splitter.feed(bytes.subarray(at, at + 1));
      };
    },
  },
  {
    name: 'many small events are read as events',
    size: 8_000,
    work: (size) => {
      const bytes = Buffer.from(event({ content: 'x' }).repeat(size));
      return () => createSseFraming().feed(bytes);
    },
  },
  {
    name: 'many small events pass as bytes, each with a marker',
    size: 3_000,
    work: (size) => {
      const bytes = Buffer.from(event({ reasoning: 'x' }).repeat(size));
      return () => {
        const reader = createByteReader({
          choices: 1,
          usageAsked: true,
          promptTokens: 1,
          chunkObject: 'chat.completion.chunk',
        });
        reader.feed(bytes);
      };
    },
  },
  {
    name: 'the model is replaced in the bytes of a request',
    size: 500_000,
    work: (size) => {
      const bytes = Buffer.from(
        `{"messages":[{"role":"user","content":"${'\\"model'.repeat(size / 8)}"}],"model":"a"}`,
      );
      return () => spliceModel(bytes, 'a', 'b');
    },
  },
  { name: 'deep JSON is refused', size: 500_000, work: (size) => withInput('['.repeat(size), parseQuietly) },
  {
    name: 'JSON of backslashes is parsed',
    size: 500_000,
    work: (size) => withInput(`["${'\\"'.repeat(size / 2)}"${',[]'.repeat(200)}]`, parseQuietly),
  },
  {
    name: 'JSON of many members is parsed',
    size: 30_000,
    work: (size) => withInput(`{${many(size, (at) => `"m${at}":0`).join(',')}}`, parseQuietly),
  },
  {
    name: 'what is wrong with a request is described',
    size: 1000,
    work: (size) => withInput(ask({ messages: many(size, () => ({ role: 1 })) }), quietly(check.chat)),
  },
  {
    name: 'references of a schema are written out',
    size: 3_000,
    work: (size) =>
      withInput(
        {
          type: 'object',
          allOf: many(size, (at) => ({ properties: { [`m${at}`]: { type: 'string' } }, required: [`m${at}`] })),
        },
        (schema) => googleSchema(schema),
      ),
  },
  {
    name: 'a pattern of models',
    size: 400_000,
    work: (size) => () => matchesPattern(`${'a*'.repeat(1000)}b`, 'a'.repeat(size)),
  },
  {
    name: 'a pattern of tools',
    size: 400_000,
    work: (size) => () => matchesToolPattern(`${'a*'.repeat(1000)}b`, 'a'.repeat(size)),
  },
  {
    name: 'a template is filled',
    size: 1_000_000,
    work: (size) => () => fillTemplate('{{'.repeat(size / 2), new Map([['a', 'b']])),
  },
  {
    name: 'skills are looked for in a prompt',
    size: 500_000,
    work: (size) => () =>
      matchSkills({ availableSkills: many(4096, (at) => `a${at}`) } as never, 'a1'.repeat(size / 2)),
  },
  {
    name: 'messages come as lines in small pieces',
    size: 60_000,
    work: (size) => {
      const bytes = Buffer.from('x'.repeat(size));
      return () => {
        const reader = createFrameReader(8 * 1024 * 1024, () => undefined);
        for (let at = 0; at < bytes.length; at += 1) reader.push(bytes.subarray(at, at + 1));
        reader.end();
      };
    },
  },
  {
    name: 'an e-mail address is read',
    size: 200_000,
    work: (size) => () => normalizeEmail(`${'a.'.repeat(size / 2)}@b.c`),
  },
  {
    name: 'addresses of proxies are read',
    size: 20_000,
    work: (size) => () => forwardedAddress('10.0.0.1', '10.0.0.2,'.repeat(size), () => true),
  },
  {
    name: 'credentials are taken out of a text',
    size: 100_000,
    work: (size) => () => hideCredentials('token="a '.repeat(size / 9)),
  },
];

function withInput<T>(input: T, work: (input: T) => unknown): () => unknown {
  return () => work(input);
}

function parseQuietly(text: string): unknown {
  return quietly(parseJson)(text);
}

function quietly<T>(work: (input: T) => unknown): (input: T) => unknown {
  return (input) => {
    try {
      return work(input);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return error.code;
    }
  };
}

/** Processor time in milliseconds, the least of a few runs: other processes and collections of garbage only add to it. */
function leastTime(work: () => unknown, runs = 3): number {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < runs; run += 1) {
    const before = process.cpuUsage();
    quietly(() => work())(undefined);
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / 1000);
  }
  return least;
}

/** Twice the input may take twice as long, and a little more for larger maps and for noise. */
const MAX_GROWTH = 2.6;
/** Below this, the clock of the processor and the compiler decide. */
const TOO_SHORT_MS = 12;
const TRIES = 4;

function growthOf({ size, work }: Row): { readonly ok: boolean; readonly shown: string } {
  let shown = '';
  const small = work(size);
  const large = work(size * 2);
  leastTime(small, 1);
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const once = leastTime(small);
    const twice = leastTime(large);
    shown = `${once.toFixed(1)} ms, then ${twice.toFixed(1)} ms`;
    if (twice < TOO_SHORT_MS || twice <= once * MAX_GROWTH) return { ok: true, shown };
  }
  return { ok: false, shown };
}

test('DC-2: work that a caller drives takes twice as long for twice the input, and no more', async () => {
  const slow: string[] = [];
  for (const row of [...ROWS, ...(await encoderRows())]) {
    const { ok, shown } = growthOf(row);
    if (!ok) slow.push(`${row.name}: ${shown}`);
  }
  assert.deepEqual(slow, []);
});

test('DC-1: past the budget of steps every encoder and decoder refuses, before it has done much', async () => {
  const past = MAX_STEPS + 1;
  const refused = (work: () => unknown): boolean => {
    try {
      work();
      return false;
    } catch (error) {
      return error instanceof AppError && error.code === 'REQUEST_TOO_COMPLEX';
    }
  };
  /** What takes no step: plain fields, and shapes that the dialect passes on as they are. */
  const free = /fields that nobody knows|proofs of Google|proofs|schema|strict answer/;
  for (const [name, make] of Object.entries(MESSAGES)) {
    if (name !== 'many tools')
      assert.ok(
        refused(() => decodeMessagesRequest(make(past))),
        `messages: ${name}`,
      );
  }
  for (const [name, make] of Object.entries(RESPONSES)) {
    assert.ok(
      refused(() => decodeResponsesRequest(make(past))),
      `responses: ${name}`,
    );
  }
  for (const dialect of ['anthropic', 'bedrock', 'google', 'cohere'] as const) {
    const { encodeRequest } = await loadDialect(dialect);
    for (const [name, make] of Object.entries(CHATS)) {
      if (free.test(name)) continue;
      const request = make(past);
      assert.ok(
        refused(() => encodeRequest(request, { model: 'm', stream: false, id: 'c', created: 1 })),
        `${dialect}: ${name}`,
      );
    }
  }
});
