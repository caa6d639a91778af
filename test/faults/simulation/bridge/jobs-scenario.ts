import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { chooseManners, choosePause, GOOD_MANNERS, stepWall } from '../choices.ts';
import { startPlayedProgram } from '../played-program.ts';
import { createPlayedStore } from '../played-store.ts';
import { createPlayedWorld } from '../played-world.ts';
import type { Scenario } from '../scenario.ts';
import { checkJobs, countsOf } from './check-jobs.ts';
import { createJobApps } from './job-apps.ts';
import type { JobsEvent, StoredJobs } from './job-events.ts';
import { createPlayedAgent } from './played-agent.ts';
import { openPlayedBridge, type PlayedBridge } from './played-bridge.ts';
import { createPlayedReceivers } from './played-receivers.ts';

const STEPS = 20;
const AGENTS = ['one', 'two'];
/** Until everything has ended that can: the longest job, and three attempts of a webhook on bridges that died. */
const QUIET_STEPS = 60;
const QUIET_STEP_MS = 5000;

/** Apps submit, look at and cancel jobs, while store, agents, webhooks and the bridge itself fail. */
export const jobsScenario: Scenario = {
  name: 'jobs',
  async play(seed) {
    const world = createPlayedWorld<JobsEvent>(seed);
    const { chance, clock, note, makeId, logger, events } = world;
    const store = createPlayedStore<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations }, chance);
    const conversations = new Set<string>();
    const maxRunning = chance.between(1, 3);
    const now = clock.monotonic;
    const bridge = startPlayedProgram<PlayedBridge>({
      clock,
      note,
      open: (process) =>
        openPlayedBridge({
          database: store.openFor(process),
          clock: process.clock,
          makeId,
          logger,
          agents: AGENTS.map((id) =>
            createPlayedAgent({ id, clock: process.clock, chance, conversations, now, note: process.whileAlive(note) }),
          ),
          network: createPlayedReceivers({ clock: process.clock, chance, now, note: process.whileAlive(note) }),
          maxRunning,
        }),
      drainMs: 0,
      close: (running) => running.stop(),
    });
    const apps = createJobApps({ chance, note, bridge, agents: AGENTS });
    const manners = chooseManners(chance);
    const ends = chance.pick([0, 0.02, 0.1]);
    const wallSteps = chance.pick([0, 0, 0, 0.05]);
    note({ kind: 'set-up', maxRunning, ...manners });
    await clock.advance(100);
    store.behave(manners);
    for (let step = 0; step < STEPS; step += 1) {
      apps.act();
      if (chance.happens(wallSteps)) stepWall(world);
      if (chance.happens(ends)) chance.happens(0.7) ? bridge.crash() : bridge.restart();
      await clock.advance(choosePause(chance));
    }
    store.behave(GOOD_MANNERS);
    const look = (): StoredJobs => ({
      jobs: store.look('SELECT * FROM jobs'),
      deliveries: store.look('SELECT * FROM job_deliveries'),
      counts: store.look('SELECT * FROM job_counts'),
      openTurns: store.look('SELECT id FROM turns WHERE ended_at IS NULL'),
    });
    const isQuiet = ({ jobs, deliveries, openTurns }: StoredJobs) =>
      deliveries.length + openTurns.length === 0 && jobs.every(({ completed_at: end }) => end !== null);
    for (let step = 0; step < QUIET_STEPS && (step < 2 || !isQuiet(look())); step += 1) {
      await clock.advance(QUIET_STEP_MS);
    }
    const stored = look();
    bridge.end();
    return { log: events, violations: checkJobs(events, stored), counts: countsOf(events) };
  },
};
