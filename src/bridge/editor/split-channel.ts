import type { ChannelEnd, MessageChannel } from '../../platform/json-rpc/message-channel.ts';

export interface SplitChannel {
  /** Messages for the methods of the Agent Client Protocol. */
  readonly editor: MessageChannel;
  /** Everything else, what cannot be read included. */
  readonly app: MessageChannel;
}

/** The ids of our own requests to the editor begin so: their answers are told by it from those of the app. */
export const EDITOR_ID_PREFIX = 'trestle-';

/**
 * One stream that carries two protocols: the Agent Client Protocol writes its names with slashes, the bridge's own method
 * family with dots. What is sent by either side goes out as it is.
 */
export function splitChannel(channel: MessageChannel): SplitChannel {
  let toEditor: ((text: string) => void) | undefined;
  let toApp: ((text: string) => void) | undefined;
  const endListeners: ((end: ChannelEnd) => void)[] = [];

  /** Only when both sides listen: until then the messages wait in the stream. */
  function listen(): void {
    if (toEditor === undefined || toApp === undefined) return;
    channel.onMessage((text) => (isForEditor(text) ? toEditor : toApp)?.(text));
    channel.onEnd((end) => {
      for (const listener of endListeners) listener(end);
    });
  }

  const shared = {
    send: channel.send,
    close: channel.close,
    ...(channel.isBehind !== undefined && { isBehind: channel.isBehind }),
    ...(channel.drained !== undefined && { drained: channel.drained }),
    onEnd: (listener: (end: ChannelEnd) => void) => void endListeners.push(listener),
  };
  return {
    editor: {
      ...shared,
      onMessage(listener) {
        toEditor = listener;
        listen();
      },
    },
    app: {
      ...shared,
      onMessage(listener) {
        toApp = listener;
        listen();
      },
    },
  };
}

function isForEditor(text: string): boolean {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch {
    return false;
  }
  const { method, id } = Object(message) as { readonly method?: unknown; readonly id?: unknown };
  // An answer belongs to the side that asked.
  if (method === undefined) return typeof id === 'string' && id.startsWith(EDITOR_ID_PREFIX);
  if (typeof method !== 'string') return false;
  return method === 'initialize' || method === 'authenticate' || method.includes('/') || method.startsWith('_');
}
