import { readCookie } from '../../src/accounts/cookies.ts';
import { normalizeCode } from '../../src/accounts/mfa/second-factor.ts';
import { checkNewPassword } from '../../src/accounts/passwords/passwords.ts';
import { normalizeEmail } from '../../src/accounts/registration/new-user.ts';
import { matchesToolPattern } from '../../src/bridge/gateway/invoke-tool.ts';
import { createJobReports } from '../../src/bridge/jobs/job-reports.ts';
import { runModes } from '../../src/bridge/multi-agent/create-multi-agent.ts';
import { fillTemplate, readPlan } from '../../src/bridge/multi-agent/multi-agent-plan.ts';
import { MAIN } from '../../src/bridge/principal.ts';
import { matchSkills } from '../../src/bridge/routing/resolve-route.ts';
import { nearestModels } from '../../src/completions/apis/models.ts';
import { ChatRequest } from '../../src/completions/contract/chat.ts';
import { GenerateContentRequest } from '../../src/completions/contract/gemini.ts';
import { MessagesRequest } from '../../src/completions/contract/messages.ts';
import { ResponsesRequest } from '../../src/completions/contract/responses.ts';
import { googleSchema } from '../../src/completions/dialects/google/google-schema.ts';
import { createAnswerReader } from '../../src/completions/ingress/answer-blocks.ts';
import { plainNames } from '../../src/completions/ingress/gemini/gemini-content.ts';
import { decodeGeminiRequest } from '../../src/completions/ingress/gemini/gemini-request.ts';
import { decodeMessagesRequest } from '../../src/completions/ingress/messages/messages-request.ts';
import { decodeResponsesRequest } from '../../src/completions/ingress/responses/responses-request.ts';
import { createCustomToolInput } from '../../src/completions/ingress/responses/responses-tools.ts';
import { matchesPattern } from '../../src/completions/keys/issued-key.ts';
import { usesLegacyFunctions, withTools } from '../../src/completions/operations/encode-chat.ts';
import { createEventSplitter, createSseFraming } from '../../src/completions/relay/event-splitter.ts';
import { spliceModel } from '../../src/completions/relay/splice-body.ts';
import { createByteReader } from '../../src/completions/relay/stream-readers.ts';
import { estimatePromptTokens, findUsage } from '../../src/completions/relay/token-usage.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';
import { matchesOrigin } from '../../src/platform/http/cross-origin.ts';
import { createSchemaCheck } from '../../src/platform/http/request-body.ts';
import { forwardedAddress } from '../../src/platform/http/request-state.ts';
import { parseJson } from '../../src/platform/json/parse-json.ts';
import { plainEnvelope } from '../../src/platform/json-rpc/envelope.ts';
import { createExchange } from '../../src/platform/json-rpc/exchange.ts';
import { createFrameReader } from '../../src/platform/json-rpc/message-channel.ts';
import { hideCredentials } from '../../src/platform/log/hidden-secrets.ts';
import { ask, CHATS, GEMINI, MESSAGES, many, RESPONSES } from '../kit/worst-requests.ts';
import { LANE_ROWS, type Row } from './lane-rows.ts';

const check = {
  chat: createSchemaCheck(ChatRequest, 'body'),
  gemini: createSchemaCheck(GenerateContentRequest, 'body'),
  messages: createSchemaCheck(MessagesRequest, 'body'),
  responses: createSchemaCheck(ResponsesRequest, 'body'),
};

export const PARTS = 2_000;

const jobReports = createJobReports({
  jobs: {} as never,
  reports: {} as never,
  deliveries: {} as never,
  clock: { now: () => 0 },
});
const exchange = createExchange({
  caller: undefined,
  dispatch: () => undefined as never,
  errors: {},
  makeRequestId: () => 'r',
  onUnexpectedError: () => undefined,
  envelope: plainEnvelope,
  limits: { callsInFlight: 1 },
  answer: () => undefined,
} as never);

const event = (delta: object) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;

export const ROWS: readonly Row[] = [
  ...LANE_ROWS,
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
  ...Object.entries(GEMINI).flatMap(([name, make]): Row[] => [
    {
      name: `gemini: ${name} are decoded`,
      size: PARTS,
      work: (size) => withInput(make(size), (input) => decodeGeminiRequest(input, { model: 'm', stream: false })),
    },
    { name: `gemini: ${name} are checked`, size: PARTS, work: (size) => withInput(make(size), check.gemini) },
    { name: `gemini: ${name} get plain names`, size: PARTS, work: (size) => withInput(make(size), plainNames) },
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
    size: 20_000,
    work: (size) => () => {
      const input = createCustomToolInput();
      input.read('{"input":"');
      for (let at = 0; at < size; at += 1) input.read('a');
      return input.whole();
    },
  },
  {
    name: 'the input of a custom tool has no beginning',
    size: 20_000,
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
    size: 1_000,
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
    size: 1_200,
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
    size: 25_000,
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
    name: 'figures are looked for in members that are nested in each other',
    size: 3_000,
    work: (size) => withInput(Buffer.from(`${'{"usage":'.repeat(size)}0${'}'.repeat(size)}`), findUsage),
  },
  {
    name: 'figures are looked for in many members',
    size: 20_000,
    work: (size) => withInput(Buffer.from(`{${'"usage":{"x":1},'.repeat(size)}"y":0}`), findUsage),
  },
  {
    name: 'a batch of calls is read',
    size: 20_000,
    work: (size) =>
      withInput(JSON.stringify(many(size, (id) => ({ id, method: 'x' }))), (text) => exchange.receive(text)),
  },
  {
    name: 'a cursor is read',
    size: 500_000,
    work: (size) => () => jobReports.list(MAIN, { cursor: `job-${'0'.repeat(size)}` }).catch(codeOf),
  },
  {
    name: 'stop conditions are looked for in what an agent says',
    size: 50_000,
    work: (size) => {
      const conditions = many(64, () => `b${'a'.repeat(1023)}`);
      const routing = {
        orchestrationMode: 'conversation',
        participants: ['x'],
        maxTurns: 1,
        stopConditions: conditions,
      };
      const plan = readPlan(routing, 'x', ['x']);
      const record = { providerId: 'x', status: 'completed' };
      const step = { ask: async () => ({ record, output: 'a'.repeat(size), code: '', files: [] }) };
      return () => runModes.conversation(plan, [step as never]);
    },
  },
  {
    name: 'a plan is read',
    size: 20_000,
    work: (size) => () =>
      readPlan({ steps: many(size, () => ({ providerId: 'x', prompt: ' '.repeat(20) })) }, 'x', ['x']),
  },
  {
    name: 'an origin is compared',
    size: 20_000,
    work: (size) => () =>
      matchesOrigin(
        `http://a:${'1'.repeat(size)}`,
        many(200, () => 'http://a:*'),
      ),
  },
  {
    name: 'names of models that are near are looked for',
    size: 200,
    work: (size) => () =>
      nearestModels(
        'a'.repeat(400),
        many(size, (at) => `${'b'.repeat(40)}${at}`),
      ),
  },
  {
    name: 'a cookie is looked for',
    size: 60_000,
    work: (size) => () => readCookie({ headers: { cookie: 'a=1;'.repeat(size) } }, 'b'),
  },
  {
    name: 'a password is checked',
    size: 400_000,
    work: (size) => () =>
      quietly(() => checkNewPassword('a'.repeat(size), { name: 'b', email: 'c@d.e' }, () => false))(undefined),
  },
  { name: 'a code is read', size: 400_000, work: (size) => () => normalizeCode(' -'.repeat(size)) },
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

function codeOf(error: unknown): unknown {
  return error instanceof AppError ? error.code : error;
}

export function withInput<T>(input: T, work: (input: T) => unknown): () => unknown {
  return () => work(input);
}

function parseQuietly(text: string): unknown {
  return quietly(parseJson)(text);
}

export function quietly<T>(work: (input: T) => unknown): (input: T) => unknown {
  return (input) => {
    try {
      return work(input);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return error.code;
    }
  };
}
