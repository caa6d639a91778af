/** An event of a chat completion's stream, as OpenAI has it. */
export function chunkEvent(choices: readonly object[], more: object = {}): string {
  const chunk = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices, ...more };
  return `data: ${JSON.stringify(chunk)}\n\n`;
}

/** The same for one choice. */
export function deltaEvent(delta: object, finish: string | null = null): string {
  return chunkEvent([{ index: 0, delta, finish_reason: finish }]);
}
