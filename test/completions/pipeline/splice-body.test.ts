import assert from 'node:assert/strict';
import { test } from 'node:test';
import { spliceModel } from '../../../src/completions/relay/splice-body.ts';
import { findUsage } from '../../../src/completions/relay/token-usage.ts';
import fc from '../../kit/properties.ts';

test('what is spliced reads as the same request with another model, or is not spliced at all', () => {
  const value = fc.jsonValue({ maxDepth: 3 });
  const key = fc.oneof(fc.string(), fc.constantFrom('model', 'mod\u0065l', 'messages', '\\u006dodel'));
  fc.assert(
    fc.property(fc.dictionary(key, value), fc.string(), fc.string(), fc.boolean(), (rest, from, to, indented) => {
      const request = { ...rest, model: from };
      const body = Buffer.from(JSON.stringify(request, undefined, indented ? 1 : undefined));
      const spliced = spliceModel(body, from, to, '"extra":1,');
      if (spliced === undefined) return;
      assert.deepEqual(JSON.parse(Buffer.concat(spliced).toString()), {
        ...JSON.parse(body.toString()),
        model: to,
        extra: 1,
      });
    }),
  );
});

test('a key that is there twice, or in another spelling, is left to the parser, in small and in large bodies', () => {
  const long = 'x'.repeat(300_000);
  for (const body of [
    '{"model":"a","model":"a"}',
    '{"model":"a","mod\\u0065l":"a"}',
    '{"mod\\u0065l":"a"}',
    '{"model":"\\u0061"}',
    '{"model":"b"}',
    '{"x":"model"}',
  ]) {
    assert.equal(spliceModel(Buffer.from(body), 'a', 'z'), undefined, body);
    assert.equal(spliceModel(Buffer.from(`{"long":"${long}",${body.slice(1)}`), 'a', 'z'), undefined, body);
  }
  const large = spliceModel(Buffer.from(`{"model":"a","x":"${long}"}`), 'a', 'z', '"y":1,');
  assert.equal(large?.join(''), `{"y":1,"model":"z","x":"${long}"}`);
  const spliced = spliceModel(Buffer.from('{ "model" :\n"a" }'), 'a', 'z');
  assert.equal(spliced?.join(''), '{ "model":"z" }');
});

test('DC-6: a schema with a field "model" and escapes in a text leave every other byte of the request as it came', () => {
  const tools = '"tools":[{"input_schema":{"properties":{"model":{"type":"string"}}}}]';
  const text = '"text":"\\u001b[31m said \\"model\\": \\\\"';
  for (const long of ['', 'x'.repeat(300_000)]) {
    const before = `{${tools},"a":[{${text}}],"long":"${long}", "model" : "a"`;
    const spliced = spliceModel(Buffer.from(`${before} ,"n":1.50}`), 'a', 'z');
    assert.equal(spliced?.join(''), `{${tools},"a":[{${text}}],"long":"${long}", "model":"z" ,"n":1.50}`);
    const twice = `${before},"mod\\u0065l":"a"}`;
    assert.equal(spliceModel(Buffer.from(twice), 'a', 'z'), undefined);
  }
});

test('usage is found in the bytes of an answer, and not in what the model said', () => {
  const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7, details: { a: '}' } };
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.boolean(), (content, first) => {
      const choices = [{ message: { content: `${content} "usage":{"prompt_tokens":1}` } }];
      const answer = first ? { usage, choices } : { choices, usage };
      assert.deepEqual(findUsage(Buffer.from(JSON.stringify(answer, undefined, 1)))?.usage, usage);
    }),
  );
  assert.equal(findUsage(Buffer.from('{"usage":null}')), undefined);
  assert.equal(findUsage(Buffer.from('{"usage":{"prompt_tokens":"x"}}')), undefined);
  assert.equal(findUsage(Buffer.from('{"usage":{"prompt_tokens":1')), undefined);
});
