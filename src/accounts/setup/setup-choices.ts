import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { FirstAdmin } from '../contract/registration.ts';
import { type AccountsSettings, FREE_PLAN, type LeftOpen } from '../settings.ts';
import type { AccountsSchema } from '../storage/accounts-schema.ts';

type Chosen = Partial<Pick<FirstAdmin, LeftOpen>>;

/** The first administrator's choices for settings that the configuration leaves open. The configuration takes precedence. */
export interface SetupChoices {
  /** The settings with what was chosen. */
  apply(settings: AccountsSettings): AccountsSettings;
  /** Throws SETTING_IS_CONFIGURED and INVALID_PLAN; otherwise returns the statements that store the choices. */
  store(chosen: Chosen, settings: AccountsSettings): readonly Runnable[];
  /** Reads what is stored, at the start and after a change, which another instance may have made. */
  read(): Promise<void>;
}

/** One of them, as it is stored. */
export interface SetupChoice {
  readonly name: string;
  readonly value: string;
}

const NAMES: readonly LeftOpen[] = ['registration', 'default_plan'];

export function createSetupChoices(database: Database<AccountsSchema>): SetupChoices {
  const { query } = database;
  const all = query.selectFrom('setup_choices').selectAll().compile();
  let stored: readonly SetupChoice[] = [];
  let applied: { readonly given: AccountsSettings; readonly result: AccountsSettings } | undefined;

  return {
    apply(given) {
      if (applied?.given !== given) applied = { given, result: applyChoices(given, stored) };
      return applied.result;
    },
    store(chosen, settings) {
      const { default_plan: plan } = chosen;
      const names = NAMES.filter((name) => chosen[name] !== undefined);
      for (const name of names) {
        if (!settings.leftOpen.has(name)) throw new AppError('SETTING_IS_CONFIGURED', { name });
      }
      const plans = plansOf(settings);
      if (plan !== undefined && !plans.includes(plan)) {
        throw new AppError('INVALID_PLAN', { plan: plan.slice(0, 64), plans: plans.join(', ') });
      }
      return names.map((name) =>
        query
          .insertInto('setup_choices')
          .values({ name, value: String(chosen[name]) })
          .onConflict((conflict) => conflict.column('name').doUpdateSet({ value: String(chosen[name]) }))
          .compile(),
      );
    },
    async read() {
      // At most two rows, so the thread for long reads need not start.
      stored = await database.readKeyed(all);
      applied = undefined;
    },
  };
}

/** Returns the settings with stored choices where the configuration leaves them open. Ignores a plan that is no longer defined. */
export function applyChoices(given: AccountsSettings, stored: readonly SetupChoice[]): AccountsSettings {
  const { leftOpen } = given;
  const settings: { -readonly [Name in keyof AccountsSettings]: AccountsSettings[Name] } = { ...given };
  for (const { name, value } of stored) {
    if (name === 'registration' && leftOpen.has(name)) settings.registration = value as typeof settings.registration;
    if (name === 'default_plan' && leftOpen.has(name) && plansOf(given).includes(value)) settings.default_plan = value;
  }
  return settings;
}

/** Returns the names of all plans, the free one first. */
export function plansOf({ plans }: Pick<AccountsSettings, 'plans'>): readonly string[] {
  return [...new Set([FREE_PLAN, ...Object.keys(plans)])];
}
