import { createHash } from 'node:crypto';
import { type Static, type TSchema, Type } from 'typebox';
import { Compile } from 'typebox/schema';
import { boundedFetch, type OauthProvider } from './oauth-provider.ts';

export interface GithubSettings {
  readonly client_id: string;
  readonly client_secret: string;
  readonly url: string;
  readonly api_url: string;
}

const Token = Type.Object({ access_token: Type.String({ minLength: 1, maxLength: 4096 }) });
const Person = Type.Object({
  id: Type.Integer({ minimum: 1 }),
  login: Type.String(),
  name: Type.Optional(Type.Union([Type.String(), Type.Null()])),
});
const Emails = Type.Array(Type.Object({ email: Type.String(), primary: Type.Boolean(), verified: Type.Boolean() }));

/** GitHub speaks OAuth, but not OpenID Connect: who someone is says its API. */
export function createGithubProvider(settings: GithubSettings): OauthProvider {
  const url = withoutSlash(settings.url);
  const apiUrl = withoutSlash(settings.api_url);

  async function ask<Schema extends TSchema>(
    schema: Schema,
    address: string,
    init: RequestInit,
  ): Promise<Static<Schema>> {
    const headers = { accept: 'application/json', 'user-agent': 'trestle', ...init.headers };
    const response = await boundedFetch(address, { ...init, headers });
    if (!response.ok) throw new Error(`GitHub answered with status ${response.status}`);
    const answer: unknown = await response.json();
    if (!Compile(schema).Check(answer)) throw new Error('GitHub answered in an unknown shape');
    return answer as Static<Schema>;
  }

  return {
    namespace: `github:${url}`,
    async authorizationUrl({ redirectUri, state, codeVerifier }) {
      const query = new URLSearchParams({
        client_id: settings.client_id,
        redirect_uri: redirectUri,
        scope: 'read:user user:email',
        state,
        code_challenge: createHash('sha256').update(codeVerifier).digest('base64url'),
        code_challenge_method: 'S256',
      });
      return `${url}/login/oauth/authorize?${query}`;
    },
    async identify({ query, redirectUri, codeVerifier }) {
      const codes = query.getAll('code');
      if (codes.length !== 1) throw new Error('there must be one code');
      // A refusal comes with status 200 and without a token.
      const { access_token: token } = await ask(Token, `${url}/login/oauth/access_token`, {
        method: 'POST',
        body: new URLSearchParams({
          client_id: settings.client_id,
          client_secret: settings.client_secret,
          code: codes[0] ?? '',
          redirect_uri: redirectUri,
          code_verifier: codeVerifier,
        }),
      });
      const headers = { authorization: `Bearer ${token}` };
      const [person, emails] = await Promise.all([
        ask(Person, `${apiUrl}/user`, { headers }),
        ask(Emails, `${apiUrl}/user/emails`, { headers }),
      ]);
      const email = emails.find(({ primary, verified }) => primary && verified)?.email;
      return { id: String(person.id), email, name: person.name || person.login };
    },
  };
}

function withoutSlash(url: string): string {
  return url.endsWith('/') ? url.slice(0, -1) : url;
}
