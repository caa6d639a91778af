import type { RequestHead } from '../../platform/http/surface.ts';

/** A key of the completions service, as its owner sees it. */
export interface CompletionKey {
  readonly id: string;
}

export interface CompletionKeyInput {
  readonly name: string;
  readonly models?: string[];
  readonly requests_per_minute?: number | null;
  readonly tokens_per_minute?: number | null;
  readonly budget?: { usd: number; period: 'day' | 'month' | 'total' } | null;
  readonly expires_at?: string | null;
}

/** Who creates or removes a key, for the audit log. */
export interface KeyActor {
  readonly actor: string;
  readonly head?: Pick<RequestHead, 'address' | 'requestId'>;
}

/** The keys of one user, where the completions service runs beside this one. */
export interface CompletionKeys {
  /** The key itself is in this answer and nowhere else. */
  create(owner: string, input: CompletionKeyInput, by?: KeyActor): Promise<CompletionKey>;
  list(owner: string): Promise<readonly CompletionKey[]>;
  /** Throws KEY_NOT_FOUND, also for a key of someone else. */
  remove(owner: string, id: string, by?: KeyActor): Promise<void>;
  /** What the user has used and spent, for an export of the user's data. */
  usage(owner: string): Promise<object>;
  /** Removes what was asked and answered in the calls of a user who is deleted. */
  eraseContents(owner: string): Promise<void>;
}
