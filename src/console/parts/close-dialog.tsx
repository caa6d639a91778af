import { Dialog } from './parts.tsx';
import { titleText } from './text.ts';

interface CloseDialogProps {
  readonly title: string;
  readonly isBusy?: boolean;
  readonly onConfirmed: () => void;
  readonly onClose: () => void;
}

/** Asks before a session is removed with its history. */
export function CloseDialog({ title, isBusy = false, onConfirmed, onClose }: CloseDialogProps) {
  return (
    <Dialog title="Close this session?" onClose={onClose}>
      <p>This removes “{titleText(title)}” with its history. Files in its folder stay. Archiving only hides it.</p>
      <button type="button" className="danger" disabled={isBusy} onClick={onConfirmed}>
        Remove it
      </button>
    </Dialog>
  );
}
