import type { Json } from './translate-request.ts';

/** Texts and numbers that are found again wherever they arrive; `kind` is a row of the table in docs/dialects.md. */
export function createMarks() {
  const made: { readonly kind: string; readonly text: string }[] = [];
  const keep = (kind: string, text: string): string => {
    made.push({ kind, text });
    return text;
  };
  return {
    made,
    keep,
    text: (kind: string) => keep(kind, `${kind.replaceAll(' ', '_')}-${made.length}-x`),
    data: (kind: string) => keep(kind, Buffer.from(`${kind} ${made.length} x`).toString('base64')),
    count: (kind: string) => Number(keep(kind, String(4_100_007 + made.length * 1000))),
  };
}
export type Marks = ReturnType<typeof createMarks>;

/** What an answer may have; the first five come in this order. */
export type Piece =
  | 'thinking'
  | 'text'
  | 'sources'
  | 'calls'
  | 'refusal'
  | 'image'
  | 'speech'
  | 'logprobs'
  | 'stop'
  | 'server tools'
  | 'ratings'
  | 'usage';

/** An answer that ends with a stop sequence neither calls nor refuses. */
export function stops(has: ReadonlySet<Piece>): boolean {
  return has.has('stop') && !has.has('calls') && !has.has('refusal');
}

export function chatCall(marks: Marks) {
  const name = marks.text('calls');
  return { id: marks.text('calls'), type: 'function', function: { name, arguments: `{"a":"${marks.text('calls')}"}` } };
}

export function claudeEvents(block: Json, index: number): readonly object[] {
  const start = (content_block: object) => ({ type: 'content_block_start', index, content_block });
  const delta = (given: object) => ({ type: 'content_block_delta', index, delta: given });
  const stop = { type: 'content_block_stop', index };
  switch (block.type) {
    case 'thinking':
      return [
        start({ type: 'thinking', thinking: '', signature: '' }),
        delta({ type: 'thinking_delta', thinking: block.thinking }),
        delta({ type: 'signature_delta', signature: block.signature }),
        stop,
      ];
    case 'text':
      return [
        start({ type: 'text', text: '' }),
        ...(block.citations ?? []).map((citation: object) => delta({ type: 'citations_delta', citation })),
        delta({ type: 'text_delta', text: block.text }),
        stop,
      ];
    case 'tool_use':
      return [
        start({ ...block, input: {} }),
        delta({ type: 'input_json_delta', partial_json: JSON.stringify(block.input) }),
        stop,
      ];
    default:
      return [start(block), stop];
  }
}

export function responsesEvents(item: Json, output_index: number): readonly object[] {
  const at = { output_index, content_index: 0 };
  const between: object[] = [];
  for (const part of item.type === 'message' ? item.content : []) {
    between.push({ type: 'response.content_part.added', ...at });
    if (part.type === 'refusal') between.push({ type: 'response.refusal.delta', ...at, delta: part.refusal });
    else {
      between.push({ type: 'response.output_text.delta', ...at, delta: part.text, logprobs: part.logprobs });
      for (const annotation of part.annotations) {
        between.push({ type: 'response.output_text.annotation.added', ...at, annotation });
      }
    }
  }
  if (item.type === 'reasoning') {
    between.push({ type: 'response.reasoning_summary_text.delta', ...at, delta: item.summary[0].text });
  }
  if (item.type === 'function_call') {
    between.push({ type: 'response.function_call_arguments.delta', ...at, delta: item.arguments });
  }
  return [
    { type: 'response.output_item.added', ...at, item: { ...item, ...(item.arguments && { arguments: '' }) } },
    ...between,
    { type: 'response.output_item.done', ...at, item },
  ];
}
