import type { PermissionPolicy } from '../agent-connection.ts';
import { asObject } from '../loose-json.ts';

/** One answer that the agent offers. */
export interface PermissionOption {
  readonly optionId: string;
  readonly kind: string;
}

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

/** The options of a request, as far as they can be read. */
export function readPermissionOptions(value: unknown): readonly PermissionOption[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((option: unknown) => {
    const { optionId, kind } = asObject(option);
    return typeof optionId === 'string' && typeof kind === 'string' ? [{ optionId, kind }] : [];
  });
}
