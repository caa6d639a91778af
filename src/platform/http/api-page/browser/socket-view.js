import { button, createLog, createStatus, element } from './element.js';

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
