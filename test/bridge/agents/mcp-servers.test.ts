import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionMcpServer } from '../../../src/bridge/sessions/mcp-servers.ts';
import { startScripted } from './scripted-agent.ts';

const SECRET = 'secret-of-a-server';
const env = [{ name: 'KEY', value: SECRET }];
const program: SessionMcpServer = { type: 'stdio', name: 'my files', command: 'files-mcp', args: ['-v'], env };
const web: SessionMcpServer = { type: 'http', name: 'web.one', url: 'https://mcp.test/x', headers: env };
const old: SessionMcpServer = { type: 'sse', name: 'old', url: 'https://mcp.test/sse', headers: [] };
const mcpServers = [program, web, old];

/** As the Agent Client Protocol has it. */
const { type: _type, ...asProgram } = program;
const OWNER = { owner: 'main', folder: '' };

test('an agent gets the servers that it takes, and people read which it does not take', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'servers', folder: agent.work, mcpServers });
  await turn.end;
  assert.deepEqual(JSON.parse(turn.text()), [asProgram]);
  const told = turn.events.flatMap((event) => (event.kind === 'status' ? [event.text] : []));
  assert.deepEqual(told, [
    'This agent does not take MCP servers of type http: "web.one" is not used.',
    'This agent does not take MCP servers of type sse: "old" is not used.',
  ]);
});

test('a later process and a copy of the conversation get the same servers', async (t) => {
  const flags = ['--state', 'FOLDER', '--fork', '--mcp', 'http'];
  const first = await startScripted(t, { flags });
  const turn = first.run({ prompt: 'servers', folder: first.work, mcpServers });
  await turn.end;
  assert.deepEqual(JSON.parse(turn.text()), [asProgram, web]);
  await first.provider.stop();
  const second = await startScripted(t, { flags, folder: first.folder });
  const again = second.run({ prompt: 'servers', folder: first.work, reference: turn.reference(), mcpServers });
  await again.end;
  assert.deepEqual(JSON.parse(again.text()), [asProgram, web]);
  const copy = await second.provider.fork?.(turn.reference(), { ...OWNER, folder: first.work, mcpServers: [program] });
  assert.ok(copy !== undefined && 'reference' in copy);
  const copied = second.run({ prompt: 'servers', folder: first.work, reference: copy.reference });
  await copied.end;
  assert.deepEqual(JSON.parse(copied.text()), [asProgram]);
});

test('what an agent says about a server that fails has no secret of it', async (t) => {
  const agent = await startScripted(t, { flags: ['--mcp', 'fail'] });
  const end = await agent.run({ prompt: 'say x', folder: agent.work, mcpServers }).end;
  assert.equal(end.kind, 'failed');
  assert.match(JSON.stringify(end), /cannot start .*files-mcp/);
  assert.equal(JSON.stringify(end).includes(SECRET), false);
});

test('Codex gets the servers as settings of the thread: when it opens, resumes and copies it', async (t) => {
  const config = {
    'mcp_servers.my_files': { command: 'files-mcp', args: ['-v'], env: { KEY: SECRET } },
    'mcp_servers.web_one': { url: 'https://mcp.test/x', http_headers: { KEY: SECRET } },
  };
  const flags = ['--state', 'FOLDER'];
  const first = await startScripted(t, { protocol: 'codex', flags });
  const turn = first.run({ prompt: 'config', folder: first.work, mcpServers });
  await turn.end;
  assert.deepEqual(JSON.parse(turn.text()), config);
  await first.provider.stop();
  const second = await startScripted(t, { protocol: 'codex', flags, folder: first.folder });
  const again = second.run({ prompt: 'config', folder: first.work, reference: turn.reference(), mcpServers });
  await again.end;
  assert.deepEqual(JSON.parse(again.text()), config);
  const copy = await second.provider.fork?.(turn.reference(), { ...OWNER, folder: first.work, mcpServers });
  assert.ok(copy !== undefined && 'reference' in copy);
  const copied = second.run({ prompt: 'config', folder: first.work, reference: copy.reference, mcpServers });
  await copied.end;
  assert.deepEqual(JSON.parse(copied.text()), config);
});
