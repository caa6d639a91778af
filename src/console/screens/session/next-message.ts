import { useSyncExternalStore } from 'react';
import { keyOf, type SessionName, trestle, uploadFile } from '../../data/bridge.ts';
import { permissionChoice, routingOf } from '../../data/permission-choice.ts';
import { useConsole } from '../../shell/console-context.ts';
import { useTeamOf } from '../teams/own-teams.ts';
import { rememberTurn } from './running-turns.ts';

/** A file that goes with the next message. */
export interface DraftFile {
  readonly name: string;
  readonly sizeBytes: number;
  readonly attachmentId: string;
  /** Of an image: where the browser has it. */
  readonly picture: string | undefined;
}

interface Draft {
  readonly text: string;
  readonly files: readonly DraftFile[];
}

const EMPTY: Draft = { text: '', files: [] };
const drafts = new Map<string, Draft>();
const listeners = new Set<() => void>();

const place = (key: string) => `trestle.draft.${key}`;

function draftOf(key: string): Draft {
  const known = drafts.get(key);
  if (known !== undefined) return known;
  const text = sessionStorage.getItem(place(key)) ?? '';
  const draft = text === '' ? EMPTY : { ...EMPTY, text };
  drafts.set(key, draft);
  return draft;
}

/** Changes what is written for a session. The text is kept for as long as the tab is open. */
export function changeDraft(key: string, changes: Partial<Draft>): void {
  const before = draftOf(key);
  const draft = { ...before, ...changes };
  for (const { picture, attachmentId } of before.files) {
    const isKept = draft.files.some((file) => file.attachmentId === attachmentId);
    if (picture !== undefined && !isKept) URL.revokeObjectURL(picture);
  }
  drafts.set(key, draft);
  sessionStorage.setItem(place(key), draft.text);
  for (const listener of listeners) listener();
}

/** Puts back what was sent in vain. A picture is not shown again: the browser has let it go. */
export function restoreDraft(key: string, { text, files }: Draft): void {
  if (draftOf(key).text !== '') return;
  changeDraft(key, { text, files: files.map((file) => ({ ...file, picture: undefined })) });
}

/** Puts lines below what is written already, and the cursor behind them. */
export function addToDraft(key: string, lines: string): void {
  const { text } = draftOf(key);
  changeDraft(key, { text: text.trim() === '' ? lines : `${text.trimEnd()}\n\n${lines}` });
  const field = document.querySelector<HTMLTextAreaElement>('.composer textarea');
  field?.focus();
  // When the new text is in the field.
  requestAnimationFrame(() => field?.setSelectionRange(field.value.length, field.value.length));
}

export function useDraft(key: string): Draft {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => draftOf(key),
  );
}

const isPicture = ({ type }: File) => /^image\/(?:png|jpeg|gif|webp)$/.test(type);

/** Uploads files for the next message of a session, one after the other. Rejects with the first refusal. */
export async function addFiles(name: SessionName, team: string | undefined, files: readonly File[]): Promise<void> {
  const key = keyOf(name);
  for (const file of files) {
    const { attachmentId, name: shown, sizeBytes } = await uploadFile(file, team);
    const picture = isPicture(file) ? URL.createObjectURL(file) : undefined;
    changeDraft(key, { files: [...draftOf(key).files, { name: shown, sizeBytes, attachmentId, picture }] });
  }
}

/** Sends a message with what was chosen for the session. Resolves when it was taken. */
export function useSend(name: SessionName): (message: string, files?: readonly DraftFile[]) => Promise<void> {
  const { system } = useConsole();
  const team = useTeamOf(name.owner);
  return (message, files = []) => {
    const key = keyOf(name);
    const session = trestle(system.signIn, team).session(name.sessionId, {
      routing: routingOf(permissionChoice(key)),
    });
    const attachments = files.map(({ attachmentId }) => ({ attachmentId }));
    const turn = session.message(message, { ...(attachments.length > 0 && { attachments }) });
    // The message is put back, unless another one is written already.
    return rememberTurn(key, turn, { onRefused: () => restoreDraft(key, { text: message, files }) });
  };
}
