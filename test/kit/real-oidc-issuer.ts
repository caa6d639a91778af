import { generateKeyPairSync, type JsonWebKey, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
// @ts-expect-error: the package has no types.
import Provider from 'oidc-provider';
import type { Scope } from './running-program.ts';

export interface IssuerPerson {
  readonly sub: string;
  readonly email: string;
  readonly email_verified: boolean;
  readonly name: string;
}

/** A certified OpenID provider of the test's own, at which `person` logs in without being asked. */
export interface RealOidcIssuer {
  readonly url: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Who sits at the browser from now on. */
  person(person: IssuerPerson): void;
}

/** Making one takes long: all issuers of a process share it. */
let signingKey: JsonWebKey | undefined;

export async function startOidcIssuer(scope: Scope, redirectUri: string): Promise<RealOidcIssuer> {
  let handle = (_request: IncomingMessage, response: ServerResponse): unknown => response.end();
  const server = createServer((request, response) => void handle(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.after(async () => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [clientId, clientSecret] = ['trestle', randomBytes(16).toString('hex')];
  const people = new Map<string, IssuerPerson>();
  let current: IssuerPerson | undefined;

  signingKey ??= generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
  const provider = new Provider(url, {
    clients: [{ client_id: clientId, client_secret: clientSecret, redirect_uris: [redirectUri] }],
    jwks: { keys: [{ ...signingKey, use: 'sig', kid: 'first', alg: 'RS256' }] },
    cookies: { keys: [randomBytes(16).toString('hex')] },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_context: unknown, { uid }: { uid: string }) => `/person/${uid}` },
    findAccount: (_context: unknown, sub: string) => ({ accountId: sub, claims: () => people.get(sub) }),
    // Everyone agrees to everything that is asked for.
    async loadExistingGrant(context: { oidc: Record<string, { clientId: string; accountId: string } & string> }) {
      const grant = new provider.Grant({
        clientId: context.oidc.client?.clientId,
        accountId: context.oidc.session?.accountId,
      });
      grant.addOIDCScope('openid email profile');
      await grant.save();
      return grant;
    },
  });
  const serve = provider.callback();
  handle = (request, response) => {
    if (!request.url?.startsWith('/person/')) return serve(request, response);
    return provider.interactionFinished(request, response, { login: { accountId: current?.sub } });
  };
  return {
    url,
    clientId,
    clientSecret,
    person(person) {
      people.set(person.sub, person);
      current = person;
    },
  };
}
