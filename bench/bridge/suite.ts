import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import { benchCapabilities } from './capabilities.bench.ts';
import { benchConcurrentSessions } from './concurrent-sessions.bench.ts';
import { benchIdleSockets } from './idle-sockets.bench.ts';
import { benchTurns } from './turn.bench.ts';

const MOST_ADDED_MS = 2;

/** What the bridge adds to an agent, and what it carries at once. All of it with the program as a user starts it. */
export async function bridgeSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  return [
    { title: 'Bridge: turns of an agent', figures: await turnFigures(quick) },
    { title: 'Bridge: sockets and sessions', figures: await socketFigures(quick) },
  ];
}

async function turnFigures(quick: boolean): Promise<readonly Figure[]> {
  const turns = await benchTurns({ rounds: quick ? 6 : 30, turns: quick ? 20 : 40, updates: quick ? 2000 : 5000 });
  const direct = median(turns.directMs);
  const through = median(turns.bridgeMs);
  const goal = MOST_ADDED_MS + median(turns.commitMs);
  return [
    {
      name: 'a turn with a scripted ACP agent against the same driven through the SDK, p50',
      value: `${round(through)} ms`,
      bound: `${round(direct)} ms`,
      result: `+${round(through - direct)} ms`,
      goal: `≤ +${round(goal)} ms (${MOST_ADDED_MS} ms and one commit)`,
      met: through - direct <= goal,
    },
    ratioFigure({
      name: 'updates relayed, with the event log on, against the same',
      unit: 'updates/s',
      ours: turns.bridgeUpdates,
      bound: turns.directUpdates,
      goal: 0.7,
    }),
  ];
}

async function socketFigures(quick: boolean): Promise<readonly Figure[]> {
  const rounds = quick ? { warmUpMs: 1000, rounds: 8, roundMs: 200 } : { warmUpMs: 3000, rounds: 30, roundMs: 250 };
  const capabilities = await benchCapabilities(rounds);
  const count = quick ? 2000 : 10_000;
  const sockets = await benchIdleSockets(count);
  const sessions = { sessions: quick ? 50 : 200, updates: quick ? 100 : 500 };
  const { lost, outOfOrder, updatesPerSecond } = await benchConcurrentSessions(sessions);
  const streaming = `of ${sessions.sessions} sessions streaming at once (${round(updatesPerSecond)} updates/s)`;
  return [
    ratioFigure({
      name: '`acp.capabilities` over WebSocket against a raw `ws` answer of as many bytes',
      unit: 'messages/s',
      ours: capabilities.ours.perSecond,
      bound: capabilities.bound.perSecond,
      goal: 0.6,
    }),
    {
      name: `memory of each of ${round(count)} idle authenticated sockets against raw \`ws\``,
      value: `${round(sockets.ours)} B`,
      bound: `${round(sockets.raw)} B`,
      result: (sockets.ours / sockets.raw).toFixed(2),
      goal: '≤ 2',
      met: sockets.ours / sockets.raw <= 2,
    },
    limitFigure({ name: `updates lost ${streaming}`, unit: 'updates', value: lost, goal: 0 }),
    limitFigure({ name: `updates out of order ${streaming}`, unit: 'updates', value: outOfOrder, goal: 0 }),
  ];
}
