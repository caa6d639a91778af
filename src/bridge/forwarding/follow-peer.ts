import type { LookupFunction, Socket } from 'node:net';
import type { Clock } from '../../platform/clock/clock.ts';
import { createPeerConnector } from './peer-connector.ts';
import { readPeerMessage } from './read-peer-answer.ts';

/** Updates of a session that lives on another node. */
export interface PeerUpdates {
  /** The endpoint of the node, without a final slash. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly sessionId: string;
  /** Those after this one are sent first; undefined: only those to come. */
  readonly afterSeq: number | undefined;
  update(params: unknown): void;
  /** Resolves when more can be taken. */
  drained(): Promise<boolean>;
  /** Called once, when no more will come. */
  ended(): void;
}

/** Follows until it is over, or until the returned function is called. */
export type FollowPeer = (updates: PeerUpdates) => Promise<() => void>;

export interface FollowPeerOptions {
  readonly clock: Pick<Clock, 'after'>;
  readonly lookup?: LookupFunction | undefined;
  readonly connectMs: number;
  /** For a sign of life: the other side pings every thirty seconds. */
  readonly idleMs: number;
}

const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

/** `GET /acp?sessionId=` of another node, as a client of that session (contract/bridge 1, Resume). */
export function createFollowPeer({ clock, lookup, connectMs, idleMs }: FollowPeerOptions): FollowPeer {
  return async (updates) => {
    const [{ WebSocket }, { buildConnector }] = await Promise.all([import('ws'), import('undici')]);
    const connect = createPeerConnector(buildConnector, {
      clock,
      lookup,
      connectMs,
      beforeSend: async () => undefined,
    });
    const { protocol, hostname, port } = new URL(updates.endpoint);
    const query = new URLSearchParams({
      sessionId: updates.sessionId,
      ...(updates.afterSeq !== undefined && { afterSeq: String(updates.afterSeq) }),
    });
    const socket = new WebSocket(`${updates.endpoint.replace(/^http/, 'ws')}/acp?${query}`, {
      headers: updates.headers,
      perMessageDeflate: false,
      followRedirects: false,
      handshakeTimeout: connectMs,
      maxPayload: MAX_MESSAGE_BYTES,
      // Given the connection when it stands, and only when its address is one that may be used.
      createConnection: ((_options: unknown, made: (error: Error | null, socket?: Socket) => void) => {
        const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
        connect({ protocol, hostname: host, host, port }, (error, connected) =>
          error === null ? made(null, connected) : made(error),
        );
      }) as never,
    });
    let stopTimer = clock.after(idleMs, () => socket.terminate());
    const alive = (): void => {
      stopTimer();
      stopTimer = clock.after(idleMs, () => socket.terminate());
    };
    socket.on('ping', alive);
    socket.on('open', alive);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      stopTimer();
      updates.ended();
    });
    socket.on('message', (data) => {
      alive();
      const message = readPeerMessage(String(data));
      if (message?.method !== 'session.update') return;
      updates.update(message.params);
      socket.pause();
      void updates.drained().then(() => socket.resume());
    });
    return () => socket.close();
  };
}
