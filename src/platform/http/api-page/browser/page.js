import { button, element, prose } from './element.js';
import { groupOperations, matches, messageSchema, variantsOf } from './operations.js';
import { buildRequest, createRequestForm, curlCommand, missingParameters } from './request.js';
import { createResponseView, createSocketView } from './response-view.js';
import { schemaTree } from './schema-tree.js';

/** @import { OpenApiDocument, Operation, Schema } from './openapi-types.d.ts' */

const LOAD_TIMEOUT_MS = 15_000;
const NO_TOKEN_ON_SOCKETS =
  'A browser cannot send a token when it opens a WebSocket: from here it works where no token is asked for.';

/**
 * @template {HTMLElement} Kind
 * @param {string} id
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`The page has no #${id}.`);
  return found;
}

const main = byId('main', HTMLElement);
const list = byId('operations', HTMLElement);
const search = byId('search', HTMLInputElement);
const token = byId('token', HTMLInputElement);
const menu = byId('menu', HTMLButtonElement);
const tokenToggle = byId('token-toggle', HTMLButtonElement);
/** Shown until an operation is chosen; absent where the server has no other page. */
const welcome = document.getElementById('welcome');

/**
 * Gets a short token for the person who is logged in, for a path on which cookies do not count. Empty: there is none.
 * @param {string} url
 * @param {AbortSignal} signal
 */
async function exchangeLogin(url, signal) {
  const { exchangePrefix, exchangePath } = token.dataset;
  if (exchangePrefix === undefined || exchangePath === undefined) return '';
  if (!new URL(url).pathname.startsWith(exchangePrefix)) return '';
  const response = await fetch(exchangePath, { method: 'POST', signal });
  return response.ok ? /** @type {{ access_token: string }} */ (await response.json()).access_token : '';
}

/** @param {OpenApiDocument} api */
function start(api) {
  document.title = api.info.title;
  byId('title', HTMLElement).textContent = api.info.title;
  const version = byId('version', HTMLElement);
  version.textContent = [version.dataset.release, `contract ${api.info.version}`].filter(Boolean).join(' · ');
  const groups = groupOperations(api).map(({ title, operations }) => {
    const entries = operations.map((operation) => ({ operation, link: operationLink(operation) }));
    /** @param {boolean} isRepeated */
    const items = (isRepeated) =>
      entries
        .filter(({ operation }) => (operation.isRepeated ?? false) === isRepeated)
        .map(({ link }) => element('li', {}, link));
    const repeated = element(
      'details',
      {},
      element('summary', {}, 'The same without /v1'),
      element('ul', {}, ...items(true)),
    );
    const section = element('section', {}, element('h2', {}, title), element('ul', {}, ...items(false)));
    if (entries.some(({ operation }) => operation.isRepeated)) section.append(repeated);
    return { entries, section, repeated };
  });
  const none = element('p', { class: 'hint', hidden: true }, 'Nothing found.');
  list.replaceChildren(...groups.map(({ section }) => section), none);

  /** @type {ReturnType<typeof createOperationView> | undefined} */
  let shown;

  function showChosen() {
    const all = groups.flatMap(({ entries }) => entries);
    const asked = all.find(({ link }) => link.hash === location.hash);
    const chosen = asked ?? (shown === undefined ? all[0] : undefined);
    if (chosen === undefined) return;
    for (const { link } of all) link.ariaCurrent = link === chosen.link ? 'page' : null;
    const folded = chosen.link.closest('details');
    if (folded) folded.open = true;
    shown?.close();
    shown = createOperationView(api, chosen.operation, () => token.value.trim());
    main.replaceChildren(...(asked || !welcome ? [] : [welcome]), shown.view);
    showMenu(false);
    if (asked) shown.heading.focus();
  }

  function filter() {
    for (const { entries, section, repeated } of groups) {
      repeated.open =
        search.value !== '' || entries.some(({ operation, link }) => operation.isRepeated && link.ariaCurrent);
      for (const { operation, link } of entries) {
        const item = link.parentElement;
        if (item) item.hidden = !matches(api, operation, search.value);
      }
      section.hidden = entries.every(({ link }) => link.parentElement?.hidden);
    }
    none.hidden = groups.some(({ section }) => !section.hidden);
  }

  search.addEventListener('input', filter);
  token.addEventListener('input', () => shown?.refresh());
  window.addEventListener('hashchange', showChosen);
  showChosen();
  // Someone may have typed before the list was there.
  filter();
}

/** @param {Operation} operation */
function operationLink({ operationId, method, path, variant, summary }) {
  const name = element('code', {}, variant ?? path);
  const text = element('span', { class: 'address' }, name, element('small', {}, summary));
  return element('a', { href: `#${encodeURIComponent(operationId)}` }, methodBadge(method), text);
}

/** @param {boolean} open */
function showMenu(open) {
  menu.setAttribute('aria-expanded', String(open));
}

/**
 * Everything about one operation: what it is, the form, the answer, the shapes.
 * @param {OpenApiDocument} api
 * @param {Operation} operation
 * @param {() => string} token
 */
function createOperationView(api, operation, token) {
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
    : createResponseView(nextRequest, token, exchangeLogin);
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
    ...(operation.variant === undefined ? [] : [' ', element('code', { class: 'variant' }, operation.variant)]),
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

  showShapes(operation.variant ?? variantsOf(api, messageSchema(operation))[0]?.title);
  return { view, heading, refresh, close: exchange.close };
}

/** @param {string} method */
function methodBadge(method) {
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

tokenToggle.addEventListener('click', () => {
  const isOpen = tokenToggle.getAttribute('aria-expanded') !== 'true';
  tokenToggle.setAttribute('aria-expanded', String(isOpen));
  if (isOpen) token.focus();
});
menu.addEventListener('click', () => showMenu(menu.getAttribute('aria-expanded') !== 'true'));

try {
  const address = document.querySelector('link[rel="service-desc"]')?.getAttribute('href') ?? '/openapi.json';
  const response = await fetch(address, { signal: AbortSignal.timeout(LOAD_TIMEOUT_MS) });
  if (!response.ok) throw new Error(`${address} answered ${response.status}.`);
  start(await response.json());
} catch (error) {
  const reason = error instanceof Error ? error.message : String(error);
  main.replaceChildren(
    element('p', { class: 'problem', role: 'alert' }, `The API description cannot be read: ${reason}`),
  );
}
