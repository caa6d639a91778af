import assert from 'node:assert/strict';
import { test } from 'node:test';
import { browserModule } from './browser-modules.ts';

const { addedText, prettyJson } = await browserModule('response-view');
const added = (value: unknown) => addedText(JSON.stringify(value));

test('the text of a stream is taken from the usual shapes of an event', () => {
  assert.equal(added({ choices: [{ index: 0, delta: { content: 'a' } }] }), 'a');
  assert.equal(added({ choices: [{ index: 0, text: 'b' }] }), 'b');
  assert.equal(added({ method: 'update', params: { delta: 'c' } }), 'c');
  assert.equal(added({ method: 'update', params: { delta: { text: 'd' } } }), 'd');
  assert.equal(added({ delta: { content: 'e' } }), 'e');
});

test('any other event adds nothing', () => {
  for (const value of [
    {},
    [],
    null,
    1,
    'text',
    { choices: [] },
    { choices: [null] },
    { choices: [{ delta: { role: 'assistant' } }] },
    { choices: [{ delta: { content: null } }] },
    { delta: 5 },
    { params: null },
    { text: 'whole' },
  ]) {
    assert.equal(added(value), '', JSON.stringify(value));
  }
  assert.equal(addedText('[DONE]'), '');
  assert.equal(addedText(''), '');
});

test('JSON is shown with line breaks, other text as it came', () => {
  assert.equal(prettyJson('{"a":[1]}'), '{\n  "a": [\n    1\n  ]\n}');
  assert.equal(prettyJson('# HELP x\nx 1\n'), '# HELP x\nx 1\n');
  assert.equal(prettyJson('null'), 'null');
  assert.equal(prettyJson(''), '');
});
