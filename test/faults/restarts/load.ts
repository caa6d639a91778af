import { setTimeout as sleep } from 'node:timers/promises';
import type { SubmitOperation } from '../jobs/check-operations.ts';
import type { JobSubmits } from '../jobs/job-operations.ts';
import { capabilities, chat, get, stream, submit } from './calls.ts';
import type { CallOperation, Operation } from './check-operations.ts';
import { type Call, createRetryingClient, type RetryingClient } from './retrying-client.ts';

export interface LoadOptions {
  /** Of the instances, as they are now. */
  urls(): readonly string[];
  random(): number;
  note(operation: Operation): void;
  noteParams: JobSubmits['noteParams'];
}

export interface Load {
  /** Begins streams on that instance, and resolves when all of them have begun. */
  beginStreams(instance: number): Promise<void>;
  /** Stops calling, waits for what is under way, and answers with the keys of all submits. */
  end(): Promise<readonly string[]>;
}

const CALLERS = 8;
const READERS = 2;
const STREAMS_AT_ONCE = 3;
/** Some clients call often and some seldom: their connections wait longer. */
const MAX_PAUSE_MS = [40, 100, 250, 1000];
const PROMPT = 'one two three four';

/** Clients that call and read until the end, whatever happens to the instances. */
export function startLoad({ urls, random, note, noteParams }: LoadOptions): Load {
  const keys: string[] = [];
  const jobIds: string[] = [];
  const open = new Set<Promise<void>>();
  let isOver = false;

  async function submitOnce(client: RetryingClient): Promise<void> {
    const key = `key-${keys.length}`;
    keys.push(key);
    noteParams(key, { taskPrompt: PROMPT });
    const { operation, text } = await client.call(submit(key, PROMPT));
    note(operation);
    const submitted = submittedBy(operation, key, text);
    note(submitted);
    if (submitted.jobId !== undefined) jobIds.push(submitted.jobId);
  }

  /** Of the other calls. */
  function anyCall(): Call {
    const jobId = jobIds[Math.floor(random() * jobIds.length)];
    const share = random();
    if (share < 0.4) return chat;
    return share < 0.7 || jobId === undefined ? capabilities : get(jobId);
  }

  async function callUntilOver(client: RetryingClient, longestPauseMs: number): Promise<void> {
    while (!isOver) {
      if (random() < 0.1) await submitOnce(client);
      else note((await client.call(anyCall())).operation);
      await sleep(random() * longestPauseMs);
    }
  }

  async function readUntilOver(client: RetryingClient): Promise<void> {
    while (!isOver) note((await client.call(stream)).operation);
  }

  const create = (stays: boolean) => createRetryingClient({ urls, random, stays });
  const clients = Array.from({ length: CALLERS + READERS }, (_, index) => create(index % 2 === 0));
  const streamer = create(false);
  const running = clients.map((client, index) =>
    index < CALLERS
      ? callUntilOver(client, MAX_PAUSE_MS[Math.floor(index / 2) % MAX_PAUSE_MS.length] ?? 0)
      : readUntilOver(client),
  );

  return {
    async beginStreams(first) {
      const begun = Array.from({ length: STREAMS_AT_ONCE }, () => {
        return new Promise<void>((resolve) => {
          const read = streamer.call(stream, { first, onHead: resolve }).then(({ operation }) => {
            note(operation);
            open.delete(read);
            resolve();
          });
          open.add(read);
        });
      });
      await Promise.all(begun);
    },
    async end() {
      isOver = true;
      await Promise.all([...running, ...open]);
      for (const client of [...clients, streamer]) client.close();
      return keys;
    },
  };
}

/** The same submit as those who judge jobs read it. */
function submittedBy({ startedAt, endedAt, outcome }: CallOperation, key: string, text: string): SubmitOperation {
  const submit = { kind: 'submit', key, startedAt, endedAt, outcome } as const;
  if (outcome !== 'ok') return submit;
  const { result } = JSON.parse(text) as { result: { jobId: string } };
  return { ...submit, jobId: result.jobId };
}
