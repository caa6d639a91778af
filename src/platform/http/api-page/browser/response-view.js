import { button, createLog, createStatus, element } from './element.js';

/** @import { ApiRequest, StreamEvent } from './openapi-types.d.ts' */

const MAX_EVENTS = 500;
const MAX_TEXT = 1024 * 1024;

/**
 * Sends requests, one at a time, and shows what comes back while it comes.
 * @param {() => ApiRequest | undefined} nextRequest undefined: the form is not ready to be sent
 * @param {() => string} token
 * @param {(url: string, signal: AbortSignal) => Promise<string>} exchangeLogin a token for who is logged in, or none
 */
export function createResponseView(nextRequest, token, exchangeLogin) {
  const { status, showStatus } = createStatus('Nothing sent yet.');
  const result = element('div', { class: 'result' });
  const send = element('button', { class: 'primary' }, 'Send');
  const stop = button('Stop', () => running?.abort(), { disabled: true });
  /** @type {AbortController | undefined} */
  let running;

  async function run() {
    const request = nextRequest();
    if (request === undefined || running !== undefined) return;
    const started = performance.now();
    const abort = new AbortController();
    running = abort;
    setRunning(true);
    result.replaceChildren();
    showStatus('', 'Waiting for an answer …');
    let answer = '';
    const took = () => `${Math.round(performance.now() - started)} ms`;
    try {
      /** @param {string} bearer */
      const attempt = (bearer) =>
        fetch(request.url, {
          method: request.method,
          headers: { ...request.headers, ...(bearer && { authorization: `Bearer ${bearer}` }) },
          body: request.body ?? null,
          signal: abort.signal,
          cache: 'no-store',
        });
      let response = await attempt(token());
      // A refused request has done nothing, so that it can be sent again.
      const login = response.status === 401 && !token() ? await exchangeLogin(request.url, abort.signal) : '';
      if (login) response = await attempt(login);
      answer = `${response.status} ${response.statusText}`.trim();
      const kind = response.ok ? 'good' : 'bad';
      const firstByte = took();
      showStatus(kind, `${answer} · ${firstByte} · receiving …`);
      result.append(headersOf(response));
      const streaming = response.headers.get('content-type')?.startsWith('text/event-stream');
      const size = await (streaming ? showEvents(response, result) : showBody(response, result));
      showStatus(kind, `${answer} · first byte ${firstByte}, all ${took()} · ${size}`);
    } catch (error) {
      const reason = abort.signal.aborted ? 'stopped' : `failed: ${error instanceof Error ? error.message : error}`;
      showStatus('bad', [answer, reason, took()].filter((part) => part !== '').join(' · '));
    } finally {
      abort.abort();
      running = undefined;
      setRunning(false);
    }
  }

  /** @param {boolean} isRunning */
  function setRunning(isRunning) {
    const [from, to] = isRunning ? [send, stop] : [stop, send];
    to.disabled = false;
    // A button that is disabled would lose the keyboard's focus.
    if (document.activeElement === from) to.focus();
    from.disabled = true;
  }

  return {
    actions: element('div', { class: 'actions' }, send, stop),
    panel: element('section', { 'aria-label': 'Response' }, element('h3', {}, 'Response'), status, result),
    submit: run,
    run,
    close: () => running?.abort(),
  };
}

/** @param {Response} response */
function headersOf(response) {
  const rows = [...response.headers].map(([name, value]) =>
    element('tr', {}, element('th', { scope: 'row' }, name), element('td', {}, value)),
  );
  const table = element('table', {}, element('tbody', {}, ...rows));
  return element('details', {}, element('summary', {}, `Headers (${rows.length})`), table);
}

/**
 * Not every browser can iterate over the body itself.
 * @param {Response} response
 */
async function* chunksOf({ body }) {
  const reader = body?.getReader();
  for (let read = await reader?.read(); read?.value; read = await reader?.read()) yield read.value;
}

/**
 * @param {Response} response
 * @param {HTMLElement} result
 */
async function showBody(response, result) {
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  for await (const chunk of chunksOf(response)) {
    bytes += chunk.byteLength;
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_TEXT) break;
  }
  const cut = text.length > MAX_TEXT;
  const shown = cut ? text.slice(0, MAX_TEXT) : prettyJson(text);
  if (shown !== '') result.append(element('pre', { tabindex: 0, 'aria-label': 'Response body' }, shown));
  return cut ? `the first ${MAX_TEXT} characters` : `${bytes} bytes`;
}

/**
 * @param {Response} response
 * @param {HTMLElement} result
 */
async function showEvents(response, result) {
  const log = createLog('Events', MAX_EVENTS);
  const assembled = document.createTextNode('');
  const whole = element('pre', { class: 'assembled', tabindex: 0, 'aria-label': 'Text so far' }, assembled);
  const eventsTitle = element('h4', {}, 'Events');
  result.append(eventsTitle, log.list);
  let events = 0;
  const parser = createEventParser(({ event, id, data }) => {
    events += 1;
    const name = [event === 'message' ? '' : event, id && `id ${id}`].filter((part) => part !== '').join(' ');
    log.add(element('span', { class: 'label' }, name || String(events)), element('code', {}, data));
    const text = addedText(data);
    if (text === '' || assembled.length > MAX_TEXT) return;
    assembled.appendData(text);
    if (!whole.isConnected) eventsTitle.before(element('h4', {}, 'Text'), whole);
  });
  for await (const chunk of chunksOf(response)) parser.push(chunk);
  return `${events} events`;
}

const MAX_EVENT = 4 * 1024 * 1024;

/**
 * Reads `text/event-stream` bytes, however they are cut, and calls back for each event.
 * @param {(event: StreamEvent) => void} onEvent
 * @returns {{ push(bytes: Uint8Array): void }}
 */
export function createEventParser(onEvent) {
  const decoder = new TextDecoder();
  let rest = '';
  let afterReturn = false;
  let event = '';
  let id = '';
  /** @type {string[]} */
  let data = [];
  let size = 0;

  /** @param {string} line */
  function takeLine(line) {
    if (line === '') {
      if (data.length > 0) onEvent({ event: event || 'message', id, data: data.join('\n') });
      event = '';
      data = [];
      size = 0;
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') {
      data.push(value);
      size += value.length + 1;
    } else if (field === 'event') event = value;
    else if (field === 'id' && !value.includes('\0')) id = value;
  }

  return {
    push(bytes) {
      let text = decoder.decode(bytes, { stream: true });
      if (text === '') return;
      // A line feed after a carriage return that ended the chunk before belongs to that line end.
      if (afterReturn && text.startsWith('\n')) text = text.slice(1);
      afterReturn = text === '' ? false : text.endsWith('\r');
      const lines = (rest + text).split(/\r\n|\n|\r/);
      rest = lines.pop() ?? '';
      for (const line of lines) takeLine(line);
      if (size + rest.length > MAX_EVENT) throw new Error('An event is too large to show.');
    },
  };
}

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

const MAX_MESSAGES = 500;

/**
 * A WebSocket that the reader opens, writes to and watches.
 * @param {() => string | undefined} nextUrl undefined: the form is not ready
 * @param {() => string} nextMessage
 */
export function createSocketView(nextUrl, nextMessage) {
  const { status, showStatus } = createStatus('Not connected.');
  const log = createLog('Messages', MAX_MESSAGES);
  const connect = element('button', { class: 'primary' }, 'Connect');
  const send = button('Send', sendMessage, { disabled: true });
  /** @type {WebSocket | undefined} */
  let socket;

  function toggle() {
    if (socket) {
      socket.close(1000);
      return;
    }
    const url = nextUrl();
    if (url === undefined) return;
    const opened = new WebSocket(url.replace(/^http/, 'ws'));
    socket = opened;
    showStatus('', 'Connecting …');
    connect.textContent = 'Disconnect';
    opened.addEventListener('open', () => {
      showStatus('good', 'Connected.');
      send.disabled = false;
    });
    opened.addEventListener('message', ({ data }) => add('received', typeof data === 'string' ? data : '(binary)'));
    opened.addEventListener('close', ({ code, reason }) => {
      showStatus(code === 1000 ? '' : 'bad', `Closed with ${code}${reason ? `: ${reason}` : ''}.`);
      connect.textContent = 'Connect';
      send.disabled = true;
      socket = undefined;
    });
  }

  function sendMessage() {
    if (socket?.readyState !== WebSocket.OPEN) return;
    socket.send(nextMessage());
    add('sent', nextMessage());
  }

  /**
   * @param {string} direction
   * @param {string} text
   */
  function add(direction, text) {
    const label = element('span', { class: `label ${direction}` }, direction);
    log.add(label, element('time', {}, new Date().toLocaleTimeString()), element('code', {}, text));
  }

  return {
    actions: element('div', { class: 'actions' }, connect, send),
    panel: element('section', { 'aria-label': 'Messages' }, element('h3', {}, 'Messages'), status, log.list),
    submit: toggle,
    run: sendMessage,
    close: () => socket?.close(1000),
  };
}
