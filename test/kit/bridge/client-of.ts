import {
  createTrestleClient,
  type TrestleClient,
  type TrestleClientOptions,
} from '../../../src/client/trestle-client.ts';
import type { Scope } from '../running-program.ts';

/** A client that is closed when the test ends. */
export function clientOf(scope: Scope, options: TrestleClientOptions): TrestleClient {
  const client = createTrestleClient({ reconnectMs: 10_000, ...options });
  scope.after(() => client.close());
  return client;
}
