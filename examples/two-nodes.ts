// Two bridges: the app calls the edge, and the agents work at the hub.   node examples/two-nodes.ts
// In your own app: import { createTrestleClient } from 'trestle/client';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createTrestleClient } from '../src/client/trestle-client.ts';

const folder = await mkdtemp(join(tmpdir(), 'trestle-two-nodes-'));
const stops: (() => Promise<unknown>)[] = [];

/** Starts a bridge with this configuration, as `trestle serve bridge --config file` does, and returns its address. */
async function startNode(id: string, configuration: string): Promise<string> {
  const file = join(folder, `${id}.yaml`);
  await writeFile(file, configuration);
  const main = join(import.meta.dirname, '../src/main.ts');
  const place = ['--listen', '127.0.0.1:0', '--data-dir', join(folder, id)];
  const node = spawn(process.execPath, [main, 'serve', 'bridge', '--json', '--config', file, ...place], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  stops.push(async () => {
    node.kill('SIGTERM');
    if (node.exitCode === null) await once(node, 'exit');
  });
  const [line] = await once(createInterface(node.stdout), 'line');
  return JSON.parse(line).url;
}

try {
  const hub = await startNode('hub', 'distributed: { local_node_id: hub }\n');
  const edge = await startNode(
    'edge',
    `distributed:
  topology: dual-node
  local_node_id: edge
  task_forward_peer_id: hub
  nodes:
    - { id: hub, role: hub, bridge_endpoint: "${hub}" }
`,
  );

  const trestle = createTrestleClient({ url: edge });
  const session = trestle.session('far-away');
  const turn = session.start('Hello from the edge');
  for await (const { delta } of turn) if (delta !== undefined) process.stdout.write(delta);
  console.log(`\n${(await turn.result).status} by way of the edge`);

  // The session is on the hub, so a client of the hub can continue it, too.
  const direct = createTrestleClient({ url: hub });
  console.log((await direct.session('far-away').message('Hello at the hub').result).output);
  console.log((await session.message('Hello once more').result).output);
  direct.close();
  trestle.close();
} finally {
  await Promise.all(stops.map((stop) => stop()));
  await rm(folder, { recursive: true, force: true });
}
