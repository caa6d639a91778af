import { accountsMigrations } from '../../../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../../../src/accounts/storage/accounts-schema.ts';
import { accountsSettingsOf } from '../../../../src/system/settings.ts';
import { resolveTrestle } from '../../../kit/resolve-trestle.ts';
import { chooseManners, choosePause, GOOD_MANNERS, stepWall } from '../choices.ts';
import { startPlayedProgram } from '../played-program.ts';
import { createPlayedStore } from '../played-store.ts';
import { createPlayedWorld } from '../played-world.ts';
import type { Scenario } from '../scenario.ts';
import { createAccountApps } from './account-apps.ts';
import type { AccountsEvent, StoredPeople } from './account-events.ts';
import { checkAccounts, countsOf } from './check-accounts.ts';
import { openPlayedAccounts, type PlayedAccounts } from './played-accounts.ts';

const STEPS = 50;
const DRAIN_MS = 30_000;
const QUIET_MS = 20_000;
const FORKS = 'SELECT session_id, generation FROM refresh_tokens GROUP BY session_id, generation HAVING count(*) > 1';
const { settings } = resolveTrestle('accounts: { require_verification: false }');

/** People log in, refresh, log out and change passwords, and somebody has an old token, while clock and store fail. */
export const accountsScenario: Scenario = {
  name: 'accounts',
  async play(seed) {
    const world = createPlayedWorld<AccountsEvent>(seed);
    const { chance, clock, note, makeId, randomness, logger, events } = world;
    const store = createPlayedStore<AccountsSchema>({ name: 'accounts', migrations: accountsMigrations }, chance);
    const accounts = startPlayedProgram<PlayedAccounts>({
      clock,
      note,
      open: async (process) =>
        openPlayedAccounts({
          database: store.openFor(process),
          settings: accountsSettingsOf(settings),
          clock: process.clock,
          randomness,
          makeId,
          logger,
          hashMs: () => chance.between(0, 80),
        }),
      drainMs: DRAIN_MS,
      close: (running) => running.stop(),
    });
    const act = createAccountApps({ chance, clock, accounts, note });
    const manners = chooseManners(chance);
    const ends = chance.pick([0, 0.02, 0.05]);
    const wallSteps = chance.pick([0, 0, 0.03]);
    note({ kind: 'set-up', ...manners });
    await clock.advance(100);
    store.behave(manners);
    for (let step = 0; step < STEPS; step += 1) {
      act();
      if (chance.happens(wallSteps)) stepWall(world);
      if (chance.happens(ends)) chance.happens(0.7) ? accounts.crash() : accounts.restart();
      await clock.advance(choosePause(chance));
    }
    store.behave(GOOD_MANNERS);
    await clock.advance(QUIET_MS);
    const unanswered = accounts.underWay();
    accounts.end();
    const stored: StoredPeople = {
      emails: store.look<{ email: string }>('SELECT email FROM users').map(({ email }) => email),
      forks: store.look(FORKS),
    };
    return { log: events, violations: checkAccounts(events, stored, unanswered), counts: countsOf(events) };
  },
};
