/** Sends the first administrator's details. The token is kept in this script and taken out of the address bar. */

const token = location.hash.slice(1);
history.replaceState(null, '', location.pathname);

const form = /** @type {HTMLFormElement} */ (document.getElementById('form'));
const button = /** @type {HTMLButtonElement} */ (form.querySelector('button'));
const message = /** @type {HTMLElement} */ (document.getElementById('message'));

/** @param {string} text @param {'good' | 'bad'} kind */
function say(text, kind) {
  message.textContent = text;
  message.className = kind;
}

/** @param {string} name */
function field(name) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).value;
}

/** Settings that can be chosen here, because the configuration leaves them open. @type {Set<string>} */
const choices = new Set();

/** Shows the settings that can be chosen, or says that the link has ended. */
async function offerChoices() {
  const response = await post('/api/auth/setup/options', { token });
  const options = await response.json();
  if (!response.ok) {
    form.hidden = true;
    say(options.message ?? 'That did not work.', 'bad');
    return;
  }
  const select = /** @type {HTMLSelectElement} */ (form.elements.namedItem('default_plan'));
  for (const { name, pays, bridge } of options.default_plan.plans) {
    const includes = `${pays ? 'pays for models' : 'pays for nothing'}${bridge ? ', with agents' : ''}`;
    select.append(new Option(`${name} (${includes})`, name));
  }
  for (const name of ['registration', 'default_plan']) {
    const input = /** @type {HTMLSelectElement} */ (form.elements.namedItem(name));
    const { value, isConfigured } = options[name];
    input.value = value;
    input.disabled = isConfigured;
    if (!isConfigured) choices.add(name);
  }
  /** @type {HTMLElement} */ (document.getElementById('choices')).hidden = false;
}

/** @param {string} path @param {object} body */
function post(path, body) {
  return fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

/**
 * Logs the new administrator in, and offers the console, which may be switched off.
 *
 * @param {string} email @param {string | undefined} password
 */
async function enter(email, password) {
  const { ok: isLoggedIn } = await post('/api/auth/login', { identifier: email, password });
  say(isLoggedIn ? `Done. You are logged in as ${email}.` : `Done. Log in as ${email}.`, 'good');
  const path = isLoggedIn ? '/console' : '/login';
  const { ok: hasConsole } = await fetch(path, { method: 'HEAD' });
  if (!hasConsole) return;
  const link = document.createElement('a');
  link.href = path;
  link.textContent = isLoggedIn ? 'To the console' : 'To the login';
  form.after(link);
  link.focus();
}

async function create() {
  const [name, email, first, second] = ['name', 'email', 'password', 'again'].map(field);
  if (first !== second) {
    say('The two passwords differ.', 'bad');
    return;
  }
  button.disabled = true;
  try {
    const response = await post('/api/auth/setup', {
      ...{ token, name, email, password: first },
      ...Object.fromEntries([...choices].map((choice) => [choice, field(choice)])),
    });
    const answer = await response.json();
    if (!response.ok) {
      say(answer.message ?? 'That did not work.', 'bad');
      return;
    }
    form.hidden = true;
    await enter(answer.user.email, first);
  } catch {
    say('The server did not answer; try again.', 'bad');
  } finally {
    button.disabled = false;
  }
}

if (token === '') {
  form.hidden = true;
  say('Open the whole link that the program printed when it started: it is good once, for 15 minutes.', 'bad');
} else {
  // Without an answer the form still works, and what is left open stays as it is.
  offerChoices().catch(() => undefined);
}
form.addEventListener('submit', (event) => {
  event.preventDefault();
  void create();
});
