import { element, field } from './element.js';
import { exampleOf } from './example.js';
import { messageSchema, resolve, variantsOf } from './operations.js';

/** @import { OpenApiDocument, Operation, Parameter, RequestValues, Schema } from './openapi-types.d.ts' */

const MAX_ROWS = 22;

/**
 * The fields of one operation: its parameters, and what can be sent, prefilled with an example.
 * @param {OpenApiDocument} api
 * @param {Operation} operation
 * @param {{ onInput(): void, onVariant(title: string): void }} listeners
 */
export function createRequestForm(api, operation, { onInput, onVariant }) {
  const controls = (operation.parameters ?? []).map((parameter) => parameterControl(api, parameter));
  const schema = messageSchema(operation);
  const hasBody = operation.requestBody !== undefined || operation['x-websocket'] !== undefined;
  const expectsJson = schema !== undefined && !operation.requestBody?.content['application/octet-stream'];
  const editor = element('textarea', { spellcheck: 'false', autocomplete: 'off', class: 'editor' });
  const problem = element('p', { class: 'problem', role: 'status' });
  const eventStream = element('input', { type: 'checkbox' });
  /** @type {HTMLElement[]} */
  const parts = controls.map(({ row }) => row);

  const variants = variantsOf(api, schema);
  if (variants.length > 0) {
    const select = element('select', {}, ...variants.map(({ title }) => element('option', {}, title)));
    select.addEventListener('change', () => showVariant(select.value));
    parts.push(field('Method', select));
  }
  if (hasBody) {
    parts.push(field(operation['x-websocket'] ? 'Message' : 'Body', editor));
    showExample(variants[0] ?? schema);
  }
  if (Object.values(operation.responses).some(({ content }) => content?.['text/event-stream'])) {
    parts.push(element('label', { class: 'check' }, eventStream, ' Ask for an event stream'));
    eventStream.checked = resolve(api, schema).properties?.stream?.default === true;
    eventStream.addEventListener('input', setStreamMember);
  }

  const form = element('form', { class: 'request', novalidate: true }, ...parts, problem);
  form.addEventListener('input', () => {
    check();
    onInput();
  });

  /** @param {string} title */
  function showVariant(title) {
    showExample(variants.find((variant) => variant.title === title));
    check();
    onVariant(title);
  }

  /** @param {Schema | undefined} shown */
  function showExample(shown) {
    const text = shown === undefined ? '' : JSON.stringify(exampleOf(api, shown), null, 2);
    editor.value = text;
    editor.rows = Math.min(Math.max(text.split('\n').length, 4), MAX_ROWS);
  }

  function check() {
    problem.textContent = expectsJson ? jsonProblem(editor.value) : '';
    editor.ariaInvalid = String(problem.textContent !== '');
  }

  /** Many bodies have a member `stream` that says the same as the header. */
  function setStreamMember() {
    if (!resolve(api, schema).properties?.stream || jsonProblem(editor.value)) return;
    editor.value = JSON.stringify({ ...JSON.parse(editor.value), stream: eventStream.checked }, null, 2);
  }

  return {
    form,
    editor,
    /** @returns {RequestValues} */
    read() {
      return {
        parameters: Object.fromEntries(controls.map(({ name, control }) => [name, control.value])),
        body: operation.requestBody === undefined ? undefined : editor.value,
        eventStream: eventStream.checked,
      };
    },
    /** @param {string} text */
    complain(text) {
      problem.textContent = text;
    },
  };
}

/**
 * @param {OpenApiDocument} api
 * @param {Parameter} parameter
 */
function parameterControl(api, { name, required, description = '', schema }) {
  const resolved = resolve(api, schema);
  const choices = resolved.type === 'boolean' ? [true, false] : resolved.enum;
  const example = required ? exampleOf(api, schema) : '';
  const value = typeof example === 'object' ? '' : String(example);
  const control = choices
    ? element('select', {}, ...['', ...choices].map((choice) => element('option', {}, String(choice))))
    : element('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', required });
  control.value = value;
  const fallback = resolved.default === undefined ? '' : `Default: ${JSON.stringify(resolved.default)}.`;
  const row = field(required ? `${name} (required)` : name, control, `${description} ${fallback}`.trim());
  return { name, control, row };
}

/** @param {string} text */
function jsonProblem(text) {
  try {
    JSON.parse(text);
    return '';
  } catch (error) {
    return `Not valid JSON: ${error instanceof Error ? error.message : ''}`;
  }
}
