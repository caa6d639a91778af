/**
 * The text that one event of a stream adds to an answer, in the shapes that are common for this; else an empty string.
 * @param {string} data
 */
export function addedText(data) {
  const message = asObject(parse(data));
  const update = asObject(message.params ?? message);
  const choices = Array.isArray(update.choices) ? update.choices : [];
  const choice = asObject(choices[0]);
  const delta = choices.length > 0 ? (choice.delta ?? choice) : update.delta;
  if (typeof delta === 'string') return delta;
  const { content, text } = asObject(delta);
  if (typeof content === 'string') return content;
  return typeof text === 'string' ? text : '';
}

/**
 * JSON with line breaks; any other text as it is.
 * @param {string} text
 */
export function prettyJson(text) {
  const value = parse(text);
  return value === undefined ? text : JSON.stringify(value, null, 2);
}

/**
 * @param {string} text
 * @returns {unknown}
 */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * @param {unknown} value
 * @returns {Record<string, unknown>}
 */
function asObject(value) {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}
