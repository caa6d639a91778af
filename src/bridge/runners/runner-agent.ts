import { type Clock, pause } from '../../platform/clock/clock.ts';
import type { AgentPlace } from '../agents/agent-catalog.ts';
import type {
  AgentAbilities,
  AgentEnd,
  AgentProvider,
  Closing,
  Fork,
  Forked,
  SupervisedTurn,
} from '../agents/agent-provider.ts';
import type { ProbeResult } from '../agents/probe-board.ts';
import { createRemoteAgent, type RemoteAgentOptions } from '../agents/remote/create-remote-agent.ts';
import type { RunnerFacts } from '../contract/surface.ts';
import type { Runners } from './create-runners.ts';
import { runnerToken } from './runner-tunnel.ts';

export interface RunnerAgentOptions extends Omit<RemoteAgentOptions, 'url' | 'token' | 'through' | 'runner' | 'clock'> {
  readonly place: Extract<AgentPlace, { kind: 'runner' }>;
  readonly runners: Pick<Runners, 'list' | 'store' | 'own' | 'through' | 'watch'>;
  readonly clock: Pick<Clock, 'after' | 'monotonic'>;
}

/** How long a turn waits for a place on a runner. */
const ROOM_MS = 60_000;
const ROOM_LOOK_MS = 500;
/** Between the id of a runner and the reference there. */
const SEPARATOR = '/';

/**
 * An agent on runners. A new conversation goes to the runner with the most free places among those that have the agent and the
 * labels; from then on it stays there, and its reference begins with the id of that runner.
 */
export function createRunnerAgent(options: RunnerAgentOptions): AgentProvider {
  const { id, place, runners, clock, makeId, ...rest } = options;
  /** The names of new conversations: they are stored before a turn is sent to a runner. */
  const names = new WeakMap<object, string>();
  runners.watch(id);
  /** By runner, with the process of a runner for one session. */
  const remotes = new Map<string, { readonly process: string; readonly provider: Promise<AgentProvider> }>();
  let abilities: AgentAbilities = { steer: 'no', fork: 'no', forkFrom: 'last_turn' };

  /** The bridge of a runner as a remote agent. */
  async function connectTo(runnerId: string, token: string): Promise<AgentProvider> {
    return createRemoteAgent({
      ...rest,
      id,
      clock,
      makeId,
      url: 'http://runner',
      token,
      through: await runners.through(runnerId),
      runner: { id: runnerId, agent: place.agent },
      nameFor: (turn) => names.get(turn),
    });
  }

  /** Undefined for a runner that was removed. Without a process: the one that was connected last. */
  async function on(runnerId: string, wanted?: string): Promise<AgentProvider | undefined> {
    const known = remotes.get(runnerId);
    if (known !== undefined && known.process === wanted) return known.provider;
    const row = await runners.store().find(runnerId);
    if (row === undefined) return undefined;
    const process = wanted ?? row.process;
    if (known !== undefined && known.process === process) return known.provider;
    const provider = connectTo(runnerId, runnerToken(row.key_hash, process));
    provider.catch(() => remotes.delete(runnerId));
    remotes.set(runnerId, { process, provider });
    return provider;
  }

  /** The runner of a conversation. Undefined: it was removed, or it was there for this one and is a fresh one by now. */
  async function holderOf(runnerId: string, inner: string): Promise<AgentProvider | undefined> {
    const row = await runners.store().find(runnerId);
    return row === undefined || (row.process !== '' && row.session !== inner) ? undefined : on(runnerId, row.process);
  }

  const hasAgent = ({ agents }: RunnerFacts) =>
    agents.some((agent) => agent.id === place.agent && agent.state === 'ok');
  const hasLabels = ({ labels }: RunnerFacts) => place.requires.every((label) => labels.includes(label));

  /** Those that would take a new conversation, the one with the most free places first. */
  async function candidates(): Promise<readonly RunnerFacts[]> {
    const fitting = (await runners.list()).filter((runner) => hasLabels(runner) && hasAgent(runner));
    return fitting
      .filter(({ state }) => state === 'connected')
      .sort((one, other) => other.slots - other.turns - (one.slots - one.turns));
  }

  /** Notes a turn on its runner, or that of a new conversation on one of them; `full` when none has had a place in time. */
  async function takePlace(home: string | undefined, turnId: string, signal: AbortSignal) {
    const until = clock.monotonic() + ROOM_MS;
    for (;;) {
      const wanted = home === undefined ? (await candidates()).filter(({ once }) => once !== 'taken') : [{ id: home }];
      for (const { id: runnerId } of wanted) {
        const turn = { id: turnId, runner_id: runnerId, instance: runners.own() };
        const taken = await runners.store().take(turn, home === undefined);
        if (typeof taken === 'object') return { runnerId, process: taken.process };
        if (taken === 'gone' && home !== undefined) return taken;
      }
      if (signal.aborted || clock.monotonic() >= until) return 'full';
      await pause(clock, ROOM_LOOK_MS, signal);
    }
  }

  async function run(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd> {
    const { runnerId: home, inner } = readReference(turn.reference);
    const name = inner ?? makeId('remote-');
    const taken = await takePlace(home, name, signal);
    if (taken === 'gone') return { kind: 'lost', detail: 'its runner was removed, or is a fresh one' };
    if (taken === 'full') return signal.aborted ? { kind: 'cancelled' } : unavailable(await describe());
    const { runnerId } = taken;
    try {
      const provider = await on(runnerId, taken.process);
      if (provider === undefined) return unavailable('the runner was removed');
      const there: SupervisedTurn = {
        ...turn,
        ...(inner !== undefined && { reference: inner }),
        opened: (reference) => turn.opened(`${runnerId}${SEPARATOR}${reference}`),
      };
      names.set(there, name);
      return await provider.run(there, signal);
    } finally {
      await runners.store().release(name);
    }
  }

  async function describe(): Promise<string> {
    const { status, advice } = await look();
    return status === 'ok' ? 'all runners that have it are busy' : (advice ?? status);
  }

  async function look(): Promise<ProbeResult & { readonly runnerId?: string }> {
    const [best] = await candidates();
    const found = best?.agents.find((agent) => agent.id === place.agent);
    if (best !== undefined && found !== undefined) return { status: 'ok', version: found.version, runnerId: best.id };
    const labels = place.requires.length === 0 ? '' : ` with ${place.requires.join(', ')}`;
    const isThere = (await runners.list()).some((runner) => runner.state === 'connected' && hasLabels(runner));
    const advice = isThere
      ? `no connected runner${labels} has a working "${place.agent}"; see trestle runner list`
      : `no runner${labels} is connected; start one with trestle runner`;
    return { status: 'not_configured', version: '', advice };
  }

  async function probe(signal: AbortSignal): Promise<ProbeResult> {
    const { runnerId, ...result } = await look();
    const remote = runnerId === undefined ? undefined : await on(runnerId);
    await remote?.probe(signal);
    if (remote?.abilities !== undefined) abilities = remote.abilities;
    return result;
  }

  return {
    id,
    probe,
    run,
    get abilities() {
      return abilities;
    },
    async fork(reference: string, fork: Fork): Promise<Forked> {
      const { runnerId = '', inner = '' } = readReference(reference);
      if ((await runners.store().find(runnerId))?.process) return { why: 'its runner takes one session only' };
      const copy = await (await on(runnerId))?.fork?.(inner, fork);
      if (copy === undefined) return { why: 'its runner was removed' };
      return 'why' in copy ? copy : { reference: `${runnerId}${SEPARATOR}${copy.reference}` };
    },
    async close(reference: string, closing?: Closing) {
      const { runnerId = '', inner = '' } = readReference(reference);
      await (await holderOf(runnerId, inner))?.close(inner, closing);
    },
    async download(path, signal, runnerId = '') {
      const remote = await on(runnerId);
      if (remote?.download === undefined) throw new Error('the runner of the file was removed');
      return remote.download(path, signal);
    },
    stop: () => Promise.resolve(),
  };
}

function readReference(reference = ''): { readonly runnerId?: string; readonly inner?: string } {
  const at = reference.indexOf(SEPARATOR);
  return at === -1 ? {} : { runnerId: reference.slice(0, at), inner: reference.slice(at + 1) };
}

function unavailable(reason: string): AgentEnd {
  return { kind: 'failed', code: 'PROVIDER_UNAVAILABLE', error: `The agent is not available: ${reason}.` };
}
