import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below those that Linux gives to connections and to servers that ask for any port: a program of another test that starts in the same
 * moment would get the same one.
 */
const FIRST = 20_000;
const LAST = 32_000;
const given = new Set<number>();

/** A port of this machine that nobody has open now, another one each time. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FIRST, LAST);
    if (given.has(port) || !(await isFree(port))) continue;
    given.add(port);
    return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const opened = once(server, 'listening').then(
    () => true,
    () => false,
  );
  server.listen(port, '127.0.0.1');
  if (!(await opened)) return false;
  server.close();
  await once(server, 'close');
  return true;
}
