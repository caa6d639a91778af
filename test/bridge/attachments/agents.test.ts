import assert from 'node:assert/strict';
import { readFile, symlink, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { MAX_TEXT_BYTES, type PlacedFile, promptContent } from '../../../src/bridge/agents/prompt-content.ts';
import { scriptedAgent, workingDirectory } from '../../kit/bridge/builtin-agent.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { startScriptedGateway } from '../../kit/scripted-gateway.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { recordTurn } from '../agents/recorded-turn.ts';
import { startScripted } from '../agents/scripted-agent.ts';

/** A text, an image and a file that is neither, in a folder of their own. */
async function filesIn(t: TestContext) {
  const folder = await workingDirectory(t);
  const file = async (name: string, contentType: string, kind: PlacedFile['kind'], content: string) => {
    const path = join(folder, name);
    await writeFile(path, content);
    return { name, contentType, kind, path, sizeBytes: content.length, read: () => readFile(path) };
  };
  const text = await file('notes.txt', 'text/plain', 'text', 'hello');
  const image = await file('photo.png', 'image/png', 'image', 'pixels');
  const other = await file('data.bin', 'application/octet-stream', 'file', 'bytes');
  return { folder, text, image, other, all: [text, image, other] };
}

const data = Buffer.from('pixels').toString('base64');
const NOTE = { kind: 'status', text: 'This agent cannot see images: photo.png is a file that it can only read.' };

test('DB-3: an ACP agent that takes images and files gets them as blocks, and the rest by name', async (t) => {
  const { all, text, image, other } = await filesIn(t);
  const agent = await startScripted(t, { flags: ['--image', '--context'] });
  const turn = agent.run({ prompt: 'blocks', folder: agent.work, files: all });
  await turn.end;
  const [prompt, ...blocks] = JSON.parse(turn.text()) as { text: string }[];
  assert.equal(
    prompt?.text,
    `blocks\n\nAttached files, which you can read:\n- ${other.path} (application/octet-stream, 5 bytes)`,
  );
  const uriOf = (file: PlacedFile) => pathToFileURL(file.path).href;
  assert.deepEqual(blocks, [
    { type: 'resource', resource: { uri: uriOf(text), mimeType: 'text/plain', text: 'hello' } },
    { type: 'image', mimeType: 'image/png', data, uri: uriOf(image) },
  ]);
  assert.equal(turn.events.filter(({ kind }) => kind === 'status').length, 0);
});

test('DB-3: an ACP agent that takes text alone gets the names, and hears and shows that it cannot see images', async (t) => {
  const { all, text, image } = await filesIn(t);
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'blocks', folder: agent.work, files: all });
  await turn.end;
  const blocks = JSON.parse(turn.text()) as { text: string }[];
  assert.equal(blocks.length, 1);
  assert.ok(blocks[0]?.text.includes(`- ${text.path} (text/plain, 5 bytes)`));
  assert.ok(blocks[0]?.text.includes(`- ${image.path} (image/png, 6 bytes; you cannot see images`));
  assert.deepEqual(
    turn.events.filter(({ kind }) => kind === 'status'),
    [NOTE],
  );
});

test('DB-3: Codex gets images as images and texts as texts', async (t) => {
  const { all } = await filesIn(t);
  const agent = await startScripted(t, { protocol: 'codex' });
  const turn = agent.run({ prompt: 'input', folder: agent.work, files: all });
  await turn.end;
  const [, ...input] = JSON.parse(turn.text()) as object[];
  assert.deepEqual(input, [
    { type: 'text', text: 'Attached file notes.txt:\n\nhello', text_elements: [] },
    { type: 'image', url: `data:image/png;base64,${data}` },
  ]);
});

test('DB-3: the gateway gets images as attachments and texts in the message', async (t) => {
  const gateway = await startScriptedGateway(t);
  const settings = `gateway: { url: "${gateway.url}", token: gateway-token-1 }\n`;
  const bridge = await startBridge(t, { providers: [createScriptedProvider('first')], settings });
  const png = Buffer.from('\x89PNG\r\n\x1a\nrest', 'latin1').toString('base64');
  const attachments = [
    { name: 'notes.txt', contentType: 'text/plain', data: Buffer.from('hello').toString('base64') },
    { name: 'photo.png', contentType: 'image/png', data: png },
  ];
  const routing = { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' };
  await call(bridge.url, 'session.start', { sessionId: 's', taskPrompt: 'look', attachments, routing });
  const sent = gateway.requests.find(({ method }) => method === 'chat.send');
  assert.equal(sent?.params.message, 'look\n\nAttached file notes.txt:\n\nhello');
  assert.deepEqual(sent?.params.attachments, [
    { type: 'image', mimeType: 'image/png', fileName: 'photo.png', content: png },
  ]);
});

test('DB-3: the built-in agent shows images to its model in each request, and its tool reads attached files', async (t) => {
  const { folder, all, other } = await filesIn(t);
  const root = await workingDirectory(t);
  const { agent, requests, store } = scriptedAgent((index) =>
    index === 0 ? { calls: [{ name: 'read_file', input: { path: other.path } }] } : { text: ['seen'] },
  );
  const more = { files: all, fileFolder: folder };
  const first = recordTurn(root, 'look', more);
  await agent.startTurn(first);
  const shown = [
    {
      type: 'text',
      text: `look\n\nAttached files, which you can read:\n- ${other.path} (application/octet-stream, 5 bytes)`,
    },
    { type: 'text', text: 'Attached file notes.txt:\n\nhello' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } },
  ];
  assert.deepEqual(requests[0]?.messages[1]?.content, shown);
  assert.equal(requests[1]?.messages.at(-1)?.content, 'bytes');
  // The database has the place of the image, and not its data.
  const [reference = ''] = first.references;
  assert.ok(!store.rows.get(reference)?.[0]?.includes(data));
  await agent.continueTurn(reference, recordTurn(root, 'again', { fileFolder: folder }));
  assert.deepEqual(requests[2]?.messages[1]?.content, shown);
  // Where the agent has put a link in its place, nothing is read.
  await unlink(join(folder, 'photo.png'));
  await writeFile(join(root, 'secret'), 'secret');
  await symlink(join(root, 'secret'), join(folder, 'photo.png'));
  await agent.continueTurn(reference, recordTurn(root, 'once more', { fileFolder: folder }));
  const parts = requests[3]?.messages[1]?.content as { text?: string }[];
  assert.equal(parts[2]?.text, '[an image that is not shown any more]');
});

test('DB-3: a model that takes no images gets the name of the image, and people see that it did not see it', async (t) => {
  const { folder, image } = await filesIn(t);
  const { agent, requests } = scriptedAgent(() => ({ text: ['no'] }), { seesImages: () => false });
  const turn = recordTurn(await workingDirectory(t), 'look', { files: [image], fileFolder: folder });
  await agent.startTurn(turn);
  assert.match(String(requests[0]?.messages[1]?.content), /photo\.png \(image\/png, 6 bytes; you cannot see images/);
  assert.deepEqual(turn.events[0], NOTE);
});

test('DB-3: what is too large to be shown is a file, and so is what comes after 5 MiB', async (t) => {
  const { text, image } = await filesIn(t);
  const accepted = { images: true, texts: true };
  const large = { ...image, name: 'large.png', sizeBytes: 5 * 1024 * 1024 - 3 };
  const { parts, text: prompt } = await promptContent('look', [large, image, text], accepted);
  assert.deepEqual(
    parts.map(({ name }) => name),
    ['large.png'],
  );
  assert.match(prompt, /photo\.png.*\n.*notes\.txt/);
  assert.ok(MAX_TEXT_BYTES < 1024 * 1024);
});
