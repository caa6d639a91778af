import { isIPv6, type LookupFunction } from 'node:net';
import type { buildConnector } from 'undici';
import { notOpen } from './callback-rules.ts';

export interface CallbackRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

/** Where a request may go. */
export interface CallbackWay {
  /** What the name in the URL stands for; none when the URL has an address in it. */
  readonly addresses: readonly string[];
  /** Asked about the address at the other end, which has the last word. */
  allows(address: string): boolean;
}

const MOST_READ = 64 * 1024;

type Connector = buildConnector.connector;

/** Posts once over a connection of its own, and gives the status of the answer. */
export async function sendCallback(
  { url, headers, body, signal }: CallbackRequest,
  { addresses, allows }: CallbackWay,
): Promise<number> {
  const { Agent, buildConnector, request } = await import('undici');
  const dispatcher = new Agent({
    connect: checkedConnector(buildConnector({ lookup: pinnedLookup(addresses) }), allows),
  });
  try {
    // It follows no redirect: that would lead to an address that was not checked.
    const answer = await request(url, { method: 'POST', headers, body, signal, dispatcher });
    await readSome(answer.body).catch(() => undefined);
    return answer.statusCode;
  } finally {
    await dispatcher.destroy();
  }
}

/** Connects to the addresses that were checked, whatever the name means by now. */
function pinnedLookup(addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
  return (_name, { all }, give) => {
    if (all) give(null, found);
    else give(null, found[0]?.address ?? '', found[0]?.family);
  };
}

/** The address at the other end has the last word. */
function checkedConnector(connect: Connector, allows: (address: string) => boolean): Connector {
  return (options, done) =>
    connect(options, (...[error, socket]) => {
      if (error !== null) return done(error, null);
      if (allows(socket.remoteAddress ?? '')) return done(null, socket);
      socket.destroy();
      return done(notOpen(), null);
    });
}

/** The answer counts by its status; the rest is read only so that the other side can finish in good order. */
async function readSome(body: AsyncIterable<Buffer>): Promise<void> {
  let read = 0;
  for await (const chunk of body) {
    read += chunk.length;
    if (read >= MOST_READ) return;
  }
}
