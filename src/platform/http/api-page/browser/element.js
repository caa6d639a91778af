/**
 * Builds an element. Strings become text nodes, whatever they hold: the page never turns data into markup.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean>} [attributes] false leaves one out
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) created.setAttribute(name, value === true ? '' : String(value));
  }
  created.append(...children);
  return created;
}

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {Record<string, string | number | boolean>} [attributes]
 */
export function button(label, onClick, attributes = {}) {
  const created = element('button', { type: 'button', ...attributes }, label);
  created.addEventListener('click', onClick);
  return created;
}

/**
 * Text in which `backticks` mark code.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function prose(text) {
  return text.split('`').map((part, index) => (index % 2 === 1 ? element('code', {}, part) : part));
}

let fields = 0;

/**
 * A labelled field. `hint` is read out with it.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [hint]
 */
export function field(label, control, hint = '') {
  fields += 1;
  control.id = `field-${fields}`;
  const parts = [element('label', { for: control.id }, label), control];
  if (hint !== '') {
    control.setAttribute('aria-describedby', `${control.id}-hint`);
    parts.push(element('p', { id: `${control.id}-hint`, class: 'hint' }, ...prose(hint)));
  }
  return element('div', { class: 'field' }, ...parts);
}

/**
 * A list that keeps its newest entries and stays at its end while the reader does.
 * @param {string} label
 * @param {number} longest
 */
export function createLog(label, longest) {
  const list = element('ol', { class: 'log', tabindex: 0, 'aria-label': label });
  return {
    list,
    /** @param {...(Node | string)} parts */
    add(...parts) {
      const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      list.append(element('li', {}, ...parts));
      if (list.childElementCount > longest) list.firstElementChild?.remove();
      if (atEnd) list.scrollTop = list.scrollHeight;
    },
  };
}

/**
 * A line that tells how things stand, and is read out when it changes.
 * @param {string} first
 */
export function createStatus(first) {
  const status = element('p', { class: 'status', role: 'status' }, first);
  /** @type {(kind: '' | 'good' | 'bad', text: string) => void} */
  const showStatus = (kind, text) => {
    status.className = `status ${kind}`;
    status.textContent = text;
  };
  return { status, showStatus };
}
