import { PassThrough, type Readable, Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import {
  type ChannelEnd,
  createLineChannel,
  type LineChannelOptions,
} from '../../../src/platform/json-rpc/message-channel.ts';
import { createManualTimers } from './manual-timers.ts';

/** A line channel over streams in memory, and all that came out of it. */
export function openLineChannel(options: Partial<LineChannelOptions> = {}) {
  const input = new PassThrough();
  const output = new PassThrough();
  const timers = createManualTimers();
  const channel = createLineChannel({
    readable: input,
    writable: output,
    maxLineBytes: 1000,
    clock: timers,
    ...options,
  });
  const messages: string[] = [];
  const ends: ChannelEnd[] = [];
  channel.onMessage((text) => messages.push(text));
  channel.onEnd((end) => ends.push(end));
  return {
    channel,
    input,
    output,
    timers,
    messages,
    ends,
    /** Lets the streams do all that they can. */
    async settle() {
      for (let round = 0; round < 5; round += 1) await turn();
    },
    written: () => String((output as Readable).read() ?? ''),
  };
}

/** An output that takes nothing. */
export function createStuckWritable(): Writable {
  return new Writable({ write: () => undefined });
}
