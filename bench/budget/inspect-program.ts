import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import type { RunningProgram, Scope } from '../../test/kit/running-program.ts';
import type { CpuProfile } from './areas.ts';

/** The environment of a program that can be inspected, on a port that the system chooses. */
export const INSPECTED = { NODE_OPTIONS: '--inspect=127.0.0.1:0' };

/** Microseconds of processor time since the start: of all threads, and of the main thread alone. */
export interface ProcessorTime {
  readonly all: number;
  readonly main: number;
}

export interface Inspection {
  processorTime(): Promise<ProcessorTime>;
  /** Samples the main thread while `work` runs. */
  profile(work: () => Promise<unknown>): Promise<CpuProfile>;
}

const ADDRESS = /ws:\/\/127\.0\.0\.1:\d{1,5}\/[\w-]{1,64}/;
const FIND_LIMIT_MS = 10_000;
/** Often enough for an area of one percent within a second; the sampling itself takes a few percent then. */
const SAMPLE_EVERY_MS = 0.25;
const READ_TIME = 'JSON.stringify([process.cpuUsage(), process.threadCpuUsage()])';

interface Reply {
  readonly id?: number;
  readonly result?: { readonly profile?: CpuProfile; readonly result?: { readonly value?: string } };
  readonly error?: { readonly message: string };
}

/** Connects to the inspector of a program, which was started with `INSPECTED`. */
export async function inspectProgram(scope: Scope, program: RunningProgram): Promise<Inspection> {
  const socket = new WebSocket(await addressOf(program), { perMessageDeflate: false, maxPayload: 0 });
  scope.after(() => socket.terminate());
  const waiting = new Map<number, PromiseWithResolvers<Reply>>();
  let lastId = 0;
  socket.on('message', (data) => {
    const reply = JSON.parse(String(data)) as Reply;
    if (reply.id !== undefined) waiting.get(reply.id)?.resolve(reply);
  });
  socket.on('close', () => {
    for (const { reject } of waiting.values()) reject(new Error('the inspector closed the connection'));
  });
  await once(socket, 'open');

  async function call(method: string, params: object = {}): Promise<NonNullable<Reply['result']>> {
    lastId += 1;
    const id = lastId;
    const reply = Promise.withResolvers<Reply>();
    waiting.set(id, reply);
    socket.send(JSON.stringify({ id, method, params }));
    const { result, error } = await reply.promise;
    waiting.delete(id);
    if (result === undefined) throw new Error(`${method}: ${error?.message ?? 'no result'}`);
    return result;
  }

  return {
    async processorTime() {
      const { result } = await call('Runtime.evaluate', { expression: READ_TIME });
      const [all, main] = JSON.parse(result?.value ?? '[]') as { user: number; system: number }[];
      if (all === undefined || main === undefined) throw new Error('the program does not tell its processor time');
      return { all: all.user + all.system, main: main.user + main.system };
    },
    async profile(work) {
      await call('Profiler.enable');
      await call('Profiler.setSamplingInterval', { interval: SAMPLE_EVERY_MS * 1000 });
      await call('Profiler.start');
      await work();
      const { profile } = await call('Profiler.stop');
      await call('Profiler.disable');
      if (profile === undefined) throw new Error('the program gave no profile');
      return profile;
    },
  };
}

/** Node writes the address to the standard error when the program starts. */
async function addressOf(program: RunningProgram): Promise<string> {
  const until = performance.now() + FIND_LIMIT_MS;
  for (;;) {
    const found = ADDRESS.exec(program.stderr())?.[0];
    if (found !== undefined) return found;
    if (performance.now() > until) throw new Error(`no inspector: ${program.stderr()}`);
    await sleep(10);
  }
}
