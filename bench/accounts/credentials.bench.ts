import { createScope } from '../../test/kit/create-scope.ts';
import { bearer, CHAT, startPeople } from '../../test/kit/start-people.ts';
import { type Rates, type Rounds, takeTurns } from '../report/take-turns.ts';
import type { SessionRound } from './session-client.ts';

export interface CredentialsBench {
  /** By credential, its calls and those with a key of the same person that took turns with them. */
  readonly calls: Readonly<Record<string, { readonly ours: Rates; readonly bound: Rates }>>;
}

const CONNECTIONS = 32;

/** What a call of a model costs with a personal access token and with a session, beside one with a key. */
export async function benchCredentials(rounds: Rounds): Promise<CredentialsBench> {
  const scope = createScope();
  try {
    const tokens = { bridge: 'bridge-token-of-the-benchmark', completions: 'master-key-of-the-benchmark' };
    const world = await startPeople(scope, tokens, { plans: { bench: { models: ['*'] } } });
    const person = await world.newPerson('user', 'bench');
    const { key } = (await world.send('POST', '/api/auth/keys', bearer(person.token), { name: 'bench' })).body;
    const { token } = await world.newToken(person, ['completions']);
    const request = { method: 'POST', path: '/v1/chat/completions', body: JSON.stringify(CHAT) };
    const serverOf = (name: string, credential: string) => {
      const round: Omit<SessionRound, 'ms'> = {
        ...{ name, request, port: Number(new URL(world.url).port), connections: CONNECTIONS },
        tokens: [credential],
      };
      return { round, close: async () => undefined };
    };
    const client = new URL('./session-client.ts', import.meta.url);
    const calls: Record<string, { ours: Rates; bound: Rates }> = {};
    for (const [name, credential] of Object.entries({ 'a personal access token': token, 'a session': person.token })) {
      calls[name] = await takeTurns(client, serverOf('key', key), serverOf(name, credential), rounds);
    }
    return { calls };
  } finally {
    await scope.end();
  }
}
