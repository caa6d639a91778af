import type { BridgeClient } from '../../../../src/bridge/bridge-client.ts';
import type { SessionResult } from '../../../../src/bridge/contract/session.ts';
import { MAIN } from '../../../../src/bridge/principal.ts';
import type { NotificationSink } from '../../../../src/bridge/sessions/update-hub.ts';
import { type RawJson, toJsonText } from '../../../../src/platform/json-rpc/envelope.ts';
import { readUpdate } from '../../sessions/stored-sessions.ts';
import type { Chance } from '../chance.ts';
import type { Ended, PlayedProgram } from '../played-program.ts';
import { isOfStore } from '../played-store.ts';
import { callOf, type PlayedSessions } from './played-bridge.ts';
import type { SessionsEvent } from './session-events.ts';

export interface SessionApps {
  /** One of them does something; nobody waits for it. */
  act(): void;
  /** All connections to it are gone. */
  lose(from: PlayedProgram<PlayedSessions>): void;
  /** Everything that may go on for ever is cancelled. */
  cancelAll(): void;
  /** Those who are not connected come back, for what they have missed. */
  connectAll(): void;
}

export interface SessionAppsOptions {
  readonly chance: Chance;
  /** Where the next call or connection goes. */
  readonly bridge: () => PlayedProgram<PlayedSessions>;
  now(): number;
  note(event: SessionsEvent): void;
}

interface Connection {
  readonly to: PlayedProgram<PlayedSessions>;
  readonly name: string;
  readonly receiver: NotificationSink;
  /** The bridge has said that it knows of it. */
  isFollowing: boolean;
  isOpen: boolean;
}

interface MadeCall {
  readonly method: 'session.start' | 'session.message';
  readonly prompt: string;
  /** The last number that its client knew then. */
  readonly seqBefore: number;
  readonly idempotencyKey: string;
}

interface SentCall {
  readonly app: SessionApp;
  readonly call: MadeCall;
  readonly client: BridgeClient;
  readonly to: PlayedProgram<PlayedSessions>;
}

/** One session with its one app, which comes back with the last number that it has seen. */
interface SessionApp {
  readonly session: string;
  /** It ends its session now and then. */
  readonly closes: boolean;
  lastSeq: number;
  /** It was told that there is nothing to be continued. */
  mustStart: boolean;
  connection: Connection | undefined;
  readonly calls: MadeCall[];
}

const SESSIONS = ['talk', 'chat', 'passing'];
const CLOSING = 'passing';
const NO_RESUME = { afterSeq: undefined, idempotencyKey: '' };
const caller = { principal: MAIN } as const;

export function createSessionApps({ chance, bridge, now, note }: SessionAppsOptions): SessionApps {
  const apps = SESSIONS.map(
    (session): SessionApp => ({
      session,
      closes: session === CLOSING,
      lastSeq: 0,
      mustStart: true,
      connection: undefined,
      calls: [],
    }),
  );
  let connections = 0;

  /** `app`: whose own connection it is; the others only hear one call. */
  function open(to: PlayedProgram<PlayedSessions>, session: string, afterSeq: number, app?: SessionApp): Connection {
    connections += 1;
    const name = `${session}/${connections}`;
    const connection: Connection = {
      to,
      name,
      receiver: {
        update(params, seq) {
          if (!connection.isOpen) return;
          note({ kind: 'update', connection: name, at: now(), ...readUpdate(session, seq, JSON.parse(params.text)) });
          if (app !== undefined) app.lastSeq = Math.max(app.lastSeq, seq);
        },
        // Any update may be the one that is too much: the rest is then read from the store.
        isBehind: () => chance.happens(0.1),
        drained: async () => connection.isOpen,
        // The bridge closes the connection, and the app comes back.
        lost() {
          if (app?.connection === connection) disconnect(app);
        },
      },
      isFollowing: false,
      isOpen: true,
    };
    note({ kind: 'connected', session, connection: name, chain: app !== undefined, afterSeq });
    return connection;
  }

  function connect(app: SessionApp): void {
    const to = bridge();
    if (app.connection !== undefined || !to.isRunning()) return;
    const { session, lastSeq } = app;
    const connection = open(to, session, lastSeq, app);
    app.connection = connection;
    to.ask(
      ({ orchestrator }) => orchestrator.follow(MAIN, session, lastSeq, connection.receiver),
      ({ outcome }) => {
        connection.isFollowing = outcome === 'ok';
        if (outcome !== 'ok' && app.connection === connection) disconnect(app);
      },
    );
  }

  function disconnect(app: SessionApp): void {
    const { connection } = app;
    if (connection === undefined) return;
    app.connection = undefined;
    connection.isOpen = false;
    connection.to.ask(
      async ({ orchestrator }) => orchestrator.forget(connection.receiver),
      () => undefined,
    );
  }

  function callTurn(app: SessionApp): void {
    const starts = app.mustStart || (app.closes && chance.happens(0.3));
    const prompt = `${app.session} ${app.calls.length + 1}`;
    const call: MadeCall = {
      method: starts ? 'session.start' : 'session.message',
      prompt,
      seqBefore: app.lastSeq,
      idempotencyKey: chance.happens(0.3) ? prompt : '',
    };
    const { connection } = app;
    const isSocket = connection?.isFollowing === true && call.idempotencyKey === '' && chance.happens(0.6);
    const client: BridgeClient = isSocket
      ? { caller, sink: connection.receiver, stays: true, resume: NO_RESUME }
      : requestOf({ ...NO_RESUME, idempotencyKey: call.idempotencyKey });
    const to = isSocket ? connection.to : bridge();
    if (!to.isRunning()) return;
    app.calls.push(call);
    app.mustStart = false;
    send({ app, call, client, to }, 'turn', 0);
  }

  /** The same call once more, from any number that its client had then. */
  function repeat(app: SessionApp): void {
    if (app.calls.length === 0) return;
    const call = chance.pick(app.calls);
    const { idempotencyKey, seqBefore } = call;
    // With a key alone, a call that came to nothing is a new one.
    const afterSeq = idempotencyKey === '' ? chance.between(0, seqBefore) : undefined;
    const resume = { idempotencyKey, afterSeq };
    send({ app, call, client: requestOf(resume), to: bridge() }, 'repeat', afterSeq ?? 0);
  }

  /** A request whose answer is a stream; `send` says what hears its updates. */
  function requestOf(resume: BridgeClient['resume']): BridgeClient {
    const stream = { isBehind: () => chance.happens(0.1), drained: async () => true, lost: () => undefined };
    return { caller, sink: { ...stream, update: () => undefined }, stays: false, resume };
  }

  function send({ app, call, client, to }: SentCall, kind: 'turn' | 'repeat', after: number): void {
    if (!to.isRunning()) return;
    const { session } = app;
    const { method, prompt } = call;
    const params = { sessionId: session, taskPrompt: prompt };
    const heard = client.stays ? undefined : open(to, session, after);
    const sink =
      heard === undefined || client.sink === undefined
        ? client.sink
        : { ...client.sink, update: heard.receiver.update };
    const made = callOf(
      { ...client, sink },
      {
        params,
        id: prompt,
        // What another instance has sent to the one that was asked.
        notify(_name, update) {
          const params = update as RawJson;
          sink?.update(params, Number((JSON.parse(params.text) as { readonly seq: number }).seq));
        },
      },
    );
    to.ask(
      ({ sessionCalls }) => sessionCalls.turn(method, params, made),
      ({ outcome, code, told, startedAt, endedAt }) => {
        if (heard !== undefined) heard.isOpen = false;
        if (code === 'SESSION_CONTINUATION_UNAVAILABLE') app.mustStart = true;
        // After an error of the store the turn may have begun: an agent is asked while the beginning of its turn is being stored.
        const isUnknown = isOfStore(code) || code === 'OWNER_UNREACHABLE';
        const common = { session, startedAt, endedAt, prompt, outcome: isUnknown ? ('unknown' as const) : outcome };
        const result = told === undefined ? undefined : (JSON.parse(toJsonText(told)) as SessionResult);
        const rest = {
          ...(code !== undefined && { code }),
          ...(result !== undefined && { turnId: result.turnId, status: result.status }),
        };
        note(kind === 'turn' ? { kind, method, ...common, ...rest } : { kind, ...common, ...rest });
      },
    );
  }

  function stop(app: SessionApp, kind: 'cancel' | 'close'): void {
    const { session } = app;
    const client = callOf({ caller, sink: undefined, stays: false, resume: NO_RESUME });
    bridge().ask<unknown>(
      ({ sessionCalls }) => sessionCalls[kind]({ sessionId: session }, client),
      ({ startedAt, endedAt, outcome }: Ended<unknown>) => note({ kind, session, startedAt, endedAt, outcome }),
    );
  }

  return {
    act() {
      const app = chance.pick(apps);
      const act = chance.weigh([
        [45, callTurn],
        [20, connect],
        [8, disconnect],
        [12, repeat],
        [10, () => stop(app, 'cancel')],
        [5, () => (app.closes ? stop(app, 'close') : connect(app))],
      ]);
      act(app);
    },
    lose(from) {
      for (const app of apps) {
        if (app.connection?.to !== from) continue;
        app.connection.isOpen = false;
        app.connection = undefined;
      }
    },
    cancelAll() {
      for (const app of apps) stop(app, 'cancel');
    },
    connectAll() {
      for (const app of apps) connect(app);
    },
  };
}
