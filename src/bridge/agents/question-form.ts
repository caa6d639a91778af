import {
  MAX_ANSWER_LENGTH,
  MAX_FIELD_OPTIONS,
  MAX_FIELDS,
  type QuestionField,
  type QuestionForm,
  type QuestionValue,
  type QuestionValues,
} from '../contract/session-update.ts';
import type { PermissionQuestion } from './agent-provider.ts';
import { asObject, cutText, textOf } from './agent-text.ts';

type Fields = Readonly<Record<string, unknown>>;
type Options = QuestionField['options'];

const MAX_NAME_LENGTH = 200;
const MAX_SHOWN_LENGTH = 2000;
/** A form is one column of a row, and a part of each list of questions. */
const MAX_FORM_LENGTH = 64 * 1024;
/** What questions have where requests for permission have the kind of their tool. */
const QUESTION = 'question';
const FORMATS: readonly unknown[] = ['email', 'uri', 'date', 'date-time'] satisfies QuestionField['format'][];
const NUMBERS = ['minLength', 'maxLength', 'minimum', 'maximum', 'minItems', 'maxItems'] as const;

/** A question that is answered with values, as a person sees it. Without a form it cannot be shown. */
export function formQuestion(toolCallId: string, title: string, form: QuestionForm | undefined): PermissionQuestion {
  return { toolCallId, title: title === '' ? 'a question' : title, toolKind: QUESTION, options: [], form };
}

/**
 * Reads the schema of a form as the Agent Client Protocol and MCP have it: an object of plain fields. Undefined when it has a
 * required field that cannot be shown, or is too large.
 */
export function readForm(schema: unknown): QuestionForm | undefined {
  const { properties, required } = asObject(schema);
  const asked = Object.entries(asObject(properties));
  const needed = new Set(Array.isArray(required) ? (required as unknown[]) : []);
  const fields = asked.flatMap(([name, property]) => readField(name, asObject(property), needed.has(name)) ?? []);
  const shown = new Set<unknown>(fields.map(({ name }) => name));
  return [...needed].every((name) => shown.has(name)) ? withinLimits({ fields }) : undefined;
}

/** Reads the questions of Codex, each a field of its own. */
export function readQuestions(questions: unknown): QuestionForm | undefined {
  const fields = (Array.isArray(questions) ? questions : []).map((given: unknown): QuestionField => {
    const { id, header, question, isOther, isSecret, options } = asObject(given);
    const listed = readOptions(options, 'label');
    return {
      ...plainField(textOf(id), { title: header, description: question }, true),
      type: listed.length === 0 ? 'text' : 'choice',
      secret: isSecret === true,
      options: listed,
      other: isOther === true,
    };
  });
  return fields.length === 0 ? undefined : withinLimits({ fields });
}

/** The form as the Agent Client Protocol has it. */
export function toSchema({ fields }: QuestionForm): object {
  return {
    type: 'object',
    properties: Object.fromEntries(fields.map((field) => [field.name, toProperty(field)])),
    required: fields.filter(({ required }) => required).map(({ name }) => name),
  };
}

/** Returns what is wrong with an answer; undefined when it fits the form. Never repeats a value: it may be a secret. */
export function findWrongValue({ fields }: QuestionForm, values: QuestionValues): string | undefined {
  const names = new Set(fields.map(({ name }) => name));
  const unknown = Object.keys(values).find((name) => !names.has(name));
  if (unknown !== undefined) return `the form has no field "${unknown}"; it has: ${[...names].join(', ') || 'none'}`;
  for (const field of fields) {
    const value = Object.hasOwn(values, field.name) ? values[field.name] : undefined;
    const wrong = value === undefined ? (field.required ? 'is missing' : undefined) : wrongIn(field, value);
    if (wrong !== undefined) return `values.${field.name} ${wrong}`;
  }
  return undefined;
}

function readField(name: string, property: Fields, required: boolean): QuestionField | undefined {
  const { type, enum: values, enumNames, oneOf, items, format, pattern } = property;
  const plain = plainField(name, property, required);
  switch (type) {
    case 'string': {
      const options = Array.isArray(values) ? namedOptions(values, enumNames) : readOptions(oneOf, 'const');
      if (options.length > 0) return withDefault({ ...plain, type: 'choice', options }, property);
      // A choice without anything to choose from cannot be answered.
      if (Array.isArray(values) || Array.isArray(oneOf)) return undefined;
      const isKnown = FORMATS.includes(format);
      const text = {
        ...(isKnown && { format: format as NonNullable<QuestionField['format']> }),
        ...(typeof pattern === 'string' && { pattern: cutText(pattern, MAX_SHOWN_LENGTH) }),
      };
      return withDefault({ ...plain, ...text, type: 'text' }, property);
    }
    case 'array': {
      const { enum: listed, anyOf, oneOf: titled } = asObject(items);
      const options = Array.isArray(listed) ? namedOptions(listed, undefined) : readOptions(anyOf ?? titled, 'const');
      return options.length === 0 ? undefined : withDefault({ ...plain, type: 'choices', options }, property);
    }
    case 'number':
    case 'integer':
    case 'boolean':
      return withDefault({ ...plain, type }, property);
    default:
      return undefined;
  }
}

function plainField(name: string, property: Fields, required: boolean): QuestionField {
  const { title, description } = property;
  const limits = NUMBERS.flatMap((limit) => {
    const value = property[limit];
    return typeof value === 'number' && Number.isFinite(value) ? [[limit, value] as const] : [];
  });
  return {
    name,
    title: cutText(textOf(title) || name, MAX_SHOWN_LENGTH),
    description: cutText(textOf(description), MAX_SHOWN_LENGTH),
    type: 'text',
    required,
    secret: false,
    options: [],
    other: false,
    ...Object.fromEntries(limits),
  };
}

/** A default that does not fit the field is left out. */
function withDefault(field: QuestionField, { default: given }: Fields): QuestionField {
  const isValue =
    ['string', 'number', 'boolean'].includes(typeof given) ||
    (Array.isArray(given) && given.every((one) => typeof one === 'string'));
  if (!isValue || wrongIn(field, given as QuestionValue) !== undefined) return field;
  return { ...field, default: given as QuestionValue };
}

function readOptions(list: unknown, member: 'const' | 'label'): Options {
  return (Array.isArray(list) ? list : []).flatMap((entry: unknown) => {
    const option = asObject(entry);
    const value = option[member];
    if (typeof value !== 'string') return [];
    return [{ value, title: textOf(option.title) || value, description: textOf(option.description) }];
  });
}

function namedOptions(values: readonly unknown[], names: unknown): Options {
  const titles: readonly unknown[] = Array.isArray(names) ? names : [];
  return values.flatMap((value, index) =>
    typeof value === 'string' ? [{ value, title: textOf(titles[index]) || value, description: '' }] : [],
  );
}

function withinLimits(form: QuestionForm): QuestionForm | undefined {
  const { fields } = form;
  const names = new Set(fields.map(({ name }) => name));
  if (fields.length > MAX_FIELDS || names.size < fields.length || names.has('')) return undefined;
  if (fields.some(({ name, options }) => name.length > MAX_NAME_LENGTH || options.length > MAX_FIELD_OPTIONS)) {
    return undefined;
  }
  return JSON.stringify(form).length > MAX_FORM_LENGTH ? undefined : form;
}

type Wrong = string | undefined;

/** For each type of field: what is wrong with a value. */
const CHECKS: Readonly<Record<QuestionField['type'], (field: QuestionField, value: QuestionValue) => Wrong>> = {
  text: (field, value) => (typeof value === 'string' ? wrongText(field, value) : 'must be a string'),
  boolean: (_field, value) => (typeof value === 'boolean' ? undefined : 'must be true or false'),
  number: (field, value) =>
    typeof value === 'number' && Number.isFinite(value) ? wrongNumber(field, value) : 'must be a number',
  integer: (field, value) => (Number.isSafeInteger(value) ? wrongNumber(field, Number(value)) : 'must be an integer'),
  choice(field, value) {
    if (typeof value !== 'string') return 'must be a string';
    if (field.other) return wrongText(field, value);
    return isOption(field, value) ? undefined : `must be one of: ${optionList(field)}`;
  },
  choices(field, value) {
    if (!Array.isArray(value)) return 'must be a list of strings';
    const { minItems = 0, maxItems = MAX_FIELD_OPTIONS } = field;
    if (!value.every((one) => isOption(field, one))) return `must have values of these only: ${optionList(field)}`;
    if (new Set(value).size < value.length) return 'must not have a value twice';
    if (value.length < minItems || value.length > maxItems) return `must have ${minItems} to ${maxItems} values`;
    return undefined;
  },
};

function wrongIn(field: QuestionField, value: QuestionValue): Wrong {
  return CHECKS[field.type](field, value);
}

const isOption = ({ options }: QuestionField, given: string) => options.some(({ value }) => value === given);
const optionList = ({ options }: QuestionField) =>
  options
    .map(({ value }) => value)
    .join(', ')
    .slice(0, 500);

/**
 * The tests of the formats. A `pattern` is not tested: a regular expression that an agent wrote could block the whole
 * program.
 */
const FORMAT_TESTS: Readonly<Record<NonNullable<QuestionField['format']>, (text: string) => boolean>> = {
  email: (text) => text.length <= 320 && /^[^\s@]+@[^\s@]+$/.test(text),
  uri: (text) => URL.canParse(text),
  date: (text) => /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text)),
  'date-time': (text) => /^\d{4}-\d{2}-\d{2}T\d/.test(text) && !Number.isNaN(Date.parse(text)),
};

function wrongText({ minLength = 0, maxLength = MAX_ANSWER_LENGTH, format }: QuestionField, text: string): Wrong {
  const most = Math.min(maxLength, MAX_ANSWER_LENGTH);
  const { length } = [...text];
  if (length < minLength || length > most) return `must have ${minLength} to ${most} characters`;
  return format === undefined || FORMAT_TESTS[format](text) ? undefined : `must be a valid ${format}`;
}

function wrongNumber({ minimum, maximum }: QuestionField, value: number): Wrong {
  if (minimum !== undefined && value < minimum) return `must be at least ${minimum}`;
  return maximum !== undefined && value > maximum ? `must be at most ${maximum}` : undefined;
}

function toProperty(field: QuestionField): object {
  const { name: _name, required: _required, secret: _secret, other, type, options, ...shown } = field;
  const listed = options.map(({ value, title, description }) => ({ const: value, title, description }));
  switch (type) {
    case 'choices':
      return { ...shown, type: 'array', items: { anyOf: listed } };
    case 'choice':
      // The protocol has no choice that takes other texts: the options are named, and any text can be given.
      if (other) return { ...shown, type: 'string', description: `${shown.description} (${optionList(field)})`.trim() };
      return { ...shown, type: 'string', oneOf: listed };
    case 'text':
      return { ...shown, type: 'string' };
    default:
      return { ...shown, type };
  }
}
