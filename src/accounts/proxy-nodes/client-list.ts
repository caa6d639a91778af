import { createHash } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';
import type { ClientListStore } from '../storage/proxy-node-store.ts';
import { timeText } from '../user-object.ts';
import { FLOW } from './describe-node.ts';

/** The users that proxy nodes let in, ready to be sent. */
export interface ClientList {
  /** Digest of the clients: the same list always has the same one, in every instance. */
  readonly revision: string;
  readonly body: Buffer;
}

interface CurrentList extends ClientList {
  /** The list in the store that it was made from. */
  readonly storedRevision: number;
  readonly madeAt: number;
  /** When the next of its clients ends. */
  readonly endsAt: number;
}

const PAGE = 2000;

/**
 * Makes the list when it has changed and keeps it until it changes again: nodes ask every minute, and mostly nothing has
 * happened. Costs one keyed read then.
 */
export function createClientList(store: ClientListStore, clock: Pick<Clock, 'now'>): () => Promise<ClientList> {
  let current: CurrentList | undefined;
  let making: Promise<CurrentList> | undefined;

  async function make(storedRevision: number): Promise<CurrentList> {
    const now = clock.now();
    const clients: Buffer[] = [];
    let endsAt = Number.POSITIVE_INFINITY;
    let after = '';
    for (let isLast = false; !isLast; ) {
      const rows = await store.page(after, now, PAGE);
      for (const row of rows) {
        const client = { id: row.proxy_uuid, email: row.email, flow: FLOW };
        clients.push(Buffer.from(`${clients.length === 0 ? '' : ','}${JSON.stringify(client)}`));
        endsAt = Math.min(endsAt, row.proxy_uuid_expires_at ?? endsAt);
      }
      after = rows.at(-1)?.id ?? '';
      isLast = rows.length < PAGE;
    }
    const digest = createHash('sha256');
    for (const client of clients) digest.update(client);
    const revision = digest.digest('base64url').slice(0, 22);
    const rest = { total: clients.length, generatedAt: timeText(now), revision };
    const body = Buffer.concat([
      Buffer.from('{"clients":['),
      ...clients,
      Buffer.from(`],${JSON.stringify(rest).slice(1)}`),
    ]);
    return { revision, body, storedRevision, madeAt: now, endsAt };
  }

  return async () => {
    const storedRevision = await store.revision();
    const now = clock.now();
    const isCurrent = current?.storedRevision === storedRevision && now < current.endsAt && now >= current.madeAt;
    if (current !== undefined && isCurrent) return current;
    // Whoever asks meanwhile waits for the one that is being made, if it is made from what they have seen.
    making ??= make(storedRevision).finally(() => {
      making = undefined;
    });
    const made = await making;
    if (made.storedRevision < storedRevision) return make(storedRevision);
    if (current === undefined || current.storedRevision <= made.storedRevision) current = made;
    return made;
  };
}
