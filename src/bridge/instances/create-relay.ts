import { createReadStream } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Type } from 'typebox';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { WakeUps } from '../../platform/database/postgres/wake-ups.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { type Call, defineRoute, type Guard, type Operation, Reply, type Route } from '../../platform/http/surface.ts';
import type { PersonTokens } from '../../platform/identity/principal.ts';
import { createDispatch, type Dispatch, defineMethod, type MethodCall } from '../../platform/json-rpc/method-table.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { BridgeCaller } from '../access.ts';
import type { RelayedFile } from '../agents/agent-provider.ts';
import { type BridgeClient, NO_RESUME } from '../bridge-client.ts';
import { createCallPeer, requestPeerFile } from '../forwarding/call-node.ts';
import { principalOf } from '../principal.ts';
import { createRpcOverHttp, type RpcOverHttpOptions } from '../rpc-over-http.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { SessionSummaries } from '../sessions/session-summaries.ts';
import type { UpdateHub } from '../sessions/update-hub.ts';
import type { ArtifactRow, BridgeSchema, SessionRow } from '../storage/bridge-schema.ts';
import { createInstanceStore } from '../storage/instance-and-route-stores.ts';
import { createSessionStore } from '../storage/session-store.ts';
import { createUpdateStore } from '../storage/update-store.ts';
import { asClient } from '../team-work.ts';
import type { RegisteredInstance } from './instance-registry.ts';
import {
  CANCEL_WAITING,
  createCancelWaiting,
  createRelayClient,
  createSessionOwners,
  type FileKind,
  NO_UPDATES,
  QUIET,
  RELAY_PATH,
  type RelayCall,
  type RelayEnvelope,
  type RelaySignatures,
  type RelayTarget,
  receiveCaller,
  type SignedRequest,
} from './relay-call.ts';
import { createSessionFeeds, type SessionFeeds } from './session-feeds.ts';
import {
  CANCEL,
  createOwnerDispatch,
  createViaOwner,
  FLUSH,
  FOLLOW,
  type OwnerDispatchOptions,
  serveFollower,
  servePatiently,
  serveRelayed,
  UPDATE,
} from './session-owners.ts';

/** Lets any instance of a database take any call: calls about a session are served where the session is. */
export interface Relay {
  /** Relays calls about sessions of other instances, and passes all others to `dispatch`. */
  wrap(
    dispatch: Dispatch<BridgeClient>,
    here: Pick<OwnerDispatchOptions, 'isBusyHere' | 'doubt' | 'endJobs'>,
  ): Dispatch<BridgeClient>;
  /** Serves rows about one session where the session is. Each has `:sessionId` in its path. */
  wrapRows(rows: readonly Route[], names: ReadonlySet<string>): readonly Route[];
  /** The rows for other instances. Call `wrap` and `wrapRows` before. */
  routes(
    over: Pick<RpcOverHttpOptions, 'access' | 'stalledAfterMs' | 'onUnexpectedError'> & {
      readonly messageBytes: number;
    },
  ): readonly Route[];
  /** Lets connections follow sessions of other instances, and serves the followers of others. Call it once, before `routes`. */
  following(here: FollowingParts): SessionFollowing;
  /** Stores what another instance has published of a session that is followed here. */
  flush(sessionKey: string): Promise<void>;
  /** Tells other instances that a turn has begun or ended, or that a session was closed. */
  tell(sessionKey: string): void;
  /** Stops serving followers, because this instance is about to stop and its turns have ended. */
  settle(): void;
  /** Where other instances call. */
  readonly paths: readonly string[];
  /** Whether another living instance has the session. */
  isElsewhere(owner: string, sessionId: string): Promise<boolean>;
  /** A file in the data directory of another instance. Throws NOT_FOUND when no instance with that directory lives. */
  file(kind: FileKind, row: KeptRow, signal?: AbortSignal): Promise<RelayedFile>;
  /** The bytes of such a file. */
  read(kind: FileKind, row: KeptRow): Promise<Buffer>;
  stop(): Promise<void>;
}

type SessionFollowing = Pick<SessionOrchestrator, 'follow' | 'forget'>;

interface FollowingParts {
  readonly orchestrator: SessionFollowing;
  readonly hub: UpdateHub;
  /** Stores what was published here. */
  flush(): Promise<void>;
  readonly summaries: Pick<SessionSummaries, 'changedElsewhere'>;
}

type KeptRow = Pick<ArtifactRow, 'id' | 'home' | 'size_bytes'>;

export interface RelayOptions {
  readonly database: Database<BridgeSchema>;
  readonly instance: Pick<RegisteredInstance, 'id' | 'lease' | 'databaseNow' | 'isLeaving'>;
  /** The data directory of this instance, by its name. */
  readonly home: string;
  readonly dataDirectory: string;
  readonly signatures: RelaySignatures;
  readonly personTokens: PersonTokens | undefined;
  /** Undefined in tests: then changes by other instances are found by polling. */
  readonly wakeUps?: WakeUps | undefined;
  readonly clock: Clock;
  readonly logger: Pick<Logger, 'warn'>;
}

/** The longest silence within a response: the other side sends a heartbeat every fifteen seconds. */
const IDLE_MS = 45_000;
const FILE_MS = 60_000;
const CONNECT_MS = 2_000;
/** The maximum size of the envelope of a relayed call, besides the call itself. */
const MAX_ENVELOPE_BYTES = 1024 * 1024;
const SERVE_ROW = 'instance.row';
const INTERNAL: ReadonlySet<string> = new Set([SERVE_ROW, FOLLOW, FLUSH, CANCEL_WAITING]);
/** The topic of messages about sessions; their subject is an instance and the key of a session. */
const SESSION_CHANGED = 'session';
const FILE_ID = /^(?:art|att)_[a-z0-9]{26}$/;

const op = {
  call: { summary: 'A call that another instance relays.', raw: true, anyType: true, unlisted: true },
  file: { summary: 'A file for another instance.', unlisted: true },
} as const satisfies Readonly<Record<string, Operation>>;

export function createRelay(options: RelayOptions): Relay {
  const { database, instance, home, dataDirectory, signatures, personTokens, clock, logger } = options;
  const stopped = new AbortController();
  const client = createRelayClient({
    signatures,
    callPeer: createCallPeer({ clock, idleMs: IDLE_MS }),
    requestFile: (request) => requestPeerFile(request, { clock, connectMs: CONNECT_MS }),
    personTokens,
  });
  const owners = createSessionOwners({
    instance: instance.id,
    home,
    deadAfterMs: instance.lease.deadAfterMs ?? 0,
    instances: createInstanceStore(database),
    sessions: createSessionStore(database),
    isLeaving: instance.isLeaving,
  });
  const viaOwner = createViaOwner({
    owners,
    clock,
    stopped: stopped.signal,
    onFailure: (failure) => logger.warn(failure, 'a call could not be relayed'),
  });
  let dispatchHere: Dispatch<BridgeClient> = () => undefined;
  const rowsHere = new Map<string, Route['handle']>();

  /** Serves a call that another instance has relayed. It is not relayed again. */
  async function serve(call: MethodCall<BridgeClient>): Promise<unknown> {
    const { caller, sink } = call.caller;
    const { wantsUpdates = false, resume = NO_RESUME, isStrict = false } = caller.relayed ?? {};
    const relayed = { caller, sink: wantsUpdates ? sink : undefined, stays: false, resume, isStrict };
    return serveRelayed(owners, asClient(call, relayed, call.params), dispatchHere);
  }

  let here: FollowingParts | undefined;
  let feeds: SessionFeeds | undefined;
  const left = new AbortController();
  /** Calls another instance as the owner of a session, because this instance has checked who may follow the session. */
  const askFor = (
    target: RelayTarget,
    session: SessionRow,
    method: string,
    on: Partial<RelayCall>,
    signal: AbortSignal,
  ) =>
    client.ask(
      target,
      {
        caller: { principal: principalOf(session.owner) },
        client: { ...QUIET, wantsUpdates: true },
        id: 'feed',
        method,
        params: { key: session.key },
        ...NO_UPDATES,
        ...on,
      },
      AbortSignal.any([signal, stopped.signal]),
    );
  const anything = Type.Unknown();
  const ofSession = { params: Type.Object({ key: Type.String() }), result: anything };
  const internal = createDispatch<BridgeClient>({
    rows: [
      defineMethod({
        ...ofSession,
        name: FOLLOW,
        summary: 'Sends the updates of a session to another instance.',
        async handle({ key }, call: MethodCall<BridgeClient>) {
          if (here === undefined) throw new AppError('NOT_OWNER');
          return serveFollower(key, call, { owners, hub: here.hub, clock, left: left.signal });
        },
      }),
      defineMethod({
        ...ofSession,
        name: FLUSH,
        summary: 'Stores what was published here.',
        async handle() {
          await here?.flush();
          return {};
        },
      }),
      defineMethod({
        name: CANCEL_WAITING,
        summary: 'Cancels turns here that wait for a place.',
        params: anything,
        result: anything,
        handle: (params, call: MethodCall<BridgeClient>) => dispatchHere(asClient(call, call.caller, params, CANCEL)),
      }),
      defineMethod({
        name: SERVE_ROW,
        summary: 'Serves a row of the second surface.',
        params: Type.Object({ row: Type.String(), params: anything, query: anything, body: anything }),
        result: anything,
        async handle({ row, params, query, body }, call: MethodCall<BridgeClient>) {
          const { caller } = call.caller;
          const handle = rowsHere.get(row);
          if (handle === undefined) throw new AppError('NOT_OWNER');
          const { sessionId = '' } = params as Readonly<Record<string, string>>;
          const owner = await owners.ofRow(await owners.find(caller.principal, sessionId, false));
          if (owner !== undefined) throw new AppError('NOT_OWNER');
          const parts = { params, query, body } as Pick<Parameters<typeof handle>[0], 'params' | 'query' | 'body'>;
          // The response of these rows is what they return: nothing but their status is set on the reply.
          const reply: Reply = Object.assign(Object.create(Reply.prototype), { code: () => reply });
          const head = { requestId: call.requestId } as Call['head'];
          return servePatiently(call, clock, async () => handle({ ...parts, caller, reply, head }));
        },
      }),
    ],
  });

  const signed: Guard<SignedRequest> = (head) => signatures.check(head);

  async function sendFile({
    caller,
    params,
    reply,
  }: Call<SignedRequest, unknown, unknown, { kind: string; id: string }>) {
    caller.checkBody(new Uint8Array());
    const { kind, id } = params;
    if ((kind !== 'artifacts' && kind !== 'attachments') || !FILE_ID.test(id)) throw new AppError('NOT_FOUND');
    const file = join(dataDirectory, kind, id);
    const found = await lstat(file).catch(() => undefined);
    if (found?.isFile() !== true) throw new AppError('NOT_FOUND');
    reply.header('content-type', 'application/octet-stream').header('content-length', found.size);
    return reply.send(found.size === 0 ? '' : createReadStream(file, { end: found.size - 1 }));
  }

  async function file(kind: FileKind, { id, home: wanted, size_bytes: size }: KeptRow, signal = stopped.signal) {
    const target = await owners.withHome(wanted);
    if (target === undefined) throw new AppError('NOT_FOUND');
    const limit = deadline(clock, FILE_MS, [stopped.signal, signal]);
    const found = await client.file(target, kind, id, limit.signal).finally(() => limit.release());
    if (found.sizeBytes === size) return found;
    found.body.destroy();
    throw new AppError('NOT_FOUND');
  }

  return {
    wrap(dispatch, calls) {
      dispatchHere = dispatch;
      const common = { owners, relay: client, clock, stopped: stopped.signal };
      const cancelWaiting = createCancelWaiting(common);
      return createOwnerDispatch({ ...common, ...calls, viaOwner, cancelWaiting, feeds: () => feeds }, dispatch);
    },
    wrapRows: (rows, names) =>
      rows.map((row) => {
        const name = `${row.method} ${row.path}`;
        if (!names.has(name)) return row;
        const { handle } = row;
        rowsHere.set(name, handle);
        return {
          ...row,
          async handle(call) {
            const { params, query, body } = call;
            const caller = call.caller as BridgeCaller;
            const { sessionId = '' } = params;
            return viaOwner({
              find: () => owners.find(caller.principal, sessionId, false),
              answered(result) {
                const [status] = Object.keys(row.schema?.response ?? {});
                call.reply.code(Number(status ?? 200));
                return result;
              },
              here: () => handle(call),
              repeat: undefined,
              ask: (target) =>
                client.ask(
                  target,
                  {
                    caller,
                    client: QUIET,
                    id: 'row',
                    method: SERVE_ROW,
                    params: { row: name, params, query, body: body ?? null },
                    ...NO_UPDATES,
                  },
                  stopped.signal,
                ),
            });
          },
        };
      }),
    routes({ access, stalledAfterMs, onUnexpectedError, messageBytes }) {
      const over = createRpcOverHttp({
        access,
        dispatch: (call) => (INTERNAL.has(call.method) ? internal(call) : serve(call)),
        methodNames: new Set(),
        clock,
        stalledAfterMs,
        codesWithStatus: new Set(),
        onUnexpectedError,
      });
      const relayCall = { ...op.call, bodyLimit: messageBytes + MAX_ENVELOPE_BYTES };
      return [
        defineRoute(`POST ${RELAY_PATH}`, signed, relayCall, async ({ head, caller, body, reply }) => {
          caller.checkBody(body);
          const end = body.indexOf('\n');
          const envelope = JSON.parse(body.subarray(0, end).toString()) as RelayEnvelope;
          const from = await receiveCaller(envelope, personTokens);
          const call: Call<BridgeCaller, Buffer> = {
            head,
            caller: from,
            body: body.subarray(end + 1),
            reply,
            params: {},
            query: {},
          };
          return over.answer(call);
        }),
        defineRoute(`GET ${RELAY_PATH}/:kind/:id`, signed, op.file, sendFile),
      ];
    },
    following(parts) {
      here = parts;
      feeds = createSessionFeeds({
        ...parts,
        sessions: parts.orchestrator,
        owners,
        updates: createUpdateStore(database),
        clock,
        log: logger,
        flush: (target, session, signal) => askFor(target, session, FLUSH, {}, signal),
        openStream: (target, session, { accepted, update }, signal) =>
          askFor(
            target,
            session,
            FOLLOW,
            {
              accepted,
              notified(method, params) {
                const { seq, text } = Object(params) as Readonly<Record<string, unknown>>;
                if (method === UPDATE && typeof text === 'string') update(Number(seq), text);
                return undefined;
              },
            },
            signal,
          ),
      });
      options.wakeUps?.on(SESSION_CHANGED, (subject) => {
        const [from, key] = subject.split(' ');
        if (from === instance.id) return;
        feeds?.woken(key);
        if (key !== undefined) parts.summaries.changedElsewhere(key);
      });
      return feeds;
    },
    flush: async (key) => feeds?.flush(key),
    tell: (key) => options.wakeUps?.send(SESSION_CHANGED, `${instance.id} ${key}`),
    settle: () => left.abort(),
    paths: [RELAY_PATH],
    isElsewhere: async (owner, sessionId) =>
      (await owners.ofRow(await createSessionStore(database).find(sessionId, owner))) !== undefined,
    file,
    async read(kind, row) {
      const { body } = await file(kind, row);
      return buffer(body);
    },
    async stop() {
      stopped.abort();
      left.abort();
      await feeds?.stop();
    },
  };
}
