import type { ClipboardEvent, DragEvent } from 'react';
import { countOf, visible } from '../../parts/text.ts';
import type { DraftFile } from './next-message.ts';

interface AttachedFilesProps {
  readonly files: readonly DraftFile[];
  readonly isUploading: boolean;
  readonly onRemove: (file: DraftFile) => void;
}

/** The files that go with the next message. */
export function AttachedFiles({ files, isUploading, onRemove }: AttachedFilesProps) {
  if (files.length === 0 && !isUploading) return null;
  return (
    <ul className="attached" aria-label="Files of this message">
      {files.map((file) => (
        <li key={file.attachmentId}>
          {file.picture === undefined ? null : <img src={file.picture} alt="" />} {visible(file.name)}{' '}
          <span className="quiet">{countOf(file.sizeBytes, 'byte')}</span>
          <button type="button" className="plain" aria-label={`Remove ${file.name}`} onClick={() => onRemove(file)}>
            ✕
          </button>
        </li>
      ))}
      {isUploading ? <li className="quiet">Uploading …</li> : null}
    </ul>
  );
}

interface AttachButtonProps {
  readonly isBusy: boolean;
  readonly onFiles: (files: readonly File[]) => void;
}

/** Chooses files for a message. */
export function AttachButton({ isBusy, onFiles }: AttachButtonProps) {
  return (
    <label className="button attach">
      Attach
      <input
        type="file"
        multiple
        disabled={isBusy}
        onChange={({ target }) => {
          onFiles([...(target.files ?? [])]);
          // The same file can be chosen again.
          target.value = '';
        }}
      />
    </label>
  );
}

/** Lets a form take files that are dropped on it or pasted into its fields. Pasted text is left to the field. */
export function takesFiles(onFiles: (files: readonly File[]) => void) {
  return {
    onDragOver: (event: DragEvent) => event.preventDefault(),
    onDrop(event: DragEvent) {
      if (event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      onFiles([...event.dataTransfer.files]);
    },
    onPaste(event: ClipboardEvent) {
      if (event.clipboardData.files.length === 0) return;
      event.preventDefault();
      onFiles([...event.clipboardData.files]);
    },
  };
}
