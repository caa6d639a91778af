import * as http2 from 'node:http2';
import { join } from 'node:path';
import { duplexPair } from 'node:stream';
import { bridgeErrors } from '../../../../src/bridge/errors.ts';
import { createRunners } from '../../../../src/bridge/runners/create-runners.ts';
import { type Connected, HELLO_HEADER } from '../../../../src/bridge/runners/runner-tunnel.ts';
import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../../src/platform/clock/randomness.ts';
import { openDatabase } from '../../../../src/platform/database/open-database.ts';
import { createSortableIds } from '../../../../src/platform/ids/sortable-id.ts';
import type { MessageChannel } from '../../../../src/platform/json-rpc/message-channel.ts';
import { createDispatch } from '../../../../src/platform/json-rpc/method-table.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { temporaryFolder } from '../../../kit/running-program.ts';
import { silentLogger } from '../../../kit/silent-logger.ts';
import { askInside } from '../ask-inside.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';

const BEAT_MS = 5000;
const NAME = 'builder';
const HELLO = { version: '1', host: 'here', slots: 2, start: 'first-start-of-a-runner' };

/** Runners: added, connected, given turns, gone, removed. */
export const runnersScenario: Scenario = {
  name: 'runners',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createFakeClock());
    const file = join(await temporaryFolder(stage.scope), 'bridge.db');
    const location = { engine: 'sqlite', file } as const;
    const definition = { name: 'bridge', migrations: bridgeMigrations };
    const database = await openDatabase<BridgeSchema>({ ...definition, location, clock: systemClock });
    stage.scope.after(() => database.close());
    const { query } = database;
    // Before the service is made, which copies the functions of its store.
    stage.watch(database);
    const runners = createRunners({
      database,
      clock,
      makeId: createSortableIds(clock, systemRandomness),
      randomness: systemRandomness,
      logger: silentLogger,
      throttle: { note: () => ({ firstOverLimit: false }) },
    });
    runners.join({ instance: 'ins_1', deadAfterMs: undefined });
    stage.scope.after(() => runners.stop());
    const dispatch = createDispatch({ rows: runners.controls });
    const command = (method: string, params: Readonly<Record<string, unknown>>) => {
      const signal = new AbortController().signal;
      const nobodyListens = () => undefined;
      const call = { method, params, id: '1', caller: undefined, signal, requestId: 'test' };
      return askInside(bridgeErrors, async () => dispatch({ ...call, notify: nobodyListens, accept: nobodyListens }));
    };
    const inside = <Result>(name: string, work: () => Promise<Result>) =>
      stage.step({ name, ask: () => askInside(bridgeErrors, work) });
    const rows = () => query.selectFrom('runners').selectAll().execute();

    const made = (await stage.step({
      name: 'a runner',
      ask: () => command('runners.create', { name: NAME, labels: ['gpu'] }),
      stored: async () => storedOf((await rows()).length === 1),
      whenDone: ['storage_duplicate', 'runner_exists'],
    })) as { readonly id: string; readonly key: string } | undefined;
    if (made === undefined) return stage.mend();
    const headers = { authorization: `Bearer ${made.key}`, [HELLO_HEADER]: JSON.stringify(HELLO) };
    const [ofRunner] = runners.upgrades;
    const caller = await inside('the way in for the runner', async () =>
      ofRunner?.guard({ headers, address: '127.0.0.1' } as never),
    );
    const connected = connect();
    const isThere = async () => (await rows()).every(({ connection, report }) => connection !== '' && report !== '');
    await passUntil(clock, BEAT_MS, 'the runner to be noted', isThere);

    const store = runners.store();
    const turn = { id: 'remote-1', runner_id: made.id, instance: 'ins_1' };
    const turns = async () => (await query.selectFrom('runner_turns').select('id').execute()).length;
    await stage.step({
      name: 'a place for a turn',
      ask: () => askInside(bridgeErrors, () => store.take(turn, true)),
      stored: async () => storedOf((await turns()) === 1),
    });
    await stage.step({ name: 'the runners', ask: () => command('runners.list', {}) });
    await inside('the runner by its id', () => store.find(made.id));
    // A beat looks for turns whose instance is dead, and keeps the others.
    await clock.advance(BEAT_MS);
    await stage.step({
      name: 'the end of the turn',
      ask: () => askInside(bridgeErrors, () => store.release(turn.id)),
      stored: async () => storedOf((await turns()) === 0),
    });
    connected.end();
    await passUntil(clock, BEAT_MS, 'the runner to be away', async () => (await rows())[0]?.connection === '');
    await stage.step({
      name: 'the end of a runner',
      ask: () => command('runners.revoke', { name: NAME }),
      stored: async () => storedOf((await rows()).length === 0),
      whenDone: ['runner_unknown'],
    });
    stage.mend();
    stage.note({ kind: 'fact', name: 'turns on runners', wanted: 0, found: await turns() });

    /** A runner that answers pings and serves nothing. */
    function connect(): { end(): void } {
      const [near, far] = duplexPair();
      const server = http2.createServer();
      server.on('session', (session) => void session.on('error', () => undefined));
      server.on('stream', (stream) => {
        stream.on('error', () => undefined);
        stream.respond({ ':status': 503 }, { endStream: true });
      });
      server.emit('connection', far);
      const listeners: (() => void)[] = [];
      const channel: MessageChannel = {
        send: () => undefined,
        close: () => undefined,
        onMessage: () => undefined,
        onEnd: (listener) => void listeners.push(() => listener({ code: 1006, reason: '' })),
        bytes: () => near,
      };
      near.once('close', () => {
        for (const listener of listeners) listener();
      });
      ofRunner?.accept(channel, {} as never, caller as Connected);
      return { end: () => near.destroy() };
    }
  },
};
