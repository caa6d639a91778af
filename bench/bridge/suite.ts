import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import { benchCapabilities } from './capabilities.bench.ts';
import { benchConcurrentSessions } from './concurrent-sessions.bench.ts';
import { benchIdleSockets } from './idle-sockets.bench.ts';
import { benchTurns, type TurnFigures } from './turn.bench.ts';

const MAX_ADDED_MS = 2;
/** One, and some for turns that the machine holds up: the beginning of a turn waits 4 ms for its end. */
const MAX_COMMITS = 1.1;

/** How long each measurement takes: a full run, and a short one of about 35 s. */
const PARAMETERS = {
  full: {
    turns: { rounds: 30, turns: 40, updates: 5000 },
    capabilities: { warmUpMs: 3000, rounds: 30, roundMs: 250 },
    idleSockets: 10_000,
    sessions: { sessions: 200, updates: 500 },
  },
  quick: {
    turns: { rounds: 6, turns: 20, updates: 2000 },
    capabilities: { warmUpMs: 1000, rounds: 8, roundMs: 200 },
    idleSockets: 10_000,
    sessions: { sessions: 50, updates: 100 },
  },
};

type Parameters = typeof PARAMETERS.full;

/** What the bridge adds to an agent, and what it carries at once. All of it with the program as a user starts it. */
export async function bridgeSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const parameters = quick ? PARAMETERS.quick : PARAMETERS.full;
  return [
    { title: 'Bridge: turns of an agent', figures: await turnFigures(parameters.turns) },
    { title: 'Bridge: sockets and sessions', figures: await socketFigures(parameters) },
  ];
}

async function turnFigures(options: Parameters['turns']): Promise<readonly Figure[]> {
  const turns = await benchTurns(options);
  const direct = median(turns.directMs);
  const through = median(turns.bridgeMs);
  const goal = MAX_ADDED_MS + median(turns.commitMs);
  return [
    {
      name: 'a turn with a scripted ACP agent against the same driven through the SDK, p50',
      value: `${round(through)} ms`,
      bound: `${round(direct)} ms`,
      result: `+${round(through - direct)} ms`,
      goal: `≤ +${round(goal)} ms (${MAX_ADDED_MS} ms and one commit)`,
      met: through - direct <= goal,
      amounts: { ours: through, bound: direct, goal: direct + goal },
    },
    limitFigure({
      name: 'commits of the bridge for such a turn',
      unit: 'commits',
      value: median(turns.commitsOfTurn),
      goal: MAX_COMMITS,
    }),
    ratioFigure({
      name: 'updates relayed, with the event log on, against the same',
      unit: 'updates/s',
      ours: turns.bridgeUpdates,
      bound: turns.directUpdates,
      goal: 0.7,
    }),
    ...peerFigures(turns),
  ];
}

/** Shown beside ours, without a goal. Without a network there is no peer, and no line. */
function peerFigures({ besidePeer }: TurnFigures): readonly Figure[] {
  if (besidePeer === undefined) return [];
  const { bridge, peer } = besidePeer;
  const shown = { goal: '', met: true };
  const compare = (name: string, ours: number, other: number): Figure => ({
    ...shown,
    name,
    value: `${round(ours)} ms`,
    bound: `${round(other)} ms`,
    result: (ours / other).toFixed(2),
    amounts: { ours, peer: other },
  });
  return [
    compare(
      'the text of a turn is seen, beside the runtime of acpx in the same process, p50',
      median(bridge.textMs),
      median(peer.textMs),
    ),
    compare(
      'a whole turn, beside the same, which waits for silence at its end, p50',
      median(bridge.turnMs),
      median(peer.turnMs),
    ),
  ];
}

async function socketFigures(parameters: Parameters): Promise<readonly Figure[]> {
  const capabilities = await benchCapabilities(parameters.capabilities);
  const { idleSockets: count, sessions } = parameters;
  const { ours, raw } = await benchIdleSockets(count);
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
      value: `${round(ours.each)} B`,
      bound: `${round(raw.each)} B`,
      result: (ours.each / raw.each).toFixed(2),
      goal: '≤ 2',
      met: ours.each / raw.each <= 2,
      amounts: { ours: ours.each, bound: raw.each, goal: 2 * raw.each },
    },
    limitFigure({
      name: `memory of the program with ${round(count)} idle authenticated sockets`,
      unit: 'MiB',
      value: ours.total / 2 ** 20,
      goal: 250,
    }),
    limitFigure({ name: `updates lost ${streaming}`, unit: 'updates', value: lost, goal: 0 }),
    limitFigure({ name: `updates out of order ${streaming}`, unit: 'updates', value: outOfOrder, goal: 0 }),
  ];
}
