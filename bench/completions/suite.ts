import { fork } from 'node:child_process';
import { once } from 'node:events';
import { quantile } from '../../test/kit/samples.ts';
import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import type { Rounds } from '../report/take-turns.ts';
import { type CompletionsServer, startCompletionsServer } from './completions-server.ts';
import { type Contender, type Measured, measure, measureLatency } from './measure.ts';
import { benchOpenStreams } from './open-streams.bench.ts';
import { type Portkey, startPortkey } from './portkey.ts';
import { startRawProxy } from './raw-proxy.ts';

const CONNECTIONS = 32;
/** More than are ever under way at that rate. */
const PACED_CONNECTIONS = 64;
const ADDED_MS = [
  ['p50', 0.5, 1.5],
  ['p95', 0.95, 5],
  ['p99', 0.99, 10],
] as const;
const MAX_OVER_RAW_MS = 3;
export const PATH = '/v1/chat/completions';
const MESSAGES = [
  { role: 'system', content: 'You are a helpful assistant. '.repeat(10) },
  { role: 'user', content: 'Write something about bridges. '.repeat(20) },
];

/** How long each measurement takes: a full run, and a short one of about 30 s. */
const PARAMETERS = {
  full: {
    rounds: { warmUpMs: 3000, rounds: 30, roundMs: 300 },
    latency: { perSecond: 1000, rounds: 10, roundMs: 1000 },
    openStreams: 1000,
  },
  quick: {
    rounds: { warmUpMs: 500, rounds: 6, roundMs: 200 },
    latency: { perSecond: 1000, rounds: 2, roundMs: 400 },
    openStreams: 200,
  },
};

interface Load {
  readonly upstreamPort: number;
  readonly rawPort: number;
  readonly ours: CompletionsServer;
  readonly portkey: Portkey | undefined;
}

/** Completions beside a raw proxy, the upstream itself and a peer, all on the same upstream in the same run. */
export async function completionsSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { rounds, latency, openStreams } = quick ? PARAMETERS.quick : PARAMETERS.full;
  const upstream = fork(new URL('./scripted-model-api.ts', import.meta.url));
  const [upstreamPort] = (await once(upstream, 'message')) as [number];
  const raw = await startRawProxy(upstreamPort);
  const loop = await startRawProxy(upstreamPort, { parse: true });
  const ours = await startCompletionsServer(upstreamPort);
  const portkey = await startPortkey(upstreamPort);
  try {
    const load = { upstreamPort, rawPort: raw.port, ours, portkey };
    return [
      { title: 'Completions: whole answers', figures: await wholeFigures(load, rounds) },
      { title: 'Completions: added time', figures: await latencyFigures(load, latency) },
      { title: 'Completions: streams of 200 chunks', figures: await streamFigures(load, loop.port, rounds) },
      { title: 'Completions: memory', figures: [await memoryFigure(upstreamPort, openStreams)] },
    ];
  } finally {
    portkey?.close();
    await Promise.all([raw.close(), loop.close(), ours.close()]);
    upstream.kill();
  }
}

async function wholeFigures(load: Load, rounds: Rounds): Promise<readonly Figure[]> {
  const { direct, raw, ours, portkey } = await measure(contenders(load, {}), rounds);
  return [
    ...shares('JSON', 'requests', ours, raw, 0.75),
    directFigure('JSON, the upstream called directly', 'requests/s', direct),
    ...peerFigure('JSON', ours, portkey, 5),
  ];
}

/** What we add to a call at a steady rate: quantile by quantile, against the upstream called directly and the raw proxy. */
async function latencyFigures(load: Load, rounds: typeof PARAMETERS.full.latency): Promise<readonly Figure[]> {
  const { direct, raw, ours } = contenders(load, {}, PACED_CONNECTIONS);
  const times = await measureLatency({ direct, raw, ours }, rounds);
  const [allOurs, allDirect] = [times.ours.flat(), times.direct.flat()];
  const rate = `at ${round(rounds.perSecond)} calls a second`;
  const overRaw = times.ours.map((ofRound, index) => quantile(ofRound, 0.99) - quantile(times.raw[index] ?? [], 0.99));
  return [
    ...ADDED_MS.map(([name, share, goal]) =>
      limitFigure({
        name: `added to a call ${rate}, ${name}`,
        unit: 'ms',
        value: quantile(allOurs, share) - quantile(allDirect, share),
        goal,
      }),
    ),
    limitFigure({
      name: `the same over the raw proxy, p99, median of ${rounds.rounds} rounds`,
      unit: 'ms',
      value: median(overRaw),
      goal: MAX_OVER_RAW_MS,
    }),
  ];
}

async function streamFigures(load: Load, loopPort: number, rounds: Rounds): Promise<readonly Figure[]> {
  const { direct, raw, ours, portkey } = await measure(contenders(load, { stream: true }), rounds);
  const few = contenders(load, { stream: true }, 2);
  const { raw: fewRaw, ours: fewOurs } = await measure({ raw: few.raw, ours: few.ours }, rounds);
  const foreign = await measure(
    {
      loop: { ...few.raw, port: loopPort, path: '/v1/messages', connections: CONNECTIONS },
      ours: { ...few.ours, body: bodyFor('foreign/small', { stream: true }), connections: CONNECTIONS },
    },
    rounds,
  );
  return [
    ...shares('streams', 'streams', ours, raw, 0.9),
    directFigure('streams, the upstream called directly', 'streams/s', direct),
    limitFigure({
      name: 'first token later than through the raw proxy, two at a time',
      unit: 'ms',
      value: median(fewOurs.firstMs) - median(fewRaw.firstMs),
      goal: 1,
    }),
    ratioFigure({
      name: 'translated streams (Anthropic) against a loop that parses and writes each event anew',
      unit: 'streams/s',
      ours: foreign.ours.perSecond,
      bound: foreign.loop.perSecond,
      goal: 0.6,
    }),
    ...peerFigure('streams', ours, portkey, 1),
  ];
}

function contenders(load: Load, extra: object, connections = CONNECTIONS) {
  const { upstreamPort, rawPort, ours, portkey } = load;
  const contender = (port: number, model: string, headers = {}): Contender => ({
    port,
    path: PATH,
    headers,
    body: bodyFor(model, extra),
    connections,
  });
  return {
    direct: contender(upstreamPort, 'small'),
    raw: contender(rawPort, 'small'),
    ours: contender(ours.port, 'bench/small', ours.headers),
    portkey:
      portkey === undefined ? undefined : { ...contender(portkey.port, 'small', portkey.headers), mayRefuse: true },
  };
}

export function bodyFor(model: string, extra: object): string {
  return JSON.stringify({ model, messages: MESSAGES, temperature: 0.7, max_tokens: 256, ...extra });
}

function shares(what: string, unit: string, ours: Measured, raw: Measured, goal: number): readonly Figure[] {
  return [
    ratioFigure({
      name: `${what}, everything on, against a raw node:http + undici proxy`,
      unit: `${unit}/s`,
      ours: ours.perSecond,
      bound: raw.perSecond,
      goal,
    }),
    ratioFigure({
      name: 'the same, by processor time of the server',
      unit: `${unit}/CPU s`,
      ours: ours.perCpuSecond,
      bound: raw.perCpuSecond,
      goal,
    }),
  ];
}

function directFigure(name: string, unit: string, { perSecond }: Measured): Figure {
  const bound = median(perSecond);
  return { name, value: '', bound: `${round(bound)} ${unit}`, result: '', goal: '', met: true, amounts: { bound } };
}

/** Without a network there is no peer, and one that refuses everything is no measure: then there is no line. */
function peerFigure(what: string, ours: Measured, peer: Measured | undefined, goal: number): readonly Figure[] {
  if (peer === undefined || median(peer.perSecond) === 0) return [];
  const name = `${what}, against Portkey's gateway`;
  const sides = { ours: ours.perSecond, bound: peer.perSecond };
  return [ratioFigure({ name, unit: 'answers/s', ...sides, goal, isPeer: true })];
}

async function memoryFigure(upstreamPort: number, streams: number): Promise<Figure> {
  const value = await benchOpenStreams(upstreamPort, streams);
  return limitFigure({ name: `memory with ${streams} open streams`, unit: 'MiB', value, goal: 200 });
}
