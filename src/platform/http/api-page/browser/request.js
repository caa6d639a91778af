import { element, field } from './element.js';
import { messageSchema, resolve, variantsOf } from './operations.js';
import { exampleOf } from './schema-tree.js';

/** @import { ApiRequest, OpenApiDocument, Operation, Parameter, RequestValues, Schema } from './openapi-types.d.ts' */

/**
 * The request that the form describes, without the token: that is added at the last moment.
 * @param {Operation} operation
 * @param {RequestValues} values
 * @param {string} origin
 * @returns {ApiRequest}
 */
export function buildRequest(operation, values, origin) {
  const contentType = Object.keys(operation.requestBody?.content ?? {})[0];
  /** @type {Record<string, string>} */
  const headers = {};
  if (values.body !== undefined && contentType !== undefined) headers['content-type'] = contentType;
  if (values.eventStream) headers.accept = 'text/event-stream';
  const url = `${origin}${pathOf(operation, values)}${queryOf(operation, values)}`;
  return { method: operation.method, url, headers, body: values.body };
}

/**
 * The names of required parameters that have no value yet.
 * @param {Operation} operation
 * @param {RequestValues} values
 */
export function missingParameters(operation, values) {
  const parameters = operation.parameters ?? [];
  return parameters.filter(({ name, required }) => required && !values.parameters[name]).map(({ name }) => name);
}

/**
 * One command for a POSIX shell. The token stays out of it: it is read from `$TOKEN`.
 * @param {ApiRequest} request
 * @param {boolean} withToken
 */
export function curlCommand({ method, url, headers, body }, withToken) {
  const lines = [`curl ${headers.accept ? '-N ' : ''}${method === 'GET' ? '' : `-X ${method} `}${shellQuote(url)}`];
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${shellQuote(`${name}: ${value}`)}`);
  if (withToken) lines.push('-H "authorization: Bearer $TOKEN"');
  // Not --data: that would read a file when the text starts with @, and drop line breaks.
  if (body !== undefined) lines.push(`--data-raw ${shellQuote(body)}`);
  return lines.join(' \\\n  ');
}

/**
 * Inside single quotes a POSIX shell changes nothing.
 * @param {string} text
 */
function shellQuote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * @param {Operation} operation
 * @param {RequestValues} values
 */
function pathOf({ path, parameters = [] }, values) {
  return path.replaceAll(/\{(\w+)\}/g, (_whole, name) => {
    const value = values.parameters[name] ?? '';
    const multiSegment = parameters.some((parameter) => parameter.name === name && parameter['x-multi-segment']);
    return multiSegment ? value.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(value);
  });
}

/**
 * @param {Operation} operation
 * @param {RequestValues} values
 */
function queryOf({ parameters = [] }, values) {
  const query = new URLSearchParams();
  for (const { name, in: place } of parameters) {
    const value = values.parameters[name];
    if (place === 'query' && value) query.append(name, value);
  }
  return query.size > 0 ? `?${query}` : '';
}

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
