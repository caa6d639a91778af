import { type ReactNode, useId } from 'react';
import type { QuestionField, QuestionForm, QuestionValues } from '../../../bridge/contract/session-update.ts';
import type { Permission } from '../../../bridge/contract/workbench.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { spanText, visible } from '../../parts/text.ts';
import { useAnswer, useNow } from './permission-card.tsx';

interface QuestionCardProps {
  readonly permission: Permission;
  readonly form: QuestionForm;
  readonly agent: string;
  readonly onAnswered: () => void;
}

/** A question of an agent that is answered with values: a field for each, and a way to decline. */
export function QuestionCard({ permission, form, agent, onAnswered }: QuestionCardProps) {
  const { permissionId, title, expiresAt } = permission;
  const { answer, problem, isSending } = useAnswer(permissionId, onAnswered);
  const now = useNow();
  return (
    <section className="permission" aria-label="The agent asks">
      <div>
        <h2>{agent} asks</h2>
        <p className="question">{visible(title)}</p>
        <p className="quiet">{spanText(expiresAt - now)} left</p>
      </div>
      <form
        className="question-form"
        onSubmit={(event) => {
          event.preventDefault();
          void answer({ values: valuesOf(form, new FormData(event.currentTarget)) });
        }}
      >
        {form.fields.map((field, index) => (
          <QuestionInput key={field.name} field={field} name={inputName(index)} />
        ))}
        <div className="answers">
          <button type="submit" className="primary" disabled={isSending}>
            {form.fields.length === 0 ? 'Yes' : 'Answer'}
          </button>
          <button
            type="button"
            className="danger"
            disabled={isSending}
            onClick={() => void answer({ decision: 'deny' })}
          >
            Decline
          </button>
        </div>
      </form>
      <ErrorBox error={problem} />
    </section>
  );
}

/** By number: the names that an agent gives could be those of members of a form element. */
const inputName = (index: number) => `field-${index}`;

/** The values of the fields that were filled in. The server checks them. */
function valuesOf({ fields }: QuestionForm, given: FormData): QuestionValues {
  const values: QuestionValues = {};
  for (const [index, { name, type }] of fields.entries()) {
    const all = given.getAll(inputName(index)).map(String);
    const [text = ''] = all;
    if (type === 'choices') {
      if (all.length > 0) values[name] = all;
    } else if (text === '') continue;
    else if (type === 'boolean') values[name] = text === 'true';
    else values[name] = type === 'number' || type === 'integer' ? Number(text) : text;
  }
  return values;
}

interface QuestionInputProps {
  readonly field: QuestionField;
  readonly name: string;
}

const INPUT_TYPES: Readonly<Record<string, string>> = { email: 'email', uri: 'url', date: 'date' };
const YES_OR_NO = [
  { value: 'true', title: 'Yes' },
  { value: 'false', title: 'No' },
];

function QuestionInput({ field, name }: QuestionInputProps) {
  const id = useId();
  const { title, description, type, required, options, other, pattern } = field;
  const label = `${visible(title)}${required ? '' : ' (optional)'}`;
  const hint = [description, ...(pattern === undefined ? [] : [`Pattern: ${pattern}`])].filter(Boolean).join(' ');
  const common = { id, name, required, 'aria-describedby': hint === '' ? undefined : `${id}-hint` };
  const start = field.default === undefined ? {} : { defaultValue: String(field.default) };
  let input: ReactNode;
  if (type === 'choices') {
    const chosen = Array.isArray(field.default) ? field.default : [];
    return (
      <fieldset className="field">
        <legend>{label}</legend>
        {options.map(({ value, title: shown }) => (
          <label key={value} className="check">
            <input type="checkbox" name={name} value={value} defaultChecked={chosen.includes(value)} />
            {visible(shown)}
          </label>
        ))}
        {hint === '' ? null : <p className="quiet">{visible(hint)}</p>}
      </fieldset>
    );
  }
  if (type === 'boolean' || (type === 'choice' && !other)) {
    input = (
      <select {...common} defaultValue={field.default === undefined ? '' : String(field.default)}>
        <option value="">{required ? 'Choose' : 'Leave out'}</option>
        {(type === 'boolean' ? YES_OR_NO : options).map(({ value, title: shown }) => (
          <option key={value} value={value}>
            {visible(shown)}
          </option>
        ))}
      </select>
    );
  } else if (type === 'number' || type === 'integer') {
    const { minimum: min, maximum: max } = field;
    input = <input {...common} {...start} type="number" step={type === 'integer' ? 1 : 'any'} min={min} max={max} />;
  } else {
    const { minLength, maxLength, format = '', secret } = field;
    const shown = secret ? 'password' : (INPUT_TYPES[format] ?? 'text');
    input = (
      <>
        <input
          {...common}
          {...start}
          type={shown}
          minLength={minLength}
          maxLength={maxLength}
          autoComplete="off"
          list={options.length === 0 ? undefined : `${id}-list`}
        />
        {options.length === 0 ? null : (
          <datalist id={`${id}-list`}>
            {options.map(({ value }) => (
              <option key={value} value={value} />
            ))}
          </datalist>
        )}
      </>
    );
  }
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {input}
      {hint === '' ? null : (
        <p className="quiet" id={`${id}-hint`}>
          {visible(hint)}
        </p>
      )}
    </div>
  );
}
