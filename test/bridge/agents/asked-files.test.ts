import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createUpdateReader } from '../../../src/bridge/agents/acp/acp-messages.ts';
import type { PermissionQuestion } from '../../../src/bridge/agents/agent-provider.ts';
import { runToolCall } from '../../../src/bridge/agents/builtin/run-tool-call.ts';
import { writeFileTool } from '../../../src/bridge/agents/builtin/tools/file-tools.ts';
import { runCommandTool } from '../../../src/bridge/agents/builtin/tools/run-command.ts';
import type { ToolContext } from '../../../src/bridge/agents/builtin/tools/tool.ts';
import { createCodexReader, readRequest } from '../../../src/bridge/agents/codex/codex-messages.ts';
import { decide, type PermissionRule, subjectOf } from '../../../src/bridge/workbench/permission-rules.ts';

const FOLDER = '/work';
const denySecrets: PermissionRule = { path: '**/.env*', decision: 'deny' };
const denyRemove: PermissionRule = { command: ['rm'], decision: 'deny' };
const allowSources: PermissionRule = { kind: 'edit', path: 'src/**', decision: 'allow' };
const denyEdits: PermissionRule = { kind: 'edit', decision: 'deny' };

function decided(question: Omit<PermissionQuestion, 'options'>, rule: PermissionRule) {
  return decide(subjectOf({ ...question, options: [] }, FOLDER), [rule], 'ask');
}

test('rules see the files that an ACP agent names beside the input, in the request or before', () => {
  const { read, asked } = createUpdateReader();
  // As Gemini does: no input, the files in `content` and `locations`.
  const diff = { type: 'diff', path: '/work/.env', oldText: 'a', newText: 'b' };
  const request = { toolCallId: 'one', title: 'Writing', kind: 'edit', content: [diff] };
  assert.equal(decided(asked(request), denySecrets), 'deny');
  assert.equal(decided(asked({ ...request, content: [], locations: [{ path: '/work/.env' }] }), denySecrets), 'deny');
  const within = { ...request, content: [{ ...diff, path: '/work/src/a.ts' }] };
  assert.equal(decided(asked(within), allowSources), 'allow');
  assert.equal(decided(asked({ ...within, locations: [{ path: '/etc/passwd' }] }), allowSources), 'ask');

  // What was told when the call was announced counts, too: requests may repeat only a part of it.
  read({
    sessionUpdate: 'tool_call',
    toolCallId: 'two',
    title: 'rm -rf build',
    kind: 'execute',
    rawInput: { command: 'rm -rf build', text: 'x'.repeat(100_000) },
  });
  const question = asked({ toolCallId: 'two' });
  assert.deepEqual([question.title, question.toolKind], ['rm -rf build', 'execute']);
  assert.equal(decided(question, denyRemove), 'deny');
  const all = Array.from({ length: 300 }, (_, index) => ({ ...diff, path: `/work/src/${index}` }));
  read({ sessionUpdate: 'tool_call', toolCallId: 'three', kind: 'edit', content: [...all, diff] });
  assert.equal(decided(asked({ toolCallId: 'three', content: [all[0]] }), denySecrets), 'deny', 'after 300 others');
  assert.equal(decided(asked({ toolCallId: 'three' }), denyEdits), 'deny');
  // The path of an input that is too large to be kept, and no older input in its place.
  const large = { file_path: '/work/.env', content: 'x'.repeat(2_000_000) };
  read({ sessionUpdate: 'tool_call', toolCallId: 'four', kind: 'edit', rawInput: { file_path: '/work/src/a.ts' } });
  read({ sessionUpdate: 'tool_call_update', toolCallId: 'four', rawInput: large });
  assert.equal(decided(asked({ toolCallId: 'four' }), denySecrets), 'deny');
  assert.equal(decided(asked({ toolCallId: 'four' }), allowSources), 'ask');
  const allowStatus: PermissionRule = { command: ['git', 'status'], decision: 'allow' };
  const update = { toolCallId: 'five', kind: 'execute', title: 'Terminal' };
  read({ ...update, sessionUpdate: 'tool_call', rawInput: { command: 'git status' } });
  read({ ...update, sessionUpdate: 'tool_call_update', rawInput: { command: `make ${'x'.repeat(2_000_000)}` } });
  assert.equal(decided(asked({ toolCallId: 'five' }), allowStatus), 'ask');
  // The command of such an input, and which input it was.
  const [script, another] = ['x', 'y'].map((letter) => letter.repeat(2_000_000));
  const terminal = { sessionUpdate: 'tool_call', kind: 'execute', title: 'Terminal' };
  read({ ...terminal, toolCallId: 'six', rawInput: { cmd: 'sudo', args: ['rm', '-rf', '/'], script } });
  assert.equal(decided(asked({ toolCallId: 'six' }), denyRemove), 'deny');
  read({ ...terminal, toolCallId: 'six', rawInput: { command: `rm -rf / # ${script}${script}` } });
  assert.equal(
    decided(asked({ toolCallId: 'six' }), denyRemove),
    'deny',
    'the beginning of one that is too long to run',
  );
  const commandOf = (rawInput: object) => {
    read({ ...terminal, toolCallId: 'seven', rawInput });
    return subjectOf({ ...asked({ toolCallId: 'seven' }), options: [] }, FOLDER).command;
  };
  assert.notDeepEqual(commandOf({ script }), commandOf({ script: another }));
  assert.deepEqual(commandOf({ script }), commandOf({ script }));
  assert.equal(decided(asked({ toolCallId: 'unknown' }), denyEdits), 'ask');
  assert.deepEqual(asked({ toolCallId: 'unknown' }), {
    toolCallId: 'unknown',
    title: 'a tool',
    toolKind: 'other',
    input: undefined,
  });
  // An input that names all of them already stays as it is.
  const rawInput = { file_path: '/work/.env', content: 'b' };
  assert.deepEqual(asked({ ...request, rawInput }).input, rawInput);
});

test('rules see the files of a change that Codex asks for, which the request itself does not name', () => {
  const reader = createCodexReader();
  const change = (path: string, kind: object = { type: 'update' }) => ({ path, kind, diff: '@@ -1 +1 @@\n-a\n+b\n' });
  const ask = (id: string, method = 'item/fileChange/requestApproval', params: object = {}) => {
    const asked = readRequest(method, { itemId: id, reason: null, ...params }, reader.begun(id));
    return asked?.question ?? assert.fail();
  };
  const begin = (item: object) => reader.read('item/started', { item: { status: 'inProgress', ...item } });
  begin({ type: 'fileChange', id: 'one', changes: [change('/work/src/a.ts'), change('/work/.env')] });
  begin({ type: 'fileChange', id: 'two', changes: [change('/work/src/a.ts')] });
  const moved = change('/work/src/a.ts', { type: 'update', move_path: '/work/.env.local' });
  begin({ type: 'fileChange', id: 'three', changes: [moved] });
  assert.equal(decided(ask('one'), denySecrets), 'deny');
  assert.equal(decided(ask('one'), allowSources), 'ask');
  assert.equal(decided(ask('two'), allowSources), 'allow');
  assert.equal(decided(ask('three'), denySecrets), 'deny', 'where it is moved to');
  assert.equal(ask('two').title, 'edit /work/src/a.ts');
  // The command may stand in the item alone.
  begin({ type: 'commandExecution', id: 'four', command: "/bin/bash -lc 'rm -rf build'", cwd: FOLDER });
  const command = ask('four', 'item/commandExecution/requestApproval', { command: null });
  assert.equal(decided(command, denyRemove), 'deny');
  assert.equal(command.title, "/bin/bash -lc 'rm -rf build'");
  const granted = { permissions: { network: null, fileSystem: { read: null, write: ['/work/.env'] } } };
  assert.equal(decided(ask('five', 'item/permissions/requestApproval', granted), denySecrets), 'deny');
  const entries = [{ path: { type: 'path', path: '/work/.env' }, access: 'write' }];
  const asEntries = { permissions: { network: null, fileSystem: { read: null, write: null, entries } } };
  assert.equal(decided(ask('six', 'item/permissions/requestApproval', asEntries), denySecrets), 'deny');
  assert.equal(ask('six').title, 'change files');
});

test('rules see the whole input of a tool of the built-in agent, however large it is', async () => {
  async function ask(name: string, input: object): Promise<string> {
    let decision = '';
    await runToolCall({
      call: { id: 'c', type: 'function', function: { name, arguments: JSON.stringify(input) } },
      eventId: 'e',
      permissions: 'allow',
      context: { signal: new AbortController().signal } as ToolContext,
      tools: [writeFileTool, runCommandTool],
      report: () => undefined,
      async permit(question) {
        decision = decided(question, name === 'write_file' ? denySecrets : denyRemove);
        return { decision: 'denied', optionId: undefined, isAsked: false };
      },
    });
    return decision;
  }
  assert.equal(await ask('write_file', { path: '.env', content: 'x'.repeat(20_000) }), 'deny');
  assert.equal(await ask('run_command', { command: 'sh', args: ['-c', `${' '.repeat(20_000)}; rm -rf x`] }), 'deny');
});
