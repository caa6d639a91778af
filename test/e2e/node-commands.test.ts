import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { freePort } from '../kit/free-port.ts';
import { runProgram, type Scope, temporaryFolder } from '../kit/running-program.ts';
import { startScriptedHttp } from '../kit/scripted-http.ts';

const MAIN = 'a-main-token-of-good-length-77';

async function prepare(scope: Scope, distributed: string): Promise<readonly string[]> {
  const folder = await temporaryFolder(scope);
  const config = join(folder, 'trestle.yaml');
  const text = `bridge: { auth_token: ${MAIN} }\nagents: { catalog: [builtin] }\ndistributed:\n${distributed}`;
  await writeFile(config, text, { mode: 0o600 });
  return ['--config', config, '--data-dir', folder, '--listen', '127.0.0.1:0'];
}

const GROUP = `  local_node_id: edge-1
  task_forward_token: a-forward-token-of-its-own-42
  nodes:
    - { id: exec-a, role: executor, zone: west, capabilities: [gpu], bridge_endpoint: "http://10.0.0.2:8787" }
    - { id: exec-b, role: executor, bridge_endpoint: "http://10.0.0.3:8787" }
    - { id: hub, role: hub, bridge_endpoint: "http://10.0.0.1:8787" }
  forwarding:
    hop_limit: 4
    rules: [{ methods: [session.start], target: { selector: { role: executor } } }]
    routes: [{ target_node_id: exec-a, next_hop_node_id: hub }]
`;

test('forwarding: trestle nodes lists the nodes, and explains where a call would go', async (t) => {
  const flags = await prepare(t, GROUP);
  const list = await runProgram(['nodes', ...flags]);
  assert.equal(list.code, 0, list.stderr);
  assert.match(list.stdout, /^This node is "edge-1"\.\nHop limit 4; calls that no rule covers: execute_local\.\n/);
  assert.match(
    list.stdout,
    /exec-a {2,}http:\/\/10\.0\.0\.2:8787 {2}\(role executor; zone west; can gpu; by way of hub\)/,
  );

  const explain = async (...args: readonly string[]) => {
    const { code, stdout, stderr } = await runProgram(['nodes', 'explain', ...args, ...flags]);
    assert.equal(code, 0, stderr);
    return stdout;
  };
  assert.match(
    await explain('session.start'),
    /^session\.start: goes to node "exec-a" by way of "hub" at http:\/\/10\.0\.0\.1:8787, because rule 1 .*; should it not take the call, to node "exec-b"/,
  );
  assert.match(await explain('acp.capabilities'), /^acp\.capabilities: runs here, because no rule is about it/);
  const found = JSON.parse(await explain('session.start', '--json')) as Record<string, unknown>;
  assert.equal(found.action, 'forward');
  assert.deepEqual(found.candidates, [
    { node_id: 'exec-a', next_hop: 'hub', endpoint: 'http://10.0.0.1:8787' },
    { node_id: 'exec-b', next_hop: 'exec-b', endpoint: 'http://10.0.0.3:8787' },
  ]);
});

test('forwarding: built-in nodes are listed only where a setting names them', async (t) => {
  const list = async (distributed: string) => runProgram(['nodes', ...(await prepare(t, distributed))]);
  const fresh = await list('  nodes: []\n');
  assert.match(fresh.stdout, /execute_local\.\nThere are no other nodes \(distributed\.nodes\)\.\n$/, fresh.stderr);
  const named = await list('  local_node_id: own\n  task_forward_peer_id: edge\n');
  assert.match(named.stdout, /execute_local\.\n {2}edge {2}http:\/\/172\.29\.10\.2:8787\n$/, named.stderr);
});

test('B-92, DB-31: doctor shows the map of nodes, and warns of tokens that do not serve for forwarding', async (t) => {
  // As a bridge answers a malformed hop that comes with its forward token.
  let answerToToken = 400;
  const peer = await startScriptedHttp(t, ({ path, response }) => {
    if (path === '/acp/rpc') response.statusCode = answerToToken;
    response.end('running');
  });
  const gone = `http://127.0.0.1:${await freePort()}`;
  const nodes = `  local_node_id: edge-1\n  nodes:\n    - { id: near, bridge_endpoint: "${peer.url}" }\n    - { id: gone, bridge_endpoint: "${gone}" }\n`;
  const findingsOf = async (distributed: string) => {
    const { stdout, stderr } = await runProgram(['doctor', '--json', ...(await prepare(t, distributed))]);
    assert.notEqual(stdout, '', stderr);
    const { findings } = JSON.parse(stdout) as { findings: { name: string; state: string; text: string }[] };
    return (name: string) => findings.filter((finding) => finding.name === name);
  };
  const shared = await findingsOf(nodes);
  assert.deepEqual(
    shared('this node').map(({ state, text }) => [state, text]),
    [['ok', 'edge-1']],
  );
  assert.deepEqual(
    shared('node near').map(({ state, text }) => [state, text]),
    [['ok', peer.url]],
  );
  assert.deepEqual(
    shared('node gone').map(({ state, text }) => [state, text]),
    [['note', `${gone}: cannot be reached`]],
  );
  assert.match(shared('distributed.task_forward_token')[0]?.text ?? '', /is the main token/);
  const own = await findingsOf(`${nodes}  task_forward_token: a-forward-token-of-its-own-42\n`);
  assert.deepEqual(
    own('distributed.task_forward_token').map(({ text }) => text),
    ['set'],
  );
  const stateOfToken = async (status: number) => {
    answerToToken = status;
    return (await findingsOf(nodes))('node near')[0]?.text ?? '';
  };
  assert.match(await stateOfToken(200), /accepts our forward token as an ordinary one/);
  assert.match(await stateOfToken(401), /does not accept our forward token/);
});

test('B-85: a bridge with a public endpoint in its configuration does not start', async (t) => {
  const flags = await prepare(t, '  nodes: [{ id: far, bridge_endpoint: "https://93.184.216.34" }]\n');
  const { code, stderr } = await runProgram(['serve', 'bridge', ...flags]);
  assert.equal(code, 78);
  assert.match(stderr, /distributed\.nodes\[0\]\.bridge_endpoint: 93\.184\.216\.34 is not a loopback/);
});
