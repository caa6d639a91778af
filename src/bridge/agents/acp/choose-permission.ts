import type { PermissionPolicy } from '../agent-connection.ts';
import type { PermissionOption } from '../agent-provider.ts';
import { asObject } from '../loose-json.ts';

export interface PermissionChoice {
  readonly decision: 'allowed' | 'denied';
  /** Undefined: none of the options fits, and the question is answered as cancelled. */
  readonly optionId: string | undefined;
}

/** In order of preference: once before always, since the next question deserves an answer of its own. */
const WANTED: Readonly<Record<PermissionPolicy, readonly string[]>> = {
  allow: ['allow_once', 'allow_always'],
  deny: ['reject_once', 'reject_always'],
};

/** Chooses by kind, never by place: agents order their options differently, and some have several of one kind. */
export function choosePermission(policy: PermissionPolicy, options: readonly PermissionOption[]): PermissionChoice {
  const option = WANTED[policy].flatMap((wanted) => options.find(({ kind }) => kind === wanted) ?? []).at(0);
  return { decision: policy === 'allow' && option !== undefined ? 'allowed' : 'denied', optionId: option?.optionId };
}

/** What a person chose. An id that is not one of the options allows nothing. */
export function chosenPermission(optionId: string | undefined, options: readonly PermissionOption[]): PermissionChoice {
  const option = options.find((offered) => offered.optionId === optionId);
  return { decision: option?.kind.startsWith('allow_') ? 'allowed' : 'denied', optionId: option?.optionId };
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
