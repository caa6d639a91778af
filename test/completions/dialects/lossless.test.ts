import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../kit/properties.ts';
import { INGRESSES, type Ingress, type Json, through, UPSTREAMS, type Upstream } from './translate-request.ts';

/** Texts that are found again wherever they arrive: `<kind>-<number>-x`. */
function createMarks() {
  const made: { readonly kind: string; readonly text: string }[] = [];
  const text = (kind: string): string => {
    const mark = `${kind}-${made.length}-x`;
    made.push({ kind, text: mark });
    return mark;
  };
  const data = (kind: string): string => {
    const mark = Buffer.from(`${kind} ${made.length} x`).toString('base64');
    made.push({ kind, text: mark });
    return mark;
  };
  return { made, text, data };
}
type Marks = ReturnType<typeof createMarks>;

const png = (marks: Marks) => ({ media_type: 'image/png', data: marks.data('image') });
const schemaOf = (marks: Marks) => ({
  type: 'object',
  properties: { a: { type: 'string', description: marks.text('property') } },
  required: ['a'],
});

/** What may stand in a turn, by ingress; each call of a row makes one with marks of its own. */
const PIECES: Readonly<Record<Ingress, { user: ((marks: Marks) => Json)[]; result: ((marks: Marks) => Json)[] }>> = {
  messages: {
    user: [
      (marks) => ({ type: 'text', text: marks.text('text') }),
      (marks) => ({ type: 'image', source: { type: 'base64', ...png(marks) } }),
      (marks) => ({
        type: 'document',
        title: `${marks.text('name')}.pdf`,
        context: marks.text('context'),
        source: { type: 'base64', media_type: 'application/pdf', data: marks.data('pdf') },
      }),
      (marks) => ({ type: 'document', source: { type: 'text', media_type: 'text/plain', data: marks.text('text') } }),
      (marks) => ({
        type: 'search_result',
        title: marks.text('text'),
        source: marks.text('text'),
        content: [{ type: 'text', text: marks.text('text') }],
      }),
    ],
    result: [
      (marks) => ({ type: 'text', text: marks.text('text') }),
      (marks) => ({ type: 'image', source: { type: 'base64', ...png(marks) } }),
    ],
  },
  responses: {
    user: [
      (marks) => ({ type: 'input_text', text: marks.text('text') }),
      (marks) => ({ type: 'input_image', image_url: `data:image/png;base64,${marks.data('image')}` }),
      (marks) => ({
        type: 'input_file',
        filename: `${marks.text('name')}.pdf`,
        file_data: `data:application/pdf;base64,${marks.data('pdf')}`,
      }),
    ],
    result: [
      (marks) => ({ type: 'input_text', text: marks.text('text') }),
      (marks) => ({ type: 'input_image', image_url: `data:image/png;base64,${marks.data('image')}` }),
    ],
  },
  gemini: {
    user: [
      (marks) => ({ text: marks.text('text') }),
      (marks) => ({ inlineData: { mimeType: 'image/png', data: marks.data('image') } }),
      (marks) => ({ inlineData: { mimeType: 'audio/wav', data: marks.data('audio') } }),
      (marks) => ({ inlineData: { mimeType: 'application/pdf', data: marks.data('pdf') } }),
    ],
    result: [(marks) => ({ inlineData: { mimeType: 'image/png', data: marks.data('image') } })],
  },
};

interface Shape {
  /** Which pieces the user's turn has, and what each call gave back. */
  readonly asked: readonly number[];
  readonly results: readonly { readonly pieces: readonly number[]; readonly failed: boolean }[];
  readonly settings: readonly string[];
}

const BUILDERS: Readonly<Record<Ingress, (shape: Shape, marks: Marks) => Json>> = {
  messages({ asked, results, settings }, marks) {
    const has = (name: string) => settings.includes(name);
    return {
      model: 'x/y',
      max_tokens: 100,
      system: [{ type: 'text', text: marks.text('text') }],
      ...(has('stop') && { stop_sequences: [marks.text('stop')] }),
      ...(has('user') && { metadata: { user_id: marks.text('user') } }),
      tools: [{ name: 't', description: marks.text('text'), input_schema: schemaOf(marks) }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: marks.text('text') }, ...piecesOf('messages', asked, marks)] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: marks.text('claude'), signature: marks.data('claude') },
            {
              type: 'text',
              text: marks.text('text'),
              ...(has('citations') && { citations: [{ cited_text: marks.text('cited') }] }),
            },
            ...results.map((_, index) => ({
              type: 'tool_use',
              id: `toolu_${index}`,
              name: 't',
              input: { a: marks.text('text') },
            })),
          ],
        },
        {
          role: 'user',
          content: [
            ...results.map(({ pieces, failed }, index) => ({
              type: 'tool_result',
              tool_use_id: `toolu_${index}`,
              content: piecesOf('messages', pieces, marks, 'result'),
              ...(failed && { is_error: true }),
            })),
            { type: 'text', text: marks.text('text') },
          ],
        },
      ],
    };
  },
  responses({ asked, results, settings }, marks) {
    const has = (name: string) => settings.includes(name);
    return {
      model: 'x/y',
      instructions: marks.text('text'),
      ...(has('user') && { user: marks.text('user') }),
      ...(has('cache') && { prompt_cache_key: marks.text('cacheKey') }),
      ...(has('safety') && { safety_identifier: marks.text('safety') }),
      ...(has('verbosity') && { text: { verbosity: marks.text('verbosity') } }),
      tools: [{ type: 'function', name: 't', description: marks.text('text'), parameters: schemaOf(marks) }],
      input: [
        {
          role: 'user',
          content: [{ type: 'input_text', text: marks.text('text') }, ...piecesOf('responses', asked, marks)],
        },
        {
          type: 'reasoning',
          summary: [{ type: 'summary_text', text: marks.text('openai') }],
          encrypted_content: marks.data('openai'),
        },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: marks.text('text') }] },
        ...results.map((_, index) => ({
          type: 'function_call',
          call_id: `c${index}`,
          name: 't',
          arguments: JSON.stringify({ a: marks.text('text') }),
        })),
        ...results.map(({ pieces }, index) => ({
          type: 'function_call_output',
          call_id: `c${index}`,
          output: piecesOf('responses', pieces, marks, 'result'),
        })),
        { role: 'user', content: marks.text('text') },
      ],
    };
  },
  gemini({ asked, results, settings }, marks) {
    const has = (name: string) => settings.includes(name);
    return {
      systemInstruction: { parts: [{ text: marks.text('text') }] },
      generationConfig: { ...(has('stop') && { stopSequences: [marks.text('stop')] }) },
      tools: [{ functionDeclarations: [{ name: 't', description: marks.text('text'), parameters: schemaOf(marks) }] }],
      contents: [
        { role: 'user', parts: [{ text: marks.text('text') }, ...piecesOf('gemini', asked, marks)] },
        {
          role: 'model',
          parts: [
            { text: marks.text('text') },
            ...results.map((_, index) => ({
              functionCall: { id: `f${index}`, name: 't', args: { a: marks.text('text') } },
              ...(index === 0 && { thoughtSignature: marks.data('google') }),
            })),
          ],
        },
        {
          role: 'user',
          parts: [
            ...results.map(({ pieces, failed }, index) => ({
              functionResponse: {
                id: `f${index}`,
                name: 't',
                response: { [failed ? 'error' : 'output']: marks.text('text') },
                parts: piecesOf('gemini', pieces, marks, 'result'),
              },
            })),
            { text: marks.text('text') },
          ],
        },
      ],
    };
  },
};

function piecesOf(ingress: Ingress, numbers: readonly number[], marks: Marks, where: 'user' | 'result' = 'user') {
  const rows = PIECES[ingress][where];
  return numbers.map((number) => rows[number % rows.length]?.(marks));
}

/** How a piece that does not arrive is named to the caller. */
const NAMES: Readonly<Record<string, string>> = {
  context: 'messages.document.context',
  cited: 'messages.citations',
  stop: 'stop',
  user: 'user',
  cacheKey: 'prompt_cache_key',
  safety: 'safety_identifier',
  verbosity: 'verbosity',
  pdf: 'messages.content.file',
  audio: 'messages.content.input_audio',
};

/** What may be lost without a name: names of files where an API has none, and thoughts, which only their maker may be shown. */
function mayBeLost(kind: string, upstream: Upstream): boolean {
  if (kind === 'name') return upstream === 'google' || upstream === 'cohere';
  if (kind === 'claude') return upstream !== 'anthropic' && upstream !== 'bedrock';
  if (kind === 'openai') return upstream !== 'responses';
  return kind === 'google' && upstream !== 'google';
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  asked: fc.array(fc.nat(20), { maxLength: 5 }),
  results: fc.array(fc.record({ pieces: fc.array(fc.nat(20), { minLength: 1, maxLength: 3 }), failed: fc.boolean() }), {
    maxLength: 3,
  }),
  settings: fc.subarray(['stop', 'user', 'citations', 'cache', 'safety', 'verbosity']),
});

for (const ingress of Object.keys(INGRESSES) as Ingress[]) {
  test(`whatever a request of ${ingress} has reaches every upstream, or is named as dropped`, async () => {
    await fc.assert(
      fc.asyncProperty(shapes, async (shape) => {
        const marks = createMarks();
        const request = BUILDERS[ingress](shape, marks);
        for (const upstream of UPSTREAMS) {
          const { body, dropped } = await through(ingress, upstream, request);
          const text = JSON.stringify(body);
          for (const { kind, text: mark } of marks.made) {
            if (text.includes(mark) || mayBeLost(kind, upstream)) continue;
            assert.ok(dropped.includes(NAMES[kind] ?? ''), `${mark} of ${ingress} is lost on its way to ${upstream}`);
          }
        }
      }),
    );
  });
}
