import { openSync } from 'node:fs';
import { join } from 'node:path';
import { createAccounts } from '../../src/accounts/create-accounts.ts';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import type { Database } from '../../src/platform/database/database.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import { createListener } from '../../src/platform/http/listener.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';
import { createBufferedOutput } from '../../src/platform/log/log-output.ts';
import { createLogger } from '../../src/platform/log/logger.ts';
import { createSecretBox } from '../../src/platform/secrets/secret-keys.ts';
import { accountsSettingsOf } from '../../src/system/settings.ts';
import { resolveTrestle } from '../../test/kit/resolve-trestle.ts';

export interface AccountsServer {
  readonly url: string;
  readonly port: number;
  readonly database: Database<AccountsSchema>;
  close(): Promise<void>;
}

/** Accounts in this process, on the data of a folder, with everything on: SQLite, metrics, a log line for each call. */
export async function startAccountsServer(folder: string): Promise<AccountsServer> {
  const clock = systemClock;
  const output = createBufferedOutput({ clock, descriptor: openSync('/dev/null', 'w') });
  const logger = createLogger({ level: 'info', format: 'json', output, clock, secrets: () => [] });
  const database = await openDatabase<AccountsSchema>({
    name: 'accounts',
    migrations: accountsMigrations,
    location: { engine: 'sqlite', file: join(folder, 'accounts.db') },
    clock,
  });
  const accounts = await createAccounts({
    settings: accountsSettingsOf(resolveTrestle('accounts: {}').settings),
    auditRetentionMs: 0,
    database,
    secretBox: createSecretBox([systemRandomness.bytes(32)], systemRandomness),
    dataDirectory: folder,
    ownUrl: () => url,
    clock,
    randomness: systemRandomness,
    makeId: createSortableIds(clock, systemRandomness),
    logger,
    completionKeys: () => undefined,
  });
  const listener = createListener({
    surfaces: [accounts.surface],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger,
    requestLines: output,
    clock,
    randomness: systemRandomness,
  });
  const { url, port } = await listener.start();
  return {
    url,
    port,
    database,
    async close() {
      await listener.close();
      await accounts.stop();
      await database.close();
    },
  };
}
