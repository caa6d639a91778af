import { hash } from 'node:crypto';
import type { JobRecord } from '../../../../src/bridge/contract/jobs.ts';
import type { CallbackNetwork } from '../../../../src/platform/callbacks/callback-post.ts';
import { type Clock, pause } from '../../../../src/platform/clock/clock.ts';
import type { SeenJob } from '../../jobs/check-operations.ts';
import { seenOf } from '../../jobs/job-operations.ts';
import type { Chance } from '../chance.ts';

/** A webhook that has arrived, and how it is answered; `none`: never, or the connection breaks. */
export interface CallbackEvent {
  readonly kind: 'callback';
  readonly at: number;
  readonly jobId: string;
  readonly delivery: string;
  /** Stands for what it said. */
  readonly digest: string;
  readonly answer: number | 'none';
}

export interface PlayedReceiversOptions {
  /** Of the process that calls. */
  readonly clock: Clock;
  readonly chance: Chance;
  now(): number;
  note(event: CallbackEvent | { readonly kind: 'seen'; readonly job: SeenJob }): void;
}

const PUBLIC = '93.184.216.34';
const INSIDE = '10.0.0.1';

/** Receivers of webhooks behind a network in which anything may happen. */
export function createPlayedReceivers({ clock, chance, now, note }: PlayedReceiversOptions): CallbackNetwork {
  return {
    ownAddresses: () => [],
    async lookUp(name) {
      if (chance.happens(0.2)) await pause(clock, chance.between(1, 7000));
      if (chance.happens(0.05)) throw new Error('there is no answer');
      return [name.startsWith('inside') ? INSIDE : PUBLIC];
    },
    async send({ headers, body, signal }) {
      await pause(clock, chance.happens(0.7) ? 0 : chance.between(1, 3000), signal);
      if (signal.aborted || chance.happens(0.08)) throw new Error('the connection was refused');
      const answer = chance.weigh<CallbackEvent['answer']>([
        [60, 200],
        [15, 503],
        [5, 429],
        [5, 404],
        [15, 'none'],
      ]);
      const jobId = headers['x-app-job-id'] ?? '';
      const delivery = headers['x-app-delivery'] ?? '';
      note({ kind: 'callback', at: now(), jobId, delivery, digest: hash('sha256', body), answer });
      note({ kind: 'seen', job: seenOf(JSON.parse(body) as JobRecord) });
      if (answer === 'none' && chance.happens(0.5)) await pause(clock, 60_000, signal);
      else await pause(clock, chance.happens(0.7) ? 0 : chance.between(1, 9000), signal);
      if (signal.aborted || answer === 'none') throw new Error('the connection was lost');
      return answer;
    },
  };
}
