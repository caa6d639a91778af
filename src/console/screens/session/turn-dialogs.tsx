import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { mergeSession, type SessionName, type Turn, undoTurn } from '../../data/bridge.ts';
import { Problem } from '../../data/request.ts';
import { Dialog, ErrorBox } from '../../parts/parts.tsx';
import { countOf, visible } from '../../parts/text.ts';
import { useWork, WorkNotes } from '../../parts/work.tsx';

interface TurnDialogProps {
  readonly name: SessionName;
  /** Takes the words for what was done. */
  readonly onDone: (text: string) => void;
  readonly onClose: () => void;
}

/** Files that stand in the way of an action, as a refusal names them. */
function filesOf(problem: unknown): readonly string[] {
  const files = problem instanceof Problem ? problem.details?.files : undefined;
  return Array.isArray(files) ? files.map(String) : [];
}

function FileNames({ files }: { readonly files: readonly string[] }) {
  return (
    <ul className="file-names">
      {files.map((file) => (
        <li key={file}>
          <code>{visible(file)}</code>
        </li>
      ))}
    </ul>
  );
}

interface UndoDialogProps extends TurnDialogProps {
  readonly turnId: string;
  /** What the turn has changed. */
  readonly files: readonly string[];
}

/** Asks before the files of a turn are put back. */
export function UndoDialog({ name, turnId, files, onDone, onClose }: UndoDialogProps) {
  const work = useWork();
  async function undo(): Promise<void> {
    const { restored } = await undoTurn(name, turnId);
    const count = `${countOf(restored.length, 'file')} ${restored.length === 1 ? 'is' : 'are'}`;
    onDone(`${count} as before the turn. The agent does not know: tell it in your next message.`);
    onClose();
  }
  return (
    <Dialog title="Undo this turn?" onClose={onClose}>
      <p>This restores these files to their state before the turn. No other file changes.</p>
      <FileNames files={files} />
      <WorkNotes work={work} />
      <FileNames files={filesOf(work.problem)} />
      <div className="answers">
        <button type="button" className="danger" disabled={work.isBusy} onClick={() => work.run(undo)}>
          Undo it
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

interface MergeDialogProps extends TurnDialogProps {
  /** Of a run whose steps have worktrees of their own. */
  readonly steps: NonNullable<Turn['steps']>;
}

/** Asks before the changes of a worktree go into the branch that is checked out. */
export function MergeDialog({ name, steps, onDone, onClose }: MergeDialogProps) {
  const work = useWork();
  const [step, setStep] = useState('');
  async function merge(): Promise<void> {
    const { branch, commit, files } = await mergeSession(name, step === '' ? undefined : Number(step));
    onDone(`Merged into ${visible(branch)} as ${commit.slice(0, 10)}: ${countOf(files.length, 'file')} changed.`);
    onClose();
  }
  return (
    <Dialog title="Merge the worktree?" onClose={onClose}>
      <p>
        All changes of this session become one commit on the branch that is checked out in its repository, and are
        written to the files there.
      </p>
      {steps.length === 0 ? null : (
        <label>
          Which step{' '}
          <select value={step} onChange={({ target }) => setStep(target.value)}>
            <option value="">the winner of the race</option>
            {steps.map(({ index, providerId }) => (
              <option key={index} value={index}>
                {index + 1} {visible(providerId)}
              </option>
            ))}
          </select>
        </label>
      )}
      <WorkNotes work={work} />
      <FileNames files={filesOf(work.problem)} />
      <div className="answers">
        <button type="button" className="primary" disabled={work.isBusy} onClick={() => work.run(merge)}>
          Merge
        </button>
        <button type="button" onClick={onClose}>
          Not now
        </button>
      </div>
    </Dialog>
  );
}

/** Addresses that mean the machine of the browser, whichever it is. */
const OWN_MACHINE = /^(?:localhost|127\..*|\[::1\])$/;

/** The address of the session as a code that the camera of a phone reads. */
export function PhoneDialog({ address, onClose }: { readonly address: string; readonly onClose: () => void }) {
  const { data, error } = useQuery({ queryKey: ['qr', address], queryFn: () => drawCode(address), retry: false });
  return (
    <Dialog title="Follow on a phone" onClose={onClose}>
      <p>Point the camera of the phone at this, and log in there as you did here.</p>
      <ErrorBox error={error} />
      {data === undefined ? null : (
        <img className="qr" src={data} alt="QR code for the address of this session" width={200} height={200} />
      )}
      {OWN_MACHINE.test(new URL(address).hostname) ? (
        <p className="quiet">
          This address works on this machine only. Open the console by an address that the phone reaches, and scan the
          code there.
        </p>
      ) : null}
      <p className="quiet">{address}</p>
    </Dialog>
  );
}

/** As a picture, because the policy of the page allows no markup made by a script. */
async function drawCode(text: string): Promise<string> {
  const { default: codes } = await import('qrcode');
  return `data:image/svg+xml,${encodeURIComponent(await codes.toString(text, { type: 'svg', margin: 2 }))}`;
}
