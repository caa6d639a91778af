import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { Type } from 'typebox';
import { Check } from 'typebox/value';
import { pause, type Repeated, repeat } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { WakeUps } from '../../platform/database/postgres/wake-ups.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { FailureThrottle } from '../../platform/http/failure-throttle.ts';
import type { RequestHead, UpgradeRoute } from '../../platform/http/surface.ts';
import type { MessageChannel } from '../../platform/json-rpc/message-channel.ts';
import { defineMethod, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import { RUNNER_ABSENT, readMessage } from '../agents/post-for-events.ts';
import type { RemoteConnectionOptions } from '../agents/remote/remote-connection.ts';
import { type RunnerFacts, RunnerLabel, runnerControlResults } from '../contract/surface.ts';
import { refusalOfEndpoint } from '../forwarding/endpoints.ts';
import type { BridgeSchema, RunnerRow } from '../storage/bridge-schema.ts';
import {
  createInstanceStore,
  createRunnerStore,
  type ListedRunner,
  type RunnerStore,
} from '../storage/instance-and-route-stores.ts';
import {
  ANSWER_MS,
  type Connected,
  createLook,
  createPassage,
  HELLO_HEADER,
  Hello,
  joinStreams,
  keyHashOf,
  openTunnel,
  RUNNER_PATH,
  type RunnerReport,
  type Tunnel,
} from './runner-tunnel.ts';

type Through = NonNullable<RemoteConnectionOptions['through']>;

/** The facts about this instance that are known once it is on the list of instances. */
interface Joining {
  readonly instance: string;
  /** Undefined: no other instance shares the database. */
  readonly deadAfterMs: number | undefined;
  readonly wakeUps?: Pick<WakeUps, 'on' | 'send'> | undefined;
  readonly signatures?: {
    sign(request: { method: 'GET'; path: string; body: string; target: string }): Readonly<Record<string, string>>;
    check(head: RequestHead): { checkBody(body: Uint8Array): void };
  };
}

/** The machines with agents that connect to the instances: `trestle runner`. */
export interface Runners {
  /** Called once, before anything else. */
  join(joining: Joining): void;
  readonly upgrades: readonly UpgradeRoute[];
  readonly controls: readonly MethodRow<undefined>[];
  list(): Promise<readonly RunnerFacts[]>;
  /** The store of what runs on runners. */
  store(): RunnerStore;
  own(): string;
  /** Adds an agent of the catalog that runs on runners. */
  watch(agentId: string): void;
  /** Calls the listener with each of these agents when a runner has connected, changed or disconnected. */
  onChange(listener: (agentId: string) => void): void;
  /** Sends requests to a runner, on whatever instance it is connected. Waits for an absent runner for a minute, then RUNNER_ABSENT. */
  through(runnerId: string): Promise<Through>;
  stop(): Promise<void>;
}

export interface RunnersOptions extends Pick<Runtime, 'clock' | 'makeId' | 'randomness' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  /** Counts wrong keys. */
  readonly throttle: FailureThrottle;
}

/** The topic of messages that a runner has connected, changed or disconnected. */
const CHANGED = 'runner';
const HOP_PATH = '/acp/relay/runner';
const HOP_HEADER = 'x-trestle-runner-id';
const KEY = /^trk_[\w-]{43}$/;
const KEY_PREFIX = 'trk_';
/** How long a runner may be away while its turns are kept. */
export const ABSENT_MS = 60_000;
const LOOK_MS = 300;
const BEAT_MS = 5_000;

export function createRunners(options: RunnersOptions): Runners {
  const { database, clock, makeId, randomness, logger } = options;
  const stopped = new AbortController();
  const instances = createInstanceStore(database);
  const tunnels = new Map<string, Tunnel>();
  const beats = new Set<Repeated>();
  const passages = new Map<string, Promise<Through>>();
  const agentIds = new Set<string>();
  let tell: (agentId: string) => void = () => undefined;
  let joined: (Joining & { readonly store: RunnerStore }) | undefined;

  function here(): Joining & { readonly store: RunnerStore } {
    if (joined === undefined) throw new Error('this instance is not on the list yet');
    return joined;
  }

  function changedHere(): void {
    changed();
    joined?.wakeUps?.send(CHANGED, joined.instance);
  }

  function changed(): void {
    for (const id of agentIds) tell(id);
  }

  /** A connection to the bridge of the runner: over the tunnel here, or over that of another instance. */
  async function tryOpen(runnerId: string): Promise<Duplex | undefined> {
    const tunnel = tunnels.get(runnerId);
    if (tunnel !== undefined) return tunnel.open();
    const { store, signatures, instance } = here();
    const row = await store.find(runnerId);
    if (signatures === undefined || row === undefined || row.instance === '' || row.instance === instance)
      return undefined;
    const target = await instances.findReachable({ id: row.instance, home: '' }, here().deadAfterMs ?? 0);
    if (target === undefined || refusalOfEndpoint(target.address) !== undefined) return undefined;
    const { WebSocket, createWebSocketStream } = await import('ws');
    const signed = signatures.sign({ method: 'GET', path: HOP_PATH, body: runnerId, target: target.id });
    const socket = new WebSocket(`${target.address.replace(/^http/, 'ws')}${HOP_PATH}`, {
      headers: { ...signed, [HOP_HEADER]: runnerId },
      perMessageDeflate: false,
      handshakeTimeout: ANSWER_MS,
    });
    await once(socket, 'open');
    return createWebSocketStream(socket);
  }

  async function open(runnerId: string): Promise<Duplex> {
    const until = clock.monotonic() + ABSENT_MS;
    while (!stopped.signal.aborted && clock.monotonic() < until) {
      const stream = await tryOpen(runnerId).catch(() => undefined);
      if (stream !== undefined) return stream;
      await pause(clock, LOOK_MS, stopped.signal);
    }
    throw Object.assign(new Error('the runner is away'), { code: RUNNER_ABSENT });
  }

  async function enter(head: RequestHead): Promise<Connected> {
    const [, key = ''] = /^Bearer (.+)$/i.exec(head.headers.authorization ?? '') ?? [];
    const runner = KEY.test(key) ? await here().store.findByKey(keyHashOf(key)) : undefined;
    if (runner === undefined) {
      const { retryAfterSeconds } = await options.throttle.note(head.address);
      throw new AppError('UNAUTHORIZED', retryAfterSeconds === undefined ? {} : { retryAfterSeconds });
    }
    const hello: unknown = readMessage(String(head.headers[HELLO_HEADER] ?? ''));
    if (!Check(Hello, hello)) throw new AppError('INVALID_REQUEST', { reason: `the header ${HELLO_HEADER} is wrong` });
    await refuseSecond(runner, hello);
    return { runner, hello };
  }

  /** Two runners with one key would take the connection, and with it each other's turns, again and again. */
  async function refuseSecond({ id, name }: Connected['runner'], { start = '' }: Connected['hello']): Promise<void> {
    const known = (await here().store.list()).find((one) => one.id === id);
    const { start: other = '', host = '' } = known?.connected === true ? reportOf(known) : {};
    if (start !== '' && other !== '' && other !== start) throw new AppError('RUNNER_CONNECTED', { name, host });
  }

  function accept(channel: MessageChannel, _head: unknown, { runner, hello }: Connected): void {
    if (channel.bytes === undefined) throw new Error('a runner needs a WebSocket');
    const tunnel = openTunnel(channel.bytes(), clock);
    const connection = makeId('con_');
    tunnels.get(runner.id)?.end();
    tunnels.set(runner.id, tunnel);
    const { store, instance } = here();
    const look = createLook({
      runner,
      hello,
      tunnel,
      connection,
      store,
      instance,
      logger,
      changed: changedHere,
    });
    const beat = repeat({
      clock,
      firstAfterMs: 0,
      pauseMs: BEAT_MS,
      work: look,
      // Also called while the database is unavailable; the turns on the runner continue.
      onError: (error) => logger.warn({ err: error, runner: runner.name }, 'it was not noted what a runner does'),
    });
    beats.add(beat);
    channel.onEnd(() => {
      tunnel.end();
      if (tunnels.get(runner.id) === tunnel) tunnels.delete(runner.id);
      logger.info({ runner: runner.name }, 'a runner is no longer connected');
      void beat
        .stop()
        .then(() => noteGone(runner, connection))
        .finally(() => beats.delete(beat));
    });
  }

  /**
   * Tries until it is stored, also after an outage of the database: until then, all instances count the runner as connected here,
   * and send it new conversations. A later connection of the runner is not touched.
   */
  async function noteGone({ id, name }: Connected['runner'], connection: string): Promise<void> {
    for (let isFirst = true; ; isFirst = false) {
      try {
        await here().store.disconnect(id, connection);
        return changedHere();
      } catch (error) {
        // An instance that stops leaves the list, and its runners with it.
        if (stopped.signal.aborted) return;
        if (isFirst) logger.warn({ err: error, runner: name }, 'not noted yet that a runner is away; trying again');
      }
      await pause(clock, BEAT_MS, stopped.signal);
    }
  }

  const ofRunner: UpgradeRoute<Connected> = {
    path: RUNNER_PATH,
    guard: enter,
    summary: 'The connection of a runner: HTTP/2 in binary messages, in which the instance is the client.',
    accept,
    stillAllowed: () => true,
  };
  const ofInstance: UpgradeRoute<Tunnel> = {
    path: HOP_PATH,
    guard(head) {
      const { signatures } = here();
      const runnerId = String(head.headers[HOP_HEADER] ?? '');
      if (signatures === undefined) throw new AppError('NOT_FOUND');
      signatures.check(head).checkBody(Buffer.from(runnerId));
      const tunnel = tunnels.get(runnerId);
      if (tunnel === undefined) throw new AppError('NOT_OWNER');
      return tunnel;
    },
    summary: 'A connection to a runner for another instance.',
    unlisted: true,
    accept(channel, _head, tunnel) {
      const stream = channel.bytes?.();
      if (stream === undefined) return;
      stream.on('error', () => undefined);
      tunnel.open().then(
        (opened) => joinStreams(stream, opened),
        () => stream.destroy(),
      );
    },
    stillAllowed: () => true,
  };

  async function list(): Promise<readonly RunnerFacts[]> {
    return (await here().store.list()).map(describeRunner);
  }

  const controls = [
    defineMethod({
      name: 'runners.create',
      summary: 'Adds a runner and returns its key, which is not kept.',
      params: Type.Object({ name: RunnerLabel, labels: Type.Array(RunnerLabel, { maxItems: 20 }) }),
      result: runnerControlResults['runners.create'],
      async handle({ name, labels }) {
        const key = createToken(randomness, KEY_PREFIX);
        const id = makeId('run_');
        const row = { id, name, key_hash: keyHashOf(key), labels: JSON.stringify([...new Set(labels)]) };
        await here().store.add(row);
        return { id, name, key };
      },
    }),
    defineMethod({
      name: 'runners.list',
      summary: 'The runners, and what they do.',
      params: Type.Object({}),
      result: runnerControlResults['runners.list'],
      handle: async () => ({ runners: [...(await list())] }),
    }),
    defineMethod({
      name: 'runners.revoke',
      summary: 'Removes a runner; its key and its connection end within seconds.',
      params: Type.Object({ name: Type.String() }),
      result: runnerControlResults['runners.revoke'],
      async handle({ name }) {
        if (!(await here().store.remove(name))) throw new AppError('RUNNER_UNKNOWN', { name });
        return {};
      },
    }),
  ];

  return {
    join(joining) {
      const store = createRunnerStore(database, () => joining.instance, joining.deadAfterMs);
      joined = { ...joining, store };
      joining.wakeUps?.on(CHANGED, changed);
    },
    watch: (agentId) => void agentIds.add(agentId),
    onChange(listener) {
      tell = listener;
    },
    upgrades: [ofRunner as UpgradeRoute, ofInstance as UpgradeRoute],
    controls,
    list,
    store: () => here().store,
    own: () => here().instance,
    through(runnerId) {
      const known = passages.get(runnerId) ?? createPassage(() => open(runnerId));
      passages.set(runnerId, known);
      return known;
    },
    async stop() {
      stopped.abort();
      for (const tunnel of tunnels.values()) tunnel.end();
      await Promise.all([...beats].map((beat) => beat.stop()));
      for (const passage of passages.values()) await (await passage).dispatcher.destroy();
    },
  };
}

/** Describes a row to operators. */
export function describeRunner({ id, name, labels, slots, turns, ...row }: ListedRunner): RunnerFacts {
  const { version = '', host = '', isLeaving = false, agents = [] } = reportOf(row);
  return {
    id,
    name,
    labels: JSON.parse(labels) as string[],
    state: !row.connected ? 'away' : isLeaving ? 'leaving' : 'connected',
    instance: row.connected ? row.instance : '',
    version,
    host,
    slots: row.process === '' ? slots : 1,
    turns,
    ...(row.process !== '' && { once: row.session === '' ? 'free' : 'taken' }),
    agents: [...agents],
  };
}

function reportOf({ report }: Pick<RunnerRow, 'report'>): Partial<RunnerReport> {
  return report === '' ? {} : (JSON.parse(report) as RunnerReport);
}
