import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import type { Rounds } from '../report/take-turns.ts';
import { benchDatabase } from './database.bench.ts';
import { benchHttp } from './http.bench.ts';
import { benchJsonRpc } from './json-rpc.bench.ts';
import { benchStart } from './start-and-memory.bench.ts';
import { benchIdleSockets } from './websocket.bench.ts';

/** How long each measurement takes: a full run, and a short one of about 40 s. */
const PARAMETERS = {
  full: {
    rounds: { warmUpMs: 3000, rounds: 30, roundMs: 250 },
    sockets: 10_000,
    database: { rounds: 20, roundMs: 500 },
    starts: 7,
  },
  quick: {
    rounds: { warmUpMs: 1000, rounds: 8, roundMs: 200 },
    sockets: 2000,
    database: { rounds: 6, roundMs: 300 },
    starts: 2,
  },
};

/** The floor that all services stand on: HTTP, JSON-RPC, the database, the start. */
export async function platformSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { rounds, sockets, database, starts } = quick ? PARAMETERS.quick : PARAMETERS.full;
  return [
    { title: 'Platform: HTTP and JSON-RPC', figures: await networkFigures(rounds, sockets) },
    { title: 'Platform: database', figures: await databaseFigures(database) },
    { title: 'Platform: start and memory', figures: await startFigures(starts) },
  ];
}

async function networkFigures(rounds: Rounds, idleSockets: number): Promise<readonly Figure[]> {
  const http = await benchHttp(rounds);
  const rpc = await benchJsonRpc(rounds);
  const sockets = await benchIdleSockets({ sockets: idleSockets });
  return [
    ratioFigure({
      name: 'empty route against a bare Fastify route',
      unit: 'requests/s',
      ours: http.ours.perSecond,
      bound: http.bound.perSecond,
      goal: 0.8,
    }),
    ratioFigure({
      name: 'the same, by processor time of the server',
      unit: 'requests/CPU s',
      ours: http.ours.perCpuSecond,
      bound: http.bound.perCpuSecond,
      goal: 0.8,
    }),
    ratioFigure({
      name: 'JSON-RPC `echo` over WebSocket against a raw `ws` JSON echo',
      unit: 'messages/s',
      ours: rpc.ours.perSecond,
      bound: rpc.bound.perSecond,
      goal: 0.6,
    }),
    {
      name: 'memory of an idle WebSocket against raw `ws`',
      value: `${round(sockets.ours.resident)} B`,
      bound: `${round(sockets.raw.resident)} B`,
      result: (sockets.ours.resident / sockets.raw.resident).toFixed(2),
      goal: '≤ 2',
      met: sockets.ours.resident / sockets.raw.resident <= 2,
      amounts: {
        ours: sockets.ours.resident,
        bound: sockets.raw.resident,
        goal: 2 * sockets.raw.resident,
      },
    },
  ];
}

async function databaseFigures(rounds: Omit<Rounds, 'warmUpMs'>): Promise<readonly Figure[]> {
  const database = await benchDatabase(rounds);
  return [
    ratioFigure({
      name: 'durable inserts, 64 in flight, against raw one-row FULL commits',
      unit: 'inserts/s',
      ours: database.grouped,
      bound: database.raw,
      goal: 4,
    }),
    ratioFigure({
      name: 'durable inserts, one in flight, against the same',
      unit: 'inserts/s',
      ours: database.single,
      bound: database.raw,
      goal: 0.75,
    }),
    limitFigure({
      name: 'waits for the disk per insert, 64 in flight',
      unit: 'fsync',
      value: database.syncsPerInsert,
      goal: 0.25,
    }),
    limitFigure({
      name: 'longest stop of the event loop meanwhile',
      unit: 'ms',
      value: database.longestStopMs,
      goal: 20,
    }),
  ];
}

async function startFigures(starts: number): Promise<readonly Figure[]> {
  const sources = await benchStart({ starts, built: false });
  const built = await benchStart({ starts, built: true });
  const ready = { name: 'start to ready', unit: 'ms', goal: 1000 };
  const idle = { name: 'idle memory', unit: 'MiB' };
  return [
    limitFigure({ ...ready, name: `${ready.name}, from sources`, value: median(sources.readyMs) }),
    limitFigure({ ...ready, name: `${ready.name}, built`, value: median(built.readyMs) }),
    limitFigure({ ...idle, name: `${idle.name}, from sources`, value: median(sources.idleMebibytes), goal: 150 }),
    limitFigure({ ...idle, name: `${idle.name}, built`, value: median(built.idleMebibytes), goal: 110 }),
  ];
}
