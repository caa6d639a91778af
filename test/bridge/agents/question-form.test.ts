import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findWrongValue, readForm, readQuestions, toSchema } from '../../../src/bridge/agents/question-form.ts';
import type { QuestionForm } from '../../../src/bridge/contract/session-update.ts';

const COLORS = ['red', 'blue'].map((value) => ({ const: value, title: value.toUpperCase(), description: '' }));
const SCHEMA = {
  type: 'object',
  properties: {
    name: {
      type: 'string',
      title: 'Name',
      description: 'As on the door',
      minLength: 2,
      maxLength: 5,
      pattern: '^(a+)+$',
    },
    mail: { type: 'string', title: 'mail', description: '', format: 'email' },
    home: { type: 'string', title: 'home', description: '', format: 'uri' },
    day: { type: 'string', title: 'day', description: '', format: 'date' },
    moment: { type: 'string', title: 'moment', description: '', format: 'date-time' },
    size: { type: 'number', title: 'size', description: '', minimum: 0.5, maximum: 2, default: 1 },
    count: { type: 'integer', title: 'count', description: '' },
    sure: { type: 'boolean', title: 'sure', description: '', default: false },
    color: { type: 'string', title: 'color', description: '', oneOf: COLORS },
    colors: { type: 'array', title: 'colors', description: '', minItems: 1, maxItems: 2, items: { anyOf: COLORS } },
  },
  required: ['name'],
};

function shown(schema: unknown): QuestionForm {
  const form = readForm(schema);
  assert.ok(form !== undefined);
  return form;
}

test('a form keeps each field of a schema, and is the same schema again for an editor', () => {
  const form = shown(SCHEMA);
  assert.deepEqual(toSchema(form), SCHEMA);
  assert.deepEqual(form.fields.map(({ name, type, required }) => [name, type, required]).slice(0, 2), [
    ['name', 'text', true],
    ['mail', 'text', false],
  ]);
});

test('options are read in each of the ways in which they are written', () => {
  for (const property of [
    { type: 'string', enum: ['red', 'blue'], enumNames: ['RED', 'BLUE'] },
    { type: 'string', oneOf: COLORS },
    { type: 'array', items: { anyOf: COLORS } },
    { type: 'array', items: { oneOf: COLORS } },
  ]) {
    const [field] = shown({ properties: { color: property } }).fields;
    assert.deepEqual(
      field?.options.map(({ value, title }) => `${value} ${title}`),
      ['red RED', 'blue BLUE'],
    );
  }
  const [plain] = shown({ properties: { color: { type: 'array', items: { type: 'string', enum: ['red'] } } } }).fields;
  assert.deepEqual(plain?.options, [{ value: 'red', title: 'red', description: '' }]);
});

test('a form that nobody could answer, or that is too large, is not shown', () => {
  const text = { type: 'string' };
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_none, at) => [`f${at}`, text]));
  for (const [why, schema] of Object.entries({
    'a required field of an unknown type': { properties: { a: { type: '_map' } }, required: ['a'] },
    'a required field that is not there': { properties: {}, required: ['a'] },
    'a required choice without options': { properties: { a: { type: 'string', enum: [] } }, required: ['a'] },
    'too many fields': { properties: many(33) },
    'too many options': { properties: { a: { type: 'string', enum: Array.from({ length: 101 }, String) } } },
    'a long name': { properties: { ['a'.repeat(201)]: text } },
    'too much text': {
      properties: Object.fromEntries(
        Object.keys(many(32)).map((name) => [
          name,
          { ...text, pattern: 'p'.repeat(9000), description: 'd'.repeat(9000) },
        ]),
      ),
    },
  })) {
    assert.equal(readForm(schema), undefined, why);
  }
  assert.deepEqual(
    shown({ properties: { a: { type: '_map' }, b: text } }).fields.map(({ name }) => name),
    ['b'],
  );
  assert.deepEqual(shown({ type: 'object', properties: {} }).fields, []);
  assert.equal(readQuestions([]), undefined);
  assert.equal(readQuestions([{ id: 'a' }, { id: 'a' }]), undefined, 'two questions of one name');
});

test('a default that does not fit its field is left out', () => {
  const { fields } = shown({
    properties: { a: { type: 'integer', default: 1.5 }, b: { type: 'string', enum: ['x'], default: 'y' } },
  });
  assert.deepEqual(
    fields.map((field) => 'default' in field),
    [false, false],
  );
});

test('an answer must fit the form; the reason names the field and never the value', () => {
  const form = shown(SCHEMA);
  const fine = { name: 'anna' };
  for (const values of [
    fine,
    { ...fine, mail: 'a@b.c', home: 'https://a.b', day: '2026-11-16', moment: '2026-11-16T22:00:00Z' },
    { ...fine, size: 2, count: -3, sure: true, color: 'red', colors: ['red', 'blue'] },
  ]) {
    assert.equal(findWrongValue(form, values), undefined);
  }
  for (const [values, wrong] of [
    [{}, 'values.name is missing'],
    [{ name: 'a' }, 'values.name must have 2 to 5 characters'],
    [{ name: 'toolong' }, 'values.name must have 2 to 5 characters'],
    [{ name: 5 }, 'values.name must be a string'],
    [{ ...fine, mail: 'SECRET' }, 'values.mail must be a valid email'],
    [{ ...fine, home: 'SECRET' }, 'values.home must be a valid uri'],
    [{ ...fine, day: '2026-13-45' }, 'values.day must be a valid date'],
    [{ ...fine, moment: '2026-11-16' }, 'values.moment must be a valid date-time'],
    [{ ...fine, size: 3 }, 'values.size must be at most 2'],
    [{ ...fine, size: 0 }, 'values.size must be at least 0.5'],
    [{ ...fine, size: '1' }, 'values.size must be a number'],
    [{ ...fine, count: 1.5 }, 'values.count must be an integer'],
    [{ ...fine, sure: 'yes' }, 'values.sure must be true or false'],
    [{ ...fine, color: 'SECRET' }, 'values.color must be one of: red, blue'],
    [{ ...fine, colors: 'red' }, 'values.colors must be a list of strings'],
    [{ ...fine, colors: ['green'] }, 'values.colors must have values of these only: red, blue'],
    [{ ...fine, colors: ['red', 'red'] }, 'values.colors must not have a value twice'],
    [{ ...fine, colors: [] }, 'values.colors must have 1 to 2 values'],
  ] as const) {
    assert.equal(findWrongValue(form, values as never), wrong);
  }
  assert.match(
    findWrongValue(form, { ...fine, more: 'SECRET' }) ?? '',
    /^the form has no field "more"; it has: name, mail/,
  );
  assert.equal(
    findWrongValue(shown({ properties: { a: { type: 'string' } } }), { a: 'x'.repeat(16_385) }),
    'values.a must have 0 to 16384 characters',
  );
});

test('a pattern of an agent is not run: it could block the program', () => {
  const started = performance.now();
  const form = shown({ properties: { a: { type: 'string', pattern: '^(a+)+$' } } });
  assert.equal(findWrongValue(form, { a: `${'a'.repeat(60)}!` }), undefined);
  assert.ok(performance.now() - started < 1000);
});

test('a question of Codex with options may take another text, which an editor gets as plain text', () => {
  const options = [{ label: 'red', description: 'like blood' }];
  const question = { id: 'q', header: 'Color', question: 'Which?', isOther: true, isSecret: true, options };
  const form = readQuestions([question]);
  const [field] = form?.fields ?? [];
  assert.deepEqual([field?.type, field?.other, field?.secret, field?.required], ['choice', true, true, true]);
  assert.equal(form && findWrongValue(form, { q: 'green' }), undefined);
  const strict = readQuestions([{ ...question, isOther: false }]);
  assert.equal(strict && findWrongValue(strict, { q: 'green' }), 'values.q must be one of: red');
  const schema = form && (toSchema(form) as { properties: { q: object } });
  assert.deepEqual(schema?.properties.q, { title: 'Color', description: 'Which? (red)', type: 'string' });
});
