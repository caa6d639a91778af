import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { storedSessionsOf } from '../../sessions/stored-sessions.ts';
import { chooseManners, choosePause, GOOD_MANNERS } from '../choices.ts';
import { type PlayedProgram, type ProgramEvent, startPlayedProgram } from '../played-program.ts';
import { createPlayedStore } from '../played-store.ts';
import { createPlayedWorld } from '../played-world.ts';
import type { Scenario } from '../scenario.ts';
import { checkSessions, countsOf } from './check-sessions.ts';
import { createPlayedAgent } from './played-agent.ts';
import type { PlayedSessions } from './played-bridge.ts';
import { createPlayedNetwork, openPlayedInstance } from './played-instances.ts';
import { createSessionApps } from './session-apps.ts';
import type { SessionsEvent } from './session-events.ts';

const INSTANCES = 3;
const STEPS = 28;
/** How far the clock of a machine may be ahead. */
const AHEAD_MS = [0, 0, 0, 90_000, -90_000];
/** Longer than a dead instance goes unnoticed, and than a call waits for a successor. */
const STARTED_MS = 45_000;
const QUIET_MS = 20_000;

/**
 * The scenario of sessions with three instances on one database: each call and each connection goes to any of them, while instances
 * are killed, stopped and frozen, clocks are wrong, messages are lost, and the database fails or is away.
 */
export const instancesScenario: Scenario = {
  name: 'instances',
  async play(seed) {
    const world = createPlayedWorld<SessionsEvent>(seed, 4);
    const { chance, clock, note, makeId, logger, events } = world;
    const store = createPlayedStore<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations }, chance, clock);
    const network = createPlayedNetwork(clock, chance);
    const conversations = new Set<string>();
    const now = clock.monotonic;
    const apps = createSessionApps({ chance, now, note, bridge: () => chance.pick(instances) });

    function startInstance(home: string): PlayedProgram<PlayedSessions> {
      const program = startPlayedProgram<PlayedSessions>({
        clock,
        aheadMs: chance.pick(AHEAD_MS),
        note(event: ProgramEvent) {
          note({ ...event, home });
          if (event.kind === 'kill' || event.kind === 'stopped') apps.lose(program);
        },
        open: (process) =>
          openPlayedInstance({
            process,
            network,
            home,
            database: store.openFor(process),
            makeId,
            logger,
            agents: [
              createPlayedAgent({
                id: 'one',
                clock: process.clock,
                chance,
                conversations,
                now,
                note: process.whileAlive((event) => note({ ...event, home })),
              }),
            ],
          }),
        drainMs: 0,
        close: (running) => running.stop(),
      });
      return program;
    }
    const instances = Array.from({ length: INSTANCES }, (_, index) => startInstance(`home-${index}`));
    const manners = chooseManners(chance);
    const breaks = chance.pick([0, 0.05, 0.15]);
    note({ kind: 'set-up', ...manners });
    await clock.advance(100);
    store.behave(manners);
    for (let step = 0; step < STEPS; step += 1) {
      apps.act();
      if (chance.happens(breaks)) await breakSomething();
      await clock.advance(choosePause(chance));
    }

    async function breakSomething(): Promise<void> {
      const one = chance.pick(instances);
      switch (chance.pick(['crash', 'crash', 'restart', 'freeze', 'freeze', 'outage'] as const)) {
        case 'crash':
          return one.crash();
        case 'restart':
          return one.restart();
        case 'freeze':
          return one.freeze(chance.between(1000, 30_000));
        case 'outage':
          note({ kind: 'outage', at: now() });
          store.behave({ ...manners, isAway: true });
          await clock.advance(chance.between(500, 20_000));
          store.behave(manners);
      }
    }

    store.behave(GOOD_MANNERS);
    await clock.advance(STARTED_MS);
    apps.cancelAll();
    await clock.advance(QUIET_MS);
    apps.connectAll();
    await clock.advance(QUIET_MS);
    const unanswered = instances.reduce((sum, one) => sum + one.underWay(), 0);
    const atTheEnd = { ...storedSessionsOf(store.look), unanswered };
    for (const one of instances) one.end();
    return { log: events, violations: checkSessions(events, atTheEnd, 'several'), counts: countsOf(events) };
  },
};
