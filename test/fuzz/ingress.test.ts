import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import { ChatRequest } from '../../src/completions/contract/chat.ts';
import { GenerateContentRequest } from '../../src/completions/contract/gemini.ts';
import { MessagesRequest } from '../../src/completions/contract/messages.ts';
import { TextRequest } from '../../src/completions/contract/operations.ts';
import { createRequestReader } from '../../src/completions/contract/read-request.ts';
import { ResponsesRequest } from '../../src/completions/contract/responses.ts';
import { plainNames, storedInGemini, withOwnSignatures } from '../../src/completions/ingress/gemini/gemini-content.ts';
import { decodeGeminiRequest } from '../../src/completions/ingress/gemini/gemini-request.ts';
import { decodeMessagesRequest } from '../../src/completions/ingress/messages/messages-request.ts';
import { decodeResponsesRequest } from '../../src/completions/ingress/responses/responses-request.ts';
import { textAsChat } from '../../src/completions/operations/text-handler.ts';
import { estimatePromptTokens } from '../../src/completions/relay/token-usage.ts';
import fc from '../kit/properties.ts';
import { assertNothingPolluted, outcomeOf, runs } from './any-input.ts';
import { arbitraryFor, type JsonSchema } from './schema-arbitrary.ts';

const WORDS = [
  ...[
    'user',
    'assistant',
    'system',
    'text',
    'image',
    'document',
    'tool_use',
    'tool_result',
    'thinking',
    'base64',
    'url',
  ],
  ...['message', 'input_text', 'output_text', 'input_image', 'input_file', 'function_call', 'function_call_output'],
  ...[
    'reasoning',
    'custom_tool_call',
    'custom_tool_call_output',
    'additional_tools',
    'namespace',
    'function',
    'custom',
  ],
  ...['auto', 'any', 'none', 'required', 'json_schema', 'json_object', 'enabled', 'redacted_thinking', 'refusal'],
  ...[
    'data:image/png;base64,AAAA',
    '{"a":1}',
    'item_reference',
    'local_shell_call',
    'web_search',
    'developer',
    'call_1',
  ],
  ...['model', 'function', 'AUTO', 'ANY', 'NONE', 'application/json', 'audio/mpeg', 'image/png', 'HIGH', 'TEXT'],
  ...['files/a', Buffer.from('trestle1:["a","google:c0:s;"]').toString('base64')],
];
const chat = Compile(ChatRequest);
const from = (schema: object) => arbitraryFor(schema as JsonSchema, { junkWeight: 0, words: WORDS });

/** Whatever a caller may write in another form is a chat completion that passes our own check, or is refused. */
function assertChat(decode: () => object): void {
  const outcome = outcomeOf(decode);
  if ('value' in outcome) {
    assert.ok(chat.Check(outcome.value), JSON.stringify(outcome.value));
    assert.ok(estimatePromptTokens(outcome.value as never) >= 0);
  } else {
    assert.match(outcome.refused, /^[A-Z_]+$/);
  }
  assertNothingPolluted();
}

test('G18: any request of the Messages API becomes a chat completion, or is refused', () => {
  const validator = Compile(MessagesRequest);
  const read = createRequestReader(MessagesRequest);
  fc.assert(
    fc.property(from(MessagesRequest), (value) => {
      fc.pre(validator.Check(value));
      assertChat(() => decodeMessagesRequest(read(Buffer.from(JSON.stringify(value)))).chat);
    }),
    runs(200),
  );
});

test('G18: any request of the Responses API becomes a chat completion, or is refused', () => {
  const validator = Compile(ResponsesRequest);
  const read = createRequestReader(ResponsesRequest);
  fc.assert(
    fc.property(from(ResponsesRequest), (value) => {
      fc.pre(validator.Check(value));
      assertChat(() => decodeResponsesRequest(read(Buffer.from(JSON.stringify(value)))).chat);
    }),
    runs(200),
  );
});

test('G18: any request of the Gemini API becomes a chat completion, or is refused', () => {
  const validator = Compile(GenerateContentRequest);
  const read = createRequestReader(GenerateContentRequest, undefined, plainNames);
  fc.assert(
    fc.property(from(GenerateContentRequest), fc.boolean(), (value, stream) => {
      fc.pre(validator.Check(value));
      assertChat(() => {
        const request = read(Buffer.from(JSON.stringify(value)));
        assert.ok(validator.Check(withOwnSignatures(request) ?? request));
        assert.ok(Array.isArray(storedInGemini(request)));
        return decodeGeminiRequest(request, { model: 'lab/m', stream }).chat;
      });
    }),
    runs(200),
  );
});

test('G18: any plain completion becomes a chat completion, or is refused', () => {
  const validator = Compile(TextRequest);
  const read = createRequestReader(TextRequest);
  fc.assert(
    fc.property(from(TextRequest), (value) => {
      fc.pre(validator.Check(value));
      assertChat(() => textAsChat(read(Buffer.from(JSON.stringify(value)))).request);
    }),
    runs(100),
  );
});
