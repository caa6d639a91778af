import type { AgentProvider, AgentTurn, TurnEnd } from '../../../../src/bridge/agents/agent-provider.ts';
import type { Permission } from '../../../../src/bridge/contract/workbench.ts';
import { MAIN } from '../../../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { type Clock, joinSignals, pause } from '../../../../src/platform/clock/clock.ts';
import type { Chance } from '../chance.ts';
import { chooseManners, choosePause, GOOD_MANNERS } from '../choices.ts';
import { type PlayedProgram, type ProgramEvent, startPlayedProgram } from '../played-program.ts';
import { createPlayedStore } from '../played-store.ts';
import { createPlayedWorld } from '../played-world.ts';
import type { Scenario } from '../scenario.ts';
import {
  checkPermissions,
  type PermissionsEvent,
  permissionCounts,
  type StoredPermission,
} from './check-permissions.ts';
import { callOf, openPlayedSessions, type PlayedSessions } from './played-bridge.ts';

const STEPS = 40;
const SESSIONS = ['talk', 'chat', 'work'];
const TIMEOUT_MS = 15_000;
const MAX_QUESTIONS = 3;
const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];
/** Longer than a start, and than the log pauses after failures; then longer than an agent takes to be quiet. */
const STARTED_MS = 5000;
const QUIET_MS = 8000;
const NO_RESUME = { afterSeq: undefined, idempotencyKey: '' };
const caller = { principal: MAIN } as const;

/** Agents ask, people answer, cancel and come back, and requests expire, while store and bridge fail. */
export const permissionsScenario: Scenario = {
  name: 'permissions',
  async play(seed) {
    const world = createPlayedWorld<PermissionsEvent>(seed);
    const { chance, clock, note, makeId, logger, events } = world;
    const store = createPlayedStore<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations }, chance);
    const bridge = startPlayedProgram<PlayedSessions>({
      clock,
      note: (event: ProgramEvent) => note(event),
      open: (process) =>
        openPlayedSessions({
          database: store.openFor(process),
          clock: process.clock,
          makeId,
          logger,
          agents: [createAsker(process.clock, chance, process.whileAlive(note))],
          permissionTimeoutMs: TIMEOUT_MS,
        }),
      drainMs: 0,
      close: (running) => running.stop(),
    });
    const people = createPeople(chance, () => bridge, note);
    const manners = chooseManners(chance);
    const ends = chance.pick([0, 0.03, 0.1]);
    note({ kind: 'set-up', ...manners });
    await clock.advance(100);
    store.behave(manners);
    for (let step = 0; step < STEPS; step += 1) {
      people.act();
      if (chance.happens(ends)) chance.happens(0.7) ? bridge.crash() : bridge.restart();
      // Now and then exactly the time after which a request expires.
      await clock.advance(chance.happens(0.1) ? TIMEOUT_MS : choosePause(chance));
    }
    store.behave(GOOD_MANNERS);
    await clock.advance(STARTED_MS);
    people.cancelAll();
    await clock.advance(QUIET_MS + TIMEOUT_MS);
    const stored = store.look<StoredPermission>(
      "SELECT id, json_extract(title, '$') AS title, state, option_id, expires_at, answered_at FROM permissions",
    );
    const unanswered = bridge.underWay();
    bridge.end();
    return {
      log: events,
      violations: checkPermissions(events, stored, unanswered),
      counts: permissionCounts(events, stored),
    };
  },
};

/** Asks some questions, one after the other or together, and notes what it is allowed. */
function createAsker(clock: Clock, chance: Chance, note: (event: PermissionsEvent) => void): AgentProvider {
  const stopped = new AbortController();
  let conversations = 0;
  let questions = 0;

  async function askOne({ turnId, ask }: AgentTurn, signal: AbortSignal): Promise<void> {
    questions += 1;
    const title = `${turnId} ${questions}`;
    note({ kind: 'asks', at: clock.monotonic(), title });
    const question = { toolCallId: title, title, toolKind: 'execute', input: { command: 'x | y' }, options: OPTIONS };
    const reply = await ask?.(question, signal);
    note({ kind: 'gets', at: clock.monotonic(), title, optionId: reply?.optionId ?? '' });
  }

  async function work(turn: AgentTurn, signal: AbortSignal): Promise<TurnEnd> {
    for (let left = chance.between(1, MAX_QUESTIONS); left > 0 && !signal.aborted; left -= 1) {
      await pause(clock, chance.between(0, 200), signal);
      const together = chance.happens(0.3) ? [askOne(turn, signal), askOne(turn, signal)] : [askOne(turn, signal)];
      // Now and then a turn ends while its questions are open.
      if (chance.happens(0.1)) break;
      await Promise.all(together);
    }
    if (signal.aborted) return { kind: 'cancelled', output: '' };
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' };
  }

  return {
    id: 'asker',
    probe: async () => ({ status: 'ok', version: '1' }),
    async run(turn, asked) {
      conversations += 1;
      if (turn.reference === undefined) turn.opened(`conversation ${conversations}`);
      const { signal, release } = joinSignals(asked, stopped.signal);
      try {
        return await work(turn, signal);
      } finally {
        release();
      }
    },
    close: async () => undefined,
    stop: async () => stopped.abort(),
  };
}

function createPeople(
  chance: Chance,
  bridge: () => PlayedProgram<PlayedSessions>,
  note: (event: PermissionsEvent) => void,
) {
  /** What somebody has on the screen; it may be old. */
  let screen: readonly Permission[] = [];
  let turns = 0;

  function start(): void {
    turns += 1;
    const params = {
      sessionId: chance.pick(SESSIONS),
      taskPrompt: `task ${turns}`,
      routing: { permissions: 'ask' as const },
    };
    const call = callOf({ caller, sink: undefined, stays: false, resume: NO_RESUME }, { params, id: turns });
    bridge().ask(
      ({ sessionCalls }) => sessionCalls.turn('session.start', params, call),
      () => undefined,
    );
  }

  function look(): void {
    bridge().ask(
      async ({ permissions }) => permissions?.list(MAIN, { state: chance.pick(['open', 'all']) }) ?? [],
      ({ told }) => {
        if (told === undefined) return;
        screen = told;
        for (const { permissionId, state, optionId } of told) note({ kind: 'seen', permissionId, state, optionId });
      },
    );
  }

  function answer(permission: Permission): void {
    const { permissionId } = permission;
    const decision = chance.pick(['allow', 'deny'] as const);
    bridge().ask(
      async ({ permissions }) => permissions?.answer(MAIN, permissionId, { decision }),
      ({ outcome, code = '' }) => note({ kind: 'answer', permissionId, decision, outcome, code }),
    );
  }

  function cancel(sessionId: string): void {
    const call = callOf({ caller, sink: undefined, stays: false, resume: NO_RESUME });
    bridge().ask<unknown>(
      ({ sessionCalls }) => sessionCalls.cancel({ sessionId }, call),
      ({ outcome }) => note({ kind: 'cancel', session: sessionId, outcome }),
    );
  }

  return {
    act() {
      const one = screen.length === 0 ? undefined : chance.pick(screen);
      const act = chance.weigh<() => void>([
        [20, start],
        [30, look],
        [35, () => one && answer(one)],
        // Two people, or one with two screens.
        [8, () => one && [one, one].map(answer)],
        [8, () => cancel(one?.sessionId ?? chance.pick(SESSIONS))],
        // An answer while its turn is being cancelled, in either order.
        [
          8,
          () => {
            const isFirst = chance.happens(0.5);
            if (isFirst) cancel(one?.sessionId ?? SESSIONS[0] ?? '');
            if (one !== undefined) answer(one);
            if (!isFirst) cancel(one?.sessionId ?? SESSIONS[0] ?? '');
          },
        ],
      ]);
      act();
    },
    cancelAll() {
      for (const session of SESSIONS) cancel(session);
    },
  };
}
