import { type Static, Type } from 'typebox';

/** The longest text of an answer, in characters. */
export const MAX_ANSWER_LENGTH = 16_384;
/** The most fields of a form, and the most options of a field. */
export const MAX_FIELDS = 32;
export const MAX_FIELD_OPTIONS = 100;

/** What a person may give for one field. */
export const QuestionValue = Type.Union([
  Type.String({ maxLength: MAX_ANSWER_LENGTH }),
  Type.Number(),
  Type.Boolean(),
  Type.Array(Type.String({ maxLength: MAX_ANSWER_LENGTH }), { maxItems: MAX_FIELD_OPTIONS }),
]);

export const QuestionField = Type.Object({
  name: Type.String({ description: 'The name of the field in `values`.' }),
  title: Type.String({ description: 'The name for people.' }),
  description: Type.String({ description: 'Empty when the agent gave none.' }),
  type: Type.Enum(['text', 'number', 'integer', 'boolean', 'choice', 'choices'], {
    description: '`choice`: the `value` of one option. `choices`: a list of them.',
  }),
  required: Type.Boolean(),
  secret: Type.Boolean({ description: 'The answer is not to be shown while it is typed.' }),
  options: Type.Array(Type.Object({ value: Type.String(), title: Type.String(), description: Type.String() }), {
    description: 'Of `choice` and `choices`; otherwise empty.',
  }),
  other: Type.Boolean({ description: 'Of `choice`: any other text is an answer too.' }),
  default: Type.Optional(QuestionValue),
  minLength: Type.Optional(Type.Number()),
  maxLength: Type.Optional(Type.Number()),
  pattern: Type.Optional(
    Type.String({ description: 'A regular expression for people and clients; the bridge does not check it.' }),
  ),
  format: Type.Optional(Type.Enum(['email', 'uri', 'date', 'date-time'])),
  minimum: Type.Optional(Type.Number()),
  maximum: Type.Optional(Type.Number()),
  minItems: Type.Optional(Type.Number()),
  maxItems: Type.Optional(Type.Number()),
});

/** What a question of an agent asks for. A form without fields asks for a yes or a no. */
export const QuestionForm = Type.Object({
  fields: Type.Array(QuestionField, { description: `At most ${MAX_FIELDS}, in the order of the agent.` }),
});

export const QuestionValues = Type.Record(Type.String({ maxLength: 200 }), QuestionValue, {
  maxProperties: MAX_FIELDS,
  description: 'The answer to a question: a value for each field that is required, by its name.',
});

export type QuestionField = Static<typeof QuestionField>;
export type QuestionForm = Static<typeof QuestionForm>;
export type QuestionValue = Static<typeof QuestionValue>;
export type QuestionValues = Static<typeof QuestionValues>;
