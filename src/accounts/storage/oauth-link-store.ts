import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, OauthLinkRow } from './accounts-schema.ts';

/** Which account elsewhere belongs to which user: by the provider and its own id of the person, never by address. */
export interface OauthLinkStore {
  find(provider: string, providerUserId: string): Promise<OauthLinkRow | undefined>;
  /** STORAGE_DUPLICATE when that account belongs to someone already. */
  add(link: OauthLinkRow): Runnable;
}

export function createOauthLinkStore(database: Database<AccountsSchema>): OauthLinkStore {
  return {
    async find(provider, providerUserId) {
      const select = database.query
        .selectFrom('oauth_links')
        .selectAll()
        .where('provider', '=', provider)
        .where('provider_user_id', '=', providerUserId);
      return (await database.readKeyed(select.compile()))[0];
    },
    add: (link) => database.query.insertInto('oauth_links').values(link).compile(),
  };
}
