import { asObject, shownText } from '../loose-json.ts';

/** How a conversation of an agent lets its model be chosen, and from what. */
export interface ModelChoice {
  /** Through an option of the session, or through the older method of its own. */
  readonly way: { readonly kind: 'option'; readonly configId: string } | { readonly kind: 'method' };
  readonly current: string;
  readonly models: readonly string[];
}

type Fields = Readonly<Record<string, unknown>>;

/** Reads the answer to opening or taking up a session; undefined when the agent offers no choice. */
export function readModelChoice(answer: unknown): ModelChoice | undefined {
  const { configOptions, models } = asObject(answer);
  const option = fieldsOf(configOptions).find(({ category, type }) => category === 'model' && type === 'select');
  if (option !== undefined && typeof option.id === 'string') {
    return {
      way: { kind: 'option', configId: option.id },
      current: shownText(option.currentValue),
      models: optionValues(option.options),
    };
  }
  const { availableModels, currentModelId } = asObject(models);
  const ids = fieldsOf(availableModels).flatMap(({ modelId }) => (typeof modelId === 'string' ? [modelId] : []));
  if (ids.length === 0) return undefined;
  return { way: { kind: 'method' }, current: shownText(currentModelId), models: ids };
}

/** The agent's own name of a model: as it was asked for, or without the vendor in front if only one fits. */
export function findModel({ models }: ModelChoice, wanted: string): string | undefined {
  if (models.includes(wanted)) return wanted;
  const ending = models.filter((model) => model.endsWith(`/${wanted}`));
  return ending.length === 1 ? ending[0] : undefined;
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
