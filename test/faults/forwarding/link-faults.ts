import { type NodeProcessOptions, startNodeProcess, storedTurns } from '../../kit/bridge/node-process.ts';
import { createScope } from '../../kit/create-scope.ts';
import { type Fault, type FaultProxy, startFaultProxy } from '../../kit/fault-proxy.ts';
import type { RunningProgram } from '../../kit/running-program.ts';
import { type FaultSuite, seededRandom } from '../fault-suite.ts';
import { openOperationLog } from '../operation-log.ts';
import { checkOperations, type FoundTurn, figuresOf, type TurnOperation } from './check-operations.ts';
import { askForTurn, TRANSPORTS } from './turn-client.ts';

const CLIENTS = 4;
const TURNS_PER_CLIENT = 3;
/** Connecting, the head of an answer, silence within it, and a loaded machine. */
const LIMIT_MS = 5_000 + 30_000 + 45_000 + 10_000;

/** b is one hop away, c two: by way of the hub. */
const EDGE_RULES =
  '{ rules: [{ methods: [session.start], target: { selector: { role: executor }, strategy: round_robin } }], routes: [{ target_node_id: c, next_hop_node_id: hub }] }';

/**
 * Cuts, delays and stalls the links between four bridges, and kills some of them, while clients start and continue
 * sessions; then compares what the clients were told with what the bridges have stored.
 */
export const forwardingFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const scope = createScope();
  const log = openOperationLog<TurnOperation>('forwarding');
  let random = seededRandom(seed);
  const link = (port: number) => startFaultProxy(scope, port, () => drawFault(random));

  try {
    const programs = new Map<string, RunningProgram>();
    const start = async (options: NodeProcessOptions, incoming?: FaultProxy) => {
      const before = programs.get(options.id);
      const folder = before === undefined ? {} : { dataDirectory: before.dataDirectory };
      const program = await startNodeProcess(scope, { ...options, ...folder });
      programs.set(options.id, program);
      incoming?.setTarget(program.port);
      return program;
    };
    const toB = await link((await start({ id: 'b' })).port);
    const toC = await link((await start({ id: 'c' })).port);
    const hub = await start({ id: 'hub', peers: { c: { url: toC.url } } });
    const toHub = await link(hub.port);
    const edge: NodeProcessOptions = {
      id: 'edge',
      peers: {
        b: { url: toB.url, more: 'role: executor' },
        c: { url: 'http://127.0.0.1:9', more: 'role: executor' },
        hub: { url: toHub.url },
      },
      forwarding: EDGE_RULES,
    };
    await start(edge);
    const killed: readonly { readonly node: NodeProcessOptions; readonly incoming?: FaultProxy }[] = [
      { node: { id: 'b' }, incoming: toB },
      { node: { id: 'c' }, incoming: toC },
      { node: edge },
    ];

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      random = seededRandom(seed + cycle);
      const victim = cycle % 10 === 0 ? killed[(cycle / 10) % killed.length] : undefined;
      // In some the near node, or the way to the far one, cannot be reached at all.
      const down = cycle % 5 === 3 ? [toB, toHub][cycle % 2] : undefined;
      await down?.takeDown();
      const clients = Array.from({ length: CLIENTS }, (_, client) => runClient(`${cycle}-${client}`));
      if (victim !== undefined) {
        await new Promise((resolve) => setTimeout(resolve, random() * 200));
        await programs.get(victim.node.id)?.stop('SIGKILL');
        await start(victim.node, victim.incoming);
      }
      await Promise.all(clients);
      await down?.raise();
      if (cycle % 20 === 0) say(`${cycle} of ${cycles} seeds`);
    }

    async function runClient(session: string): Promise<void> {
      let hasStarted = false;
      for (let turn = 0; turn < TURNS_PER_CLIENT; turn += 1) {
        const operation = await askForTurn({
          url: programs.get('edge')?.url ?? '',
          transport: TRANSPORTS[Math.floor(random() * TRANSPORTS.length)] ?? 'http',
          // A client that was not told of its session tries to start it once more, under the same name.
          method: hasStarted ? 'session.message' : 'session.start',
          session,
          prompt: `turn ${session}-${turn}`,
        });
        log.note(operation);
        hasStarted ||= operation.outcome === 'ok';
      }
    }

    const operations = await log.close();
    for (const program of programs.values()) await program.stop('SIGTERM');
    const found: FoundTurn[] = [...programs].flatMap(([node, program]) =>
      storedTurns(program).map(({ session, prompt }) => ({ node, session, prompt })),
    );
    const violations = checkOperations(operations, found, LIMIT_MS);
    await log.settle(violations, say);
    return { violations, figures: figuresOf(operations, found, LIMIT_MS) };
  } finally {
    await scope.end();
  }
};

/** What happens to the next connection. */
function drawFault(random: () => number): Fault {
  const kind = random();
  const amount = random();
  if (kind < 0.55) return {};
  if (kind < 0.7) return { delayMs: amount * 300 };
  if (kind < 0.92) return { after: Math.floor(amount * 4000), end: 'cut' };
  if (kind < 0.97) return { refuse: true };
  return { after: Math.floor(amount * 4000), end: 'stall', stallMs: amount < 0.95 ? 2000 : 120_000 };
}
