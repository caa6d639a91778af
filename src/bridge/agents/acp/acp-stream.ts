import type { AnyMessage, Stream } from '@agentclientprotocol/sdk';
import type { AgentChannel, RpcMessage } from '../agent-channel.ts';

const UPDATE = 'session/update';

/**
 * An agent's messages as the protocol's SDK wants them. Updates are taken out on the way: the SDK refuses those of kinds
 * that it does not know, and checks each of them at a cost. So are answers to questions that nobody asked, on which it
 * writes to our own standard error.
 */
export function createAcpStream(channel: AgentChannel, onUpdate: (params: unknown) => void): Stream {
  const unanswered = new Set<unknown>();
  let isOpen = true;

  const readable = new ReadableStream<AnyMessage>({
    start(controller) {
      channel.onMessage((message) => {
        if (!isOpen || message.jsonrpc !== '2.0') return;
        if (message.method === UPDATE && message.id === undefined) onUpdate(message.params);
        else if (message.method !== undefined || unanswered.delete(message.id)) controller.enqueue(toMessage(message));
      });
      channel.onEnd(() => {
        if (isOpen) controller.close();
        isOpen = false;
      });
    },
    cancel() {
      isOpen = false;
      channel.close();
    },
  });

  const writable = new WritableStream<AnyMessage>({
    write(message) {
      if ('method' in message && 'id' in message) unanswered.add(message.id);
      channel.send(JSON.stringify(message));
    },
  });

  return { readable, writable };
}

function toMessage(message: RpcMessage): AnyMessage {
  return message as AnyMessage;
}
