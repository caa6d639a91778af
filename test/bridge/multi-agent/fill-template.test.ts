import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fillTemplate } from '../../../src/bridge/multi-agent/fill-template.ts';

test('a template is filled with values, white space inside the braces does not matter, unknown names stay', () => {
  const values = new Map([
    ['input', 'the task'],
    ['previousOutput', 'done'],
  ]);
  assert.equal(
    fillTemplate('{{input}}: {{ previousOutput }}, {{nobody}} {input}', values),
    'the task: done, {{nobody}} {input}',
  );
});

test('B-65: what an agent said is never a template, whatever it says', () => {
  const piece = fc.oneof(
    fc.string(),
    fc.constantFrom('{{input}}', '{{secret}}', '{{', '}}', '{{previousOutput}}', '$&', '$1'),
  );
  fc.assert(
    fc.property(fc.array(piece), (pieces) => {
      const said = pieces.join('');
      const values = new Map([
        ['previousOutput', said],
        ['input', 'TASK'],
        ['secret', 'SECRET'],
      ]);
      assert.equal(fillTemplate('<{{previousOutput}}>', values), `<${said}>`);
    }),
  );
});
