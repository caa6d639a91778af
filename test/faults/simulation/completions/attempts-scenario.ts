import { priceFrom } from '../../../../src/completions/apis/prices.ts';
import { loadDialect } from '../../../../src/completions/dialects/dialect-table.ts';
import type { CompletionsSettings } from '../../../../src/completions/settings.ts';
import { completionsMigrations } from '../../../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../../../src/completions/storage/completions-schema.ts';
import type { Chance } from '../chance.ts';
import { chooseManners, choosePause, GOOD_MANNERS } from '../choices.ts';
import { startPlayedProgram } from '../played-program.ts';
import { createPlayedStore } from '../played-store.ts';
import { createPlayedWorld } from '../played-world.ts';
import type { Scenario } from '../scenario.ts';
import type { AttemptsEvent, PlayedAlias, StoredUsage } from './attempt-events.ts';
import { createChatApps } from './chat-apps.ts';
import { checkAttempts, countsOf } from './check-attempts.ts';
import { openPlayedCompletions, type PlayedCompletions } from './played-completions.ts';
import { createPlayedUpstreams, type Mood } from './played-upstreams.ts';

const STEPS = 25;
const APIS = ['x', 'y', 'z'];
const TARGETS = APIS.map((api) => `${api}/m`);
const MOODS: readonly Mood[] = ['well', 'well', 'well', 'slow', 'flaky', 'flaky', 'down', 'refusing'];
const MODELS = ['fast', 'fast', 'spare', 'x/m'];
/** Answers wait for two turns of the event loop. */
const TURNS = 3;
/** Longer than any call may take, and than usage waits to be stored. */
const QUIET_MS = 130_000;
const DRAIN_MS = 30_000;
/** USD for a token, as dear as it is for nobody. */
const PRICES: Readonly<Record<string, number>> = { x: 0.001, y: 0.002, z: 0.0005 };

/** Apps call models whose upstreams fail in every way, with keys that may spend so much, while the service is killed. */
export const attemptsScenario: Scenario = {
  name: 'attempts',
  async play(seed) {
    // Loaded with the first call, which takes real time.
    await loadDialect('openai');
    const world = createPlayedWorld<AttemptsEvent>(seed, TURNS);
    const { chance, clock, note, makeId, randomness, logger, events } = world;
    const store = createPlayedStore<CompletionsSchema>(
      { name: 'completions', migrations: completionsMigrations },
      chance,
    );
    const moods = new Map<string, Mood>();
    const moodOf = (target: string) => moods.get(target) ?? 'well';
    const counter = { asks: 0 };
    const now = clock.monotonic;
    const models = [chooseAlias(chance, 'fast', ['spare']), chooseAlias(chance, 'spare', [])];
    const priceOf = (api: string) => priceFrom({ input: PRICES[api] ?? 0, output: PRICES[api] ?? 0 });
    const completions = startPlayedProgram<PlayedCompletions>({
      clock,
      note,
      open: async (process) =>
        openPlayedCompletions({
          database: store.openFor(process),
          models,
          apis: APIS,
          pools: createPlayedUpstreams({ process, chance, counter, moodOf, now, note }),
          priceOf,
          clock: process.clock,
          randomness,
          makeId,
          logger,
          now,
          note: process.whileAlive(note),
        }),
      drainMs: DRAIN_MS,
      close: (running) => running.stop(),
    });
    const budgetUsd = chance.pick([0.5, 3, 100]);
    await clock.advance(100);
    const keys = new Map<string, string>();
    for (const [name, budget] of [
      ['bound', { usd: budgetUsd, period: 'total' as const }],
      ['free', null],
    ] as const) {
      completions.ask(
        ({ register }) => register.create({ name, models: [], budget }),
        ({ told }) => void keys.set(name, told?.key ?? ''),
      );
    }
    await clock.advance(1000);
    const manners = chooseManners(chance);
    note({ kind: 'set-up', ...manners, aliases: models.map(toPlayedAlias), budgetUsd });
    store.behave(manners);
    const call = createChatApps({
      chance,
      clock,
      completions,
      models: MODELS,
      keys,
      note,
      estimate: (model, { prompt, completion }) => (prompt + completion) * dearest(model, models),
    });
    const ends = chance.pick([0, 0, 0.02]);
    for (let step = 0; step < STEPS; step += 1) {
      for (let burst = chance.happens(0.2) ? 6 : 1; burst > 0; burst -= 1) call();
      if (chance.happens(0.15)) {
        const target = chance.pick(TARGETS);
        const mood = chance.pick(MOODS);
        moods.set(target, mood);
        note({ kind: 'mood', at: now(), target, mood });
      }
      if (chance.happens(ends)) chance.happens(0.7) ? completions.crash() : completions.restart();
      await clock.advance(choosePause(chance));
    }
    store.behave(GOOD_MANNERS);
    await clock.advance(QUIET_MS);
    const stored: StoredUsage = {
      records: store.look('SELECT * FROM usage_records'),
      totals: store.look('SELECT * FROM usage_quarters'),
      spending: store.look('SELECT * FROM key_spending'),
      keys: store.look('SELECT id, name FROM keys'),
    };
    const unanswered = completions.underWay();
    completions.end();
    return {
      log: events,
      violations: checkAttempts(events, stored, unanswered),
      counts: countsOf(events),
    };
  },
};

type Alias = CompletionsSettings['models'][number];

function chooseAlias(chance: Chance, name: string, fallbacks: readonly string[]): Alias {
  const first = chance.between(0, TARGETS.length - 1);
  const chosen = [...TARGETS.slice(first), ...TARGETS.slice(0, first)].slice(0, chance.between(1, TARGETS.length));
  return {
    name,
    targets: chosen.map((model) => ({
      model,
      weight: chance.between(0, 3),
      priority: chance.between(1, 2),
      requests_per_minute: 0,
      tokens_per_minute: 0,
    })),
    fallbacks: chance.happens(0.6) ? [...fallbacks] : [],
    strategy: 'weighted',
    context_fallbacks: chance.happens(0.3) ? [...fallbacks] : [],
    retries: chance.between(0, 3),
    timeouts: {
      connect: 5000,
      first_byte: chance.pick([2000, 6000]),
      idle: chance.pick([2000, 6000]),
      total: chance.pick([4000, 15_000, 60_000]),
    },
    cache: { ttl: 0 },
  };
}

function toPlayedAlias({ name, targets, fallbacks, context_fallbacks: longer, retries, timeouts }: Alias): PlayedAlias {
  return { name, targets, fallbacks: [...new Set([...fallbacks, ...longer])], retries, totalMs: timeouts.total };
}

/** What a token costs at most, wherever the call ends up. */
function dearest(model: string, aliases: readonly Alias[]): number {
  const alias = aliases.find(({ name }) => name === model);
  if (alias === undefined) return PRICES[model.slice(0, model.indexOf('/'))] ?? 0;
  const own = alias.targets.map((target) => dearest(target.model, []));
  return Math.max(...own, ...[...alias.fallbacks, ...alias.context_fallbacks].map((name) => dearest(name, aliases)));
}
