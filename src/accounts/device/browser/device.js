/** Lets a person approve the code of a device: code, login where it is needed, then what the device asks for. */

/** @template {HTMLElement} [Kind=HTMLElement] @param {string} id */
const element = (id) => /** @type {Kind} */ (document.getElementById(id));
const forms = ['code-form', 'login-form', 'factor-form', 'decision-form'].map(
  (id) => /** @type {HTMLFormElement} */ (element(id)),
);
const message = element('message');
const passkey = /** @type {HTMLButtonElement} */ (element('passkey'));

const ABILITIES = {
  bridge: 'run agents for you, and see your sessions and jobs',
  completions: 'use models at your cost, within your plan',
  account: 'see your account and its tokens, and revoke tokens and keys',
};
const LOGIN_ERRORS = ['session_token_required', 'invalid_session', 'reauthentication_required'];

let code = '';
let ticket = '';
/** Whether this page has opened the login session: then it ends the session, too. */
let isOwnLogin = false;

/** @param {string} id */
const fieldValue = (id) => /** @type {HTMLInputElement} */ (element(id)).value;

/** @param {string} text @param {'good' | 'bad' | ''} kind */
function say(text, kind) {
  message.textContent = text;
  message.className = kind;
}

/** @param {string} id */
function show(id) {
  for (const form of forms) form.hidden = form.id !== id;
  say('', '');
  forms
    .find((form) => form.id === id)
    ?.querySelector('input')
    ?.focus();
}

/** @param {string} method @param {string} path @param {unknown} [body] */
async function send(method, path, body) {
  const response = await fetch(`/api/auth/${path}`, {
    method,
    ...(body !== undefined && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { ok: response.ok, answer: text === '' ? {} : JSON.parse(text) };
}

/** @param {{ error?: string, message?: string }} answer */
function refuse(answer) {
  if (LOGIN_ERRORS.includes(answer.error ?? '')) {
    show('login-form');
    say('Log in: approving needs a login from the last five minutes.', '');
  } else say(answer.message ?? 'That did not work; try again.', 'bad');
}

async function look() {
  const { ok, answer } = await send('GET', `device/approval/${encodeURIComponent(code)}`);
  if (!ok) {
    if (answer.error === 'device_code_not_found') show('code-form');
    refuse(answer);
    return;
  }
  element('client').textContent = answer.client;
  element('address').textContent = answer.address;
  element('token-name').textContent = answer.name;
  const lines = answer.scopes.map((/** @type {keyof typeof ABILITIES} */ scope) => {
    const line = document.createElement('li');
    line.textContent = ABILITIES[scope];
    return line;
  });
  element('scopes').replaceChildren(...lines);
  show('decision-form');
}

/** @param {{ ok: boolean, answer: any }} login */
async function afterLogin({ ok, answer }) {
  if (!ok) {
    if (answer.error === 'invalid_mfa_ticket') show('login-form');
    say(answer.message ?? 'That did not work; try again.', 'bad');
    return;
  }
  if (answer.mfaRequired) {
    ticket = answer.mfaTicket;
    show('factor-form');
    return;
  }
  isOwnLogin = true;
  await look();
}

async function logInWithPasskey() {
  const options = await send('POST', 'passkeys/options', {});
  if (!options.ok) return refuse(options.answer);
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options.answer.publicKey);
  const credential = await navigator.credentials.get({ publicKey });
  if (!(credential instanceof PublicKeyCredential)) return undefined;
  return afterLogin(await send('POST', 'passkeys/verify', { credential: credential.toJSON() }));
}

/** @param {boolean} approve */
async function decide(approve) {
  const { ok, answer } = await send('POST', `device/approval/${encodeURIComponent(code)}`, { approve });
  if (!ok) {
    if (answer.error === 'device_code_not_found') show('code-form');
    refuse(answer);
    return;
  }
  if (isOwnLogin) await send('DELETE', 'session');
  show('');
  if (approve) say('Approved. The program goes on by itself; you can close this page.', 'good');
  else say('Denied. The program gets nothing; you can close this page.', 'good');
}

/** @param {() => Promise<unknown>} work */
async function run(work) {
  const buttons = [...document.querySelectorAll('button')];
  for (const button of buttons) button.disabled = true;
  try {
    await work();
  } catch {
    say('That did not work; try again.', 'bad');
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

/** @type {Record<string, () => Promise<unknown>>} */
const submits = {
  'code-form': async () => {
    code = fieldValue('code')
      .toUpperCase()
      .replaceAll(/[^A-Z]/g, '');
    if (code === '') say('Type the code that the program shows: eight letters.', 'bad');
    else await look();
  },
  'login-form': async () =>
    afterLogin(await send('POST', 'login', { identifier: fieldValue('identifier'), password: fieldValue('password') })),
  'factor-form': async () => {
    const typed = fieldValue('factor').trim();
    const factor = /^\d{6}$/.test(typed) ? { code: typed } : { recoveryCode: typed };
    await afterLogin(await send('POST', 'mfa/verify', { mfa_ticket: ticket, ...factor }));
  },
  'decision-form': () => decide(true),
};

for (const form of forms) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void run(submits[form.id] ?? (async () => undefined));
  });
}
element('deny').addEventListener('click', () => void run(() => decide(false)));
passkey.hidden = typeof PublicKeyCredential !== 'function' || !('parseRequestOptionsFromJSON' in PublicKeyCredential);
passkey.addEventListener('click', () => void run(logInWithPasskey));
