import { element } from './element.js';
import { createOperationView, methodBadge } from './operation-view.js';
import { groupOperations, matches } from './operations.js';

/** @import { OpenApiDocument, Operation } from './openapi-types.d.ts' */

const LOAD_TIMEOUT_MS = 15_000;

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

/** @param {OpenApiDocument} api */
function start(api) {
  document.title = api.info.title;
  byId('title', HTMLElement).textContent = api.info.title;
  byId('version', HTMLElement).textContent = api.info.version;
  const groups = groupOperations(api).map(({ title, operations }) => {
    const entries = operations.map((operation) => ({ operation, link: operationLink(operation) }));
    const items = entries.map(({ link }) => element('li', {}, link));
    return { entries, section: element('section', {}, element('h2', {}, title), element('ul', {}, ...items)) };
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
    shown?.close();
    shown = createOperationView(api, chosen.operation, () => token.value.trim());
    main.replaceChildren(shown.view);
    showMenu(false);
    if (asked) shown.heading.focus();
  }

  function filter() {
    for (const { entries, section } of groups) {
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
}

/** @param {Operation} operation */
function operationLink({ operationId, method, path, summary }) {
  const text = element('span', { class: 'address' }, element('code', {}, path), element('small', {}, summary));
  return element('a', { href: `#${encodeURIComponent(operationId)}` }, methodBadge(method), text);
}

/** @param {boolean} open */
function showMenu(open) {
  menu.setAttribute('aria-expanded', String(open));
}

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
