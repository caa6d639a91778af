/** Someone as a provider knows them. */
export interface OauthIdentity {
  /** The provider's own, unchanging id of the person. */
  readonly id: string;
  /** Only an address that the provider says it has verified. */
  readonly email: string | undefined;
  readonly name: string;
}

export interface OauthRequest {
  readonly redirectUri: string;
  readonly state: string;
  readonly nonce: string;
  readonly codeVerifier: string;
}

export interface OauthCallback extends OauthRequest {
  /** What came back, as it came. */
  readonly query: URLSearchParams;
}

/** Where people can log in with an account from elsewhere. */
export interface OauthProvider {
  /** The namespace of its ids: the same person elsewhere is someone else (spec/accounts: users matched by provider id). */
  readonly namespace: string;
  /** Where the browser is sent to. */
  authorizationUrl(request: OauthRequest): Promise<string>;
  /** Who came back. Throws when anything about it is not as it should be. */
  identify(callback: OauthCallback): Promise<OauthIdentity>;
}
