import { button, createLog, createStatus, element } from './element.js';
import { createEventParser } from './event-parser.js';
import { addedText, prettyJson } from './stream-text.js';

/** @import { ApiRequest } from './openapi-types.d.ts' */

const MAX_EVENTS = 500;
const LONGEST_TEXT = 1024 * 1024;

/**
 * Sends requests, one at a time, and shows what comes back while it comes.
 * @param {() => ApiRequest | undefined} nextRequest undefined: the form is not ready to be sent
 * @param {() => string} token
 */
export function createResponseView(nextRequest, token) {
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
      const response = await fetch(request.url, {
        method: request.method,
        headers: { ...request.headers, ...(token() && { authorization: `Bearer ${token()}` }) },
        body: request.body ?? null,
        signal: abort.signal,
        cache: 'no-store',
      });
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
    if (text.length > LONGEST_TEXT) break;
  }
  const cut = text.length > LONGEST_TEXT;
  const shown = cut ? text.slice(0, LONGEST_TEXT) : prettyJson(text);
  if (shown !== '') result.append(element('pre', { tabindex: 0, 'aria-label': 'Response body' }, shown));
  return cut ? `the first ${LONGEST_TEXT} characters` : `${bytes} bytes`;
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
    if (text === '' || assembled.length > LONGEST_TEXT) return;
    assembled.appendData(text);
    if (!whole.isConnected) eventsTitle.before(element('h4', {}, 'Text'), whole);
  });
  for await (const chunk of chunksOf(response)) parser.push(chunk);
  return `${events} events`;
}
