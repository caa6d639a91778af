import { button, element, prose } from './element.js';
import { messageSchema, variantsOf } from './operations.js';
import { buildRequest, curlCommand, missingParameters } from './request.js';
import { createRequestForm } from './request-form.js';
import { createResponseView } from './response-view.js';
import { schemaTree } from './schema-tree.js';
import { createSocketView } from './socket-view.js';

/** @import { OpenApiDocument, Operation, Schema } from './openapi-types.d.ts' */

const NO_TOKEN_ON_SOCKETS =
  'A browser cannot send a token when it opens a WebSocket: from here it works where no token is asked for.';

/**
 * Everything about one operation: what it is, the form, the answer, the shapes.
 * @param {OpenApiDocument} api
 * @param {Operation} operation
 * @param {() => string} token
 */
export function createOperationView(api, operation, token) {
  const isSocket = operation['x-websocket'] !== undefined;
  const shapes = element('section', { class: 'shapes', 'aria-label': 'Shapes' });
  const command = element('pre', { tabindex: 0, 'aria-label': 'curl command' });
  const form = createRequestForm(api, operation, { onInput: refresh, onVariant: showShapes });

  const nextRequest = () => {
    const missing = missingParameters(operation, form.read());
    form.complain(missing.length > 0 ? `Fill in: ${missing.join(', ')}.` : '');
    return missing.length > 0 ? undefined : buildRequest(operation, form.read(), location.origin);
  };
  const exchange = isSocket
    ? createSocketView(
        () => nextRequest()?.url,
        () => form.editor.value,
      )
    : createResponseView(nextRequest, token);
  form.form.append(exchange.actions);
  form.form.addEventListener('submit', (event) => {
    event.preventDefault();
    void exchange.submit();
  });
  form.editor.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void exchange.run();
  });

  const heading = element(
    'h2',
    { tabindex: -1 },
    methodBadge(operation.method),
    ' ',
    element('code', {}, operation.path),
  );
  const texts = [operation.summary, operation.description ?? '', isSocket ? NO_TOKEN_ON_SOCKETS : ''];
  const view = element(
    'article',
    {},
    heading,
    ...texts.filter((text) => text !== '').map((text) => element('p', { class: 'text' }, ...prose(text))),
    element(
      'div',
      { class: 'columns' },
      element('section', { 'aria-label': 'Request' }, element('h3', {}, 'Request'), form.form),
      element('div', { class: 'exchange' }, exchange.panel, ...(isSocket ? [] : [commandPanel(command)])),
      shapes,
    ),
  );

  function refresh() {
    command.textContent = curlCommand(buildRequest(operation, form.read(), location.origin), token() !== '');
  }

  /** @param {string} [title] the chosen variant of a union; none for other operations */
  function showShapes(title) {
    /** @param {Schema | undefined} schema */
    const chosen = (schema) => variantsOf(api, schema).find((variant) => variant.title === title) ?? schema;
    const message = messageSchema(operation);
    const variant = chosen(message);
    shapes.replaceChildren();
    if (variant !== undefined) {
      shapes.append(element('h3', {}, isSocket ? 'Message shape' : 'Request shape'));
      if (variant !== message && variant.description)
        shapes.append(element('p', { class: 'text' }, ...prose(variant.description)));
      shapes.append(schemaTree(api, variant));
    }
    for (const [status, { description, content = {} }] of Object.entries(operation.responses)) {
      const title = `${status === 'default' ? 'Other statuses' : `Status ${status}`}: ${description}`;
      const parts = Object.entries(content).map(([type, { schema }]) => {
        const shape = chosen(schema);
        return element('div', {}, element('p', { class: 'media' }, type), ...(shape ? [schemaTree(api, shape)] : []));
      });
      shapes.append(element('h3', {}, title), ...parts);
    }
    refresh();
  }

  showShapes(variantsOf(api, messageSchema(operation))[0]?.title);
  return { view, heading, refresh, close: exchange.close };
}

/** @param {string} method */
export function methodBadge(method) {
  return element('span', { class: `method ${method.toLowerCase()}` }, method);
}

/** @param {HTMLElement} command */
function commandPanel(command) {
  const copy = button('Copy', async () => {
    // Where the browser offers no clipboard (a plain http address), the text is at least selected.
    getSelection()?.selectAllChildren(command);
    await navigator.clipboard?.writeText(command.textContent);
    copy.textContent = navigator.clipboard ? 'Copied' : 'Selected';
  });
  copy.addEventListener('blur', () => {
    copy.textContent = 'Copy';
  });
  const head = element('div', { class: 'head' }, element('h3', {}, 'curl'), copy);
  return element('section', { 'aria-label': 'The same as a curl command' }, head, command);
}
