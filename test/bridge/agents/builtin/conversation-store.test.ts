import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { createBuiltinConversationStore } from '../../../../src/bridge/storage/builtin-conversation-store.ts';
import { scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { databasePlaces, engines } from '../../../kit/database-engines.ts';
import { recordTurn } from '../recorded-turn.ts';

const definition = { name: 'bridge', migrations: bridgeMigrations };

for (const engine of engines) {
  describe(`conversations of the built-in agent on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('messages come back in order, and only those of their conversation', async () => {
      const store = createBuiltinConversationStore(await places.open<BridgeSchema>(definition));
      const bodies = Array.from({ length: 150 }, (_, index) => JSON.stringify({ index, text: '\0 é' }));
      await store.append('one', 0, bodies.slice(0, 100), { turnId: 't1', now: 1 });
      await store.append('two', 0, ['"other"'], { turnId: 't2', now: 2 });
      await store.append('one', 100, bodies.slice(100), { turnId: 't3', now: 3 });
      assert.deepEqual(await store.read('one'), { bodies, nextPosition: 150 });
      assert.equal(await store.read('three'), undefined);
      await store.remove('one');
      assert.equal(await store.read('one'), undefined);
      assert.deepEqual([await store.has('one'), await store.has('two')], [false, true]);
      assert.deepEqual(await store.read('two'), { bodies: ['"other"'], nextPosition: 1 });
    });

    test('a conversation is copied whole, or up to the end of a turn, and both go their own way', async () => {
      const store = createBuiltinConversationStore(await places.open<BridgeSchema>(definition));
      await store.append('one', 0, ['1', '2'], { turnId: 'a', now: 1 });
      await store.append('one', 2, ['3', '4'], { turnId: 'b', now: 2 });
      assert.equal(await store.copy('one', 'whole', undefined), true);
      assert.equal(await store.copy('one', 'part', 'a'), true);
      await store.append('part', 2, ['5'], { turnId: 'c', now: 3 });
      await store.remove('one');
      assert.deepEqual(await store.read('whole'), { bodies: ['1', '2', '3', '4'], nextPosition: 4 });
      assert.deepEqual(await store.read('part'), { bodies: ['1', '2', '5'], nextPosition: 3 });
      assert.equal(await store.copy('part', 'other', 'b'), false, 'it has no such turn');
      assert.equal(await store.copy('one', 'other', undefined), false, 'it is gone');
      assert.equal(await store.read('other'), undefined);
    });

    test('two turns cannot write the same place', async () => {
      const store = createBuiltinConversationStore(await places.open<BridgeSchema>(definition));
      await store.append('one', 0, ['1'], { turnId: 't1', now: 1 });
      await assert.rejects(store.append('one', 0, ['2'], { turnId: 't1', now: 1 }), { code: 'STORAGE_DUPLICATE' });
    });

    test('what is older than any model takes is deleted', async () => {
      const database = await places.open<BridgeSchema>(definition);
      const store = createBuiltinConversationStore(database);
      const large = JSON.stringify('x'.repeat(1024 * 1024));
      for (let position = 0; position < 6; position += 1)
        await store.append('one', position, [large], { turnId: 't1', now: 1 });
      const kept = await store.read('one');
      assert.equal(kept?.bodies.length, 3);
      assert.equal(kept?.nextPosition, 6);
      const rows = await database.query.selectFrom('builtin_messages').select('position').orderBy('position').execute();
      assert.deepEqual(
        rows.map(({ position }) => position),
        [3, 4, 5],
      );
      await store.append('two', 0, [JSON.stringify('x'.repeat(5 * 1024 * 1024))], { turnId: 't1', now: 1 });
      assert.equal((await store.read('two'))?.bodies.length, 1);
    });

    test('a conversation goes on after a restart, also from the middle of a turn', async (context) => {
      const root = await workingDirectory(context);
      const location = places.location();
      const open = () => places.open<BridgeSchema>(definition, { location });
      const first = await open();
      const before = scriptedAgent(
        (index) => (index === 0 ? { text: ['My name is Builtin.'] } : { calls: [{ name: 'list_files', input: {} }] }),
        { store: createBuiltinConversationStore(first) },
      );
      const turn = recordTurn(root, 'Who are you?');
      await before.agent.startTurn(turn);
      const [reference = ''] = turn.references;
      // As a kill would: the model's answer was kept, the result of its tool call never came.
      const store = createBuiltinConversationStore(first);
      const asked = {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'list_files', arguments: '{}' } }],
      };
      await store.append(reference, 2, [JSON.stringify({ role: 'user', content: 'List' }), JSON.stringify(asked)], {
        turnId: 't1',
        now: 1,
      });
      await first.close();

      const second = await open();
      const after = scriptedAgent(() => ({ text: ['Still me.'] }), { store: createBuiltinConversationStore(second) });
      const end = await after.agent.continueTurn(reference, recordTurn(root, 'And now?'));
      assert.equal(end.kind === 'completed' && end.output, 'Still me.');
      assert.deepEqual(
        after.requests[0]?.messages.slice(1).map(({ role }) => role),
        ['user', 'assistant', 'user', 'assistant', 'tool', 'user'],
      );
      assert.match(String(after.requests[0]?.messages[5]?.content), /^Interrupted/);
      await after.agent.close(reference);
      assert.equal((await after.agent.continueTurn(reference, recordTurn(root, 'x'))).kind, 'lost');
    });
  });
}
