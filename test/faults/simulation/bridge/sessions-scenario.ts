import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { storedSessionsOf } from '../../sessions/stored-sessions.ts';
import { chooseManners, choosePause, GOOD_MANNERS } from '../choices.ts';
import { type ProgramEvent, startPlayedProgram } from '../played-program.ts';
import { createPlayedStore } from '../played-store.ts';
import { createPlayedWorld } from '../played-world.ts';
import type { Scenario } from '../scenario.ts';
import { checkSessions, countsOf } from './check-sessions.ts';
import { createPlayedAgent } from './played-agent.ts';
import { openPlayedSessions, type PlayedSessions } from './played-bridge.ts';
import { createSessionApps } from './session-apps.ts';
import type { SessionsEvent } from './session-events.ts';

const STEPS = 28;
const AGENTS = ['one'];
/** Longer than a start, and than the log pauses after failures; then longer than an agent takes to be quiet. */
const STARTED_MS = 5000;
const QUIET_MS = 8000;

/** Apps talk to agents in sessions, and lose and resume their connections, while store, agents and bridge fail. */
export const sessionsScenario: Scenario = {
  name: 'sessions',
  async play(seed) {
    const world = createPlayedWorld<SessionsEvent>(seed);
    const { chance, clock, note, makeId, logger, events } = world;
    const store = createPlayedStore<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations }, chance);
    const conversations = new Set<string>();
    const now = clock.monotonic;
    const apps = createSessionApps({ chance, now, note, bridge: () => bridge });
    const bridge = startPlayedProgram<PlayedSessions>({
      clock,
      note(event: ProgramEvent) {
        note(event);
        if (event.kind === 'kill' || event.kind === 'stopped') apps.lose(bridge);
      },
      open: (process) =>
        openPlayedSessions({
          database: store.openFor(process),
          clock: process.clock,
          makeId,
          logger,
          agents: AGENTS.map((id) =>
            createPlayedAgent({ id, clock: process.clock, chance, conversations, now, note: process.whileAlive(note) }),
          ),
        }),
      drainMs: 0,
      close: (running) => running.stop(),
    });
    const manners = chooseManners(chance);
    const ends = chance.pick([0, 0.03, 0.1]);
    note({ kind: 'set-up', ...manners });
    await clock.advance(100);
    store.behave(manners);
    for (let step = 0; step < STEPS; step += 1) {
      apps.act();
      if (chance.happens(ends)) chance.happens(0.7) ? bridge.crash() : bridge.restart();
      await clock.advance(choosePause(chance));
    }
    store.behave(GOOD_MANNERS);
    await clock.advance(STARTED_MS);
    apps.cancelAll();
    await clock.advance(QUIET_MS);
    apps.connectAll();
    await clock.advance(STARTED_MS);
    const atTheEnd = { ...storedSessionsOf(store.look), unanswered: bridge.underWay() };
    bridge.end();
    return { log: events, violations: checkSessions(events, atTheEnd), counts: countsOf(events) };
  },
};
