import type { LoginMethod } from '../agent-connection.ts';
import type { PermissionOption } from '../agent-provider.ts';
import { asObject, cutText, objectsIn, shownText, textOf } from '../agent-text.ts';

/** How a conversation of an agent lets its model or its mode be chosen, and from what. */
export interface SessionChoice {
  /** Through an option of the session, or through the older method for this choice alone. */
  readonly way: { readonly kind: 'option'; readonly configId: string } | { readonly kind: 'method' };
  readonly current: string;
  readonly values: readonly string[];
  /** The values as people see them. */
  readonly shown: readonly { readonly id: string; readonly name: string }[];
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
  const option = objectsIn(fields.configOptions).find((one) => one.category === category && one.type === 'select');
  if (option !== undefined && typeof option.id === 'string') {
    return {
      way: { kind: 'option', configId: option.id },
      current: shownText(option.currentValue),
      ...valuesOf(objectsIn(option.options).flatMap(flatOption), 'value'),
    };
  }
  const { member, list, id, current } = OLDER_FORMS[category];
  const older = asObject(fields[member]);
  const offered = valuesOf(objectsIn(older[list]), id);
  if (offered.values.length === 0) return undefined;
  return { way: { kind: 'method' }, current: shownText(older[current]), ...offered };
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
function flatOption(option: Fields): readonly Fields[] {
  return typeof option.value === 'string' ? [option] : objectsIn(option.options);
}

const MAX_SHOWN = 200;
const MAX_NAME = 200;

function valuesOf(entries: readonly Fields[], member: string): Pick<SessionChoice, 'values' | 'shown'> {
  const named = entries.flatMap(({ [member]: id, name }) => (typeof id === 'string' ? [{ id, name }] : []));
  const shown = named.slice(0, MAX_SHOWN).map(({ id, name }) => ({
    id: cutText(id, MAX_NAME),
    name: cutText(typeof name === 'string' && name !== '' ? name : id, MAX_NAME),
  }));
  return { values: named.map(({ id }) => id), shown };
}

/** The options of a request, as far as they can be read. */
export function readPermissionOptions(value: unknown): readonly PermissionOption[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((option: unknown) => {
    const { optionId, kind, name } = asObject(option);
    if (typeof optionId !== 'string' || typeof kind !== 'string') return [];
    return [{ optionId, kind, name: typeof name === 'string' ? name : kind }];
  });
}

/** What an agent does otherwise than its capabilities say. One row per agent, by the name that it gives itself. */
interface AcpQuirks {
  /** Whether another process really finds a conversation again. */
  readonly keepsConversations: boolean;
}

const ORDINARY: AcpQuirks = { keepsConversations: true };

const TABLE: Readonly<Record<string, AcpQuirks>> = {
  // It announces `loadSession`, but a later process does not find the session, and trying may cost the stored chat.
  'gemini-cli': { keepsConversations: false },
};

export function acpQuirks(agentName: string): AcpQuirks {
  return Object.hasOwn(TABLE, agentName) ? (TABLE[agentName] ?? ORDINARY) : ORDINARY;
}

const MAX_LOGIN_METHODS = 16;

/** The ways to log in that an agent offers. Those for a terminal begin with what the agent is started with. */
export function readLoginMethods(offered: unknown): readonly LoginMethod[] {
  return objectsIn(offered)
    .slice(0, MAX_LOGIN_METHODS)
    .map(({ id, name, description, type, args, env }) => {
      const texts = Array.isArray(args) ? args.filter((one) => typeof one === 'string') : [];
      const environment = Object.fromEntries(Object.entries(asObject(env)).map(([key, value]) => [key, textOf(value)]));
      return {
        id: textOf(id),
        name: shownText(name),
        description: shownText(description),
        ...(type === 'terminal' && { terminal: { args: texts, isAppended: true, environment } }),
      };
    })
    .filter(({ id }) => id !== '');
}
