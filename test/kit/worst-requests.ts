/** Requests of the worst shapes that a caller may send, each of a size that is given. */

// biome-ignore lint/suspicious/noExplicitAny: inputs are whatever a caller may send.
export type Json = any;

export const many = <T>(size: number, make: (index: number) => T): T[] =>
  Array.from({ length: size }, (_, index) => make(index));
export const ask = (more: object): Json => ({ model: 'lab/m', messages: [{ role: 'user', content: 'x' }], ...more });
const said = (more: object): Json =>
  ask({
    messages: [
      { role: 'user', content: 'x' },
      { role: 'assistant', ...more },
    ],
  });

/** Requests of every shape that an encoder walks, each with about `size` parts. */
export const CHATS: Readonly<Record<string, (size: number) => Json>> = {
  'many messages': (size) =>
    ask({ messages: many(size, (at) => ({ role: at % 2 ? 'assistant' : 'user', content: 'x' })) }),
  'messages of one role': (size) => ask({ messages: many(size, () => ({ role: 'user', content: 'x' })) }),
  'system messages': (size) => ask({ messages: many(size, () => ({ role: 'system', content: 'x' })) }),
  'many parts': (size) =>
    ask({ messages: [{ role: 'user', content: many(size, () => ({ type: 'text', text: 'x' })) }] }),
  'parts of instructions': (size) =>
    ask({ messages: [{ role: 'system', content: many(size, () => ({ type: 'text', text: 'x' })) }] }),
  'parts that nobody knows': (size) =>
    ask({ messages: [{ role: 'user', content: many(size, (at) => ({ type: `t${at}` })) }] }),
  'many images': (size) =>
    ask({
      messages: [
        {
          role: 'user',
          content: many(size, () => ({ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } })),
        },
      ],
    }),
  'many calls': (size) =>
    said({
      content: '',
      tool_calls: many(size, (at) => ({ id: `c${at}`, type: 'function', function: { name: 'f', arguments: '{}' } })),
    }),
  'many results': (size) =>
    ask({ messages: many(size, (at) => ({ role: 'tool', tool_call_id: `c${at}`, content: 'x' })) }),
  'proofs that are placed in the text': (size) =>
    said({
      content: 'b'.repeat(size),
      reasoning_content: 'a'.repeat(size),
      reasoning_signature: many(size, (at) => `claude:t1@${at}:s;`).join(''),
    }),
  'proofs at one place': (size) =>
    said({
      content: 'b',
      reasoning_content: 'a'.repeat(size),
      reasoning_signature: many(size, () => 'claude:t1@0:s;').join(''),
    }),
  'proofs of Google': (size) =>
    said({ content: 'b', reasoning_signature: many(size, (at) => `google:c${at}:s;`).join('') }),
  'many tools': (size) =>
    ask({
      tools: many(size, (at) => ({ type: 'function', function: { name: `f${at}`, parameters: { type: 'object' } } })),
    }),
  'tools that nobody knows': (size) => ask({ tools: many(size, (at) => ({ type: `t${at}` })) }),
  'a wide schema': (size) =>
    ask({
      tools: [
        toolOf({ type: 'object', properties: Object.fromEntries(many(size, (at) => [`m${at}`, { type: 'string' }])) }),
      ],
    }),
  'a schema with many references': (size) =>
    ask({
      tools: [
        toolOf({
          type: 'object',
          properties: Object.fromEntries(many(size, (at) => [`m${at}`, { $ref: '#/$defs/a' }])),
          $defs: { a: { type: 'object', properties: { next: { $ref: '#/$defs/a' } } } },
        }),
      ],
    }),
  'a strict answer': (size) =>
    ask({
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'a',
          strict: true,
          schema: {
            type: 'object',
            properties: Object.fromEntries(many(size, (at) => [`m${at}`, { type: 'string' }])),
          },
        },
      },
    }),
  'fields that nobody knows': (size) => ask(Object.fromEntries(many(size, (at) => [`x${at}`, 1]))),
};

function toolOf(parameters: object): object {
  return { type: 'function', function: { name: 'f', parameters, strict: true } };
}

export const MESSAGES: Readonly<Record<string, (size: number) => Json>> = {
  'many blocks': (size) => messagesOf(many(size, () => ({ type: 'text', text: 'x' }))),
  'thinking between text': (size) =>
    messagesOf(
      many(size, (at) => (at % 2 ? { type: 'text', text: 'x' } : { type: 'thinking', thinking: 'y', signature: 'z' })),
      'assistant',
    ),
  'many results': (size) =>
    messagesOf(
      many(size, (at) => ({ type: 'tool_result', tool_use_id: `c${at}`, content: [{ type: 'text', text: 'x' }] })),
    ),
  'many calls': (size) =>
    messagesOf(
      many(size, (at) => ({ type: 'tool_use', id: `c${at}`, name: 'f', input: {} })),
      'assistant',
    ),
  'images in one result': (size) =>
    messagesOf([
      {
        type: 'tool_result',
        tool_use_id: 'c',
        content: many(size, () => ({ type: 'image', source: { type: 'url', url: 'https://x.example/a.png' } })),
      },
    ]),
  'many instructions': (size) => ({ ...messagesOf([]), system: many(size, () => ({ type: 'text', text: 'x' })) }),
  'many tools': (size) => ({ ...messagesOf([]), tools: many(size, (at) => ({ name: `t${at}`, input_schema: {} })) }),
};

function messagesOf(content: readonly object[], role = 'user'): Json {
  const question = { role: 'user', content: 'x' };
  return { model: 'lab/m', max_tokens: 1, messages: content.length === 0 ? [question] : [question, { role, content }] };
}

export const RESPONSES: Readonly<Record<string, (size: number) => Json>> = {
  'many items': (size) => ({ model: 'm', input: many(size, () => ({ role: 'assistant', content: 'x' })) }),
  'many calls': (size) => ({
    model: 'm',
    input: many(size, (at) => ({ type: 'function_call', call_id: `c${at}`, name: 'f', arguments: '{}' })),
  }),
  'many outputs': (size) => ({
    model: 'm',
    input: many(size, (at) => ({ type: 'function_call_output', call_id: `c${at}`, output: 'x' })),
  }),
  'tools of one name': (size) => ({
    model: 'm',
    input: 'x',
    tools: many(size, () => ({ type: 'function', name: 'f' })),
  }),
  'tools whose names begin alike': (size) => ({
    model: 'm',
    input: 'x',
    tools: many(size, (at) => ({ type: 'function', name: `${'n'.repeat(62)}${String.fromCharCode(97 + (at % 26))}` })),
  }),
  'many parts': (size) => ({
    model: 'm',
    input: [{ role: 'user', content: many(size, () => ({ type: 'input_text', text: 'x' })) }],
  }),
};

export const GEMINI: Readonly<Record<string, (size: number) => Json>> = {
  'many contents': (size) => ({
    contents: many(size, (at) => ({ role: at % 2 ? 'model' : 'user', parts: [{ text: 'x' }] })),
  }),
  'many parts': (size) => geminiOf(many(size, () => ({ text: 'x' }))),
  'pieces of one answer': (size) => ({ contents: many(size, () => ({ role: 'model', parts: [{ text: 'x' }] })) }),
  'thoughts between text': (size) =>
    geminiOf(
      many(size, (at) => ({ text: 'x', thought: at % 2 === 1, thoughtSignature: PROOF })),
      'model',
    ),
  'calls of one name and their results': (size) => ({
    contents: [
      { role: 'model', parts: many(size, () => ({ functionCall: { name: 'f', args: {} }, thoughtSignature: PROOF })) },
      { parts: many(size, () => ({ functionResponse: { name: 'f', response: { output: 'x' } } })) },
    ],
  }),
  'images in one result': (size) => ({
    contents: [
      { role: 'model', parts: [{ functionCall: { name: 'f' } }] },
      {
        parts: [
          {
            functionResponse: {
              name: 'f',
              parts: many(size, () => ({ inlineData: { mimeType: 'image/png', data: 'AA' } })),
            },
          },
        ],
      },
    ],
  }),
  'many instructions': (size) => ({ ...geminiOf([]), systemInstruction: { parts: many(size, () => ({ text: 'x' })) } }),
  'many tools': (size) => ({
    ...geminiOf([]),
    tools: [{ functionDeclarations: many(size, (at) => ({ name: `f${at}`, parameters: { type: 'OBJECT' } })) }],
  }),
  'a wide schema': (size) => ({
    ...geminiOf([]),
    generationConfig: {
      responseMimeType: 'application/json',
      responseSchema: {
        type: 'OBJECT',
        properties: Object.fromEntries(many(size, (at) => [`m${at}`, { type: 'STRING', nullable: true }])),
      },
    },
  }),
};

/** A proof of ours, which must be read each time. */
const PROOF = `${Buffer.from('trestle1:').toString('base64')}${Buffer.from('["x","google:c0:s;"]').toString('base64')}`;

function geminiOf(parts: readonly object[], role = 'user'): Json {
  const question = { role: 'user', parts: [{ text: 'x' }] };
  return { contents: parts.length === 0 ? [question] : [question, { role, parts }] };
}
