import type { ChannelEnd, MessageChannel } from '../../src/platform/json-rpc/message-channel.ts';

/**
 * Two connected channels in memory. Messages arrive in order, each in a microtask of its own; what is sent before the
 * other end listens waits for it.
 */
export function createMemoryChannels(): [MessageChannel, MessageChannel] {
  const left = createEnd();
  const right = createEnd();
  return [connect(left, right), connect(right, left)];
}

interface MemoryEnd {
  readonly inbox: string[];
  onMessage: ((text: string) => void) | undefined;
  onEnd: ((end: ChannelEnd) => void) | undefined;
  ended: ChannelEnd | undefined;
}

function createEnd(): MemoryEnd {
  return { inbox: [], onMessage: undefined, onEnd: undefined, ended: undefined };
}

function connect(own: MemoryEnd, other: MemoryEnd): MessageChannel {
  return {
    send(text) {
      if (own.ended !== undefined) return;
      other.inbox.push(text);
      queueMicrotask(() => deliver(other));
    },
    close(code = 1000, reason = '') {
      if (own.ended !== undefined) return;
      for (const end of [own, other]) {
        end.ended = { code, reason };
        end.onEnd?.(end.ended);
      }
    },
    onMessage(listener) {
      own.onMessage = listener;
      queueMicrotask(() => {
        while (own.inbox.length > 0 && own.ended === undefined) deliver(own);
      });
    },
    onEnd(listener) {
      own.onEnd = listener;
      if (own.ended !== undefined) listener(own.ended);
    },
  };
}

function deliver(end: MemoryEnd): void {
  if (end.onMessage === undefined || end.ended !== undefined) return;
  const text = end.inbox.shift();
  if (text !== undefined) end.onMessage(text);
}
