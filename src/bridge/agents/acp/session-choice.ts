import { asObject, shownText } from '../loose-json.ts';

/** How a conversation of an agent lets its model or its mode be chosen, and from what. */
export interface SessionChoice {
  /** Through an option of the session, or through the older method for this choice alone. */
  readonly way: { readonly kind: 'option'; readonly configId: string } | { readonly kind: 'method' };
  readonly current: string;
  readonly values: readonly string[];
}

type Fields = Readonly<Record<string, unknown>>;

/** Where the older form of each choice stands in the answer to opening a session. */
const OLDER_FORMS = {
  model: { member: 'models', list: 'availableModels', id: 'modelId', current: 'currentModelId' },
  mode: { member: 'modes', list: 'availableModes', id: 'id', current: 'currentModeId' },
} as const;

/** Reads the answer to opening or taking up a session; undefined when the agent offers no such choice. */
export function readChoice(answer: unknown, category: 'model' | 'mode'): SessionChoice | undefined {
  const fields = asObject(answer);
  const option = fieldsOf(fields.configOptions).find((one) => one.category === category && one.type === 'select');
  if (option !== undefined && typeof option.id === 'string') {
    return {
      way: { kind: 'option', configId: option.id },
      current: shownText(option.currentValue),
      values: optionValues(option.options),
    };
  }
  const { member, list, id, current } = OLDER_FORMS[category];
  const older = asObject(fields[member]);
  const values = fieldsOf(older[list]).flatMap((entry) => (typeof entry[id] === 'string' ? [entry[id]] : []));
  if (values.length === 0) return undefined;
  return { way: { kind: 'method' }, current: shownText(older[current]), values };
}

/** The agent's own name of a model: as it was asked for, or without the vendor in front if only one fits. */
export function findModel({ values }: SessionChoice, wanted: string): string | undefined {
  if (values.includes(wanted)) return wanted;
  const ending = values.filter((model) => model.endsWith(`/${wanted}`));
  return ending.length === 1 ? ending[0] : undefined;
}

/** Read-only as Codex calls it, plan as the others do; some write a URL in front of the name. */
const READ_ONLY_MODES = [/(?:^|[#/:])read[-_]?only$/i, /(?:^|[#/:])plan$/i];

/** The mode in which the agent changes nothing; undefined when it has none. */
export function findReadOnlyMode({ values }: SessionChoice): string | undefined {
  return READ_ONLY_MODES.flatMap((name) => values.find((mode) => name.test(mode)) ?? []).at(0);
}

/** Options come as a list, or as groups of lists. */
function optionValues(options: unknown): readonly string[] {
  return fieldsOf(options).flatMap(({ value, options: inner }) =>
    typeof value === 'string' ? [value] : fieldsOf(inner).flatMap((option) => shownText(option.value)),
  );
}

function fieldsOf(list: unknown): readonly Fields[] {
  return Array.isArray(list) ? list.map((entry) => asObject(entry)) : [];
}
