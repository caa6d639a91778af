import { useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { forgetBearer, type Person } from '../../data/accounts.ts';
import { deleteAccount, keepAccount } from '../../data/own-account.ts';
import { Dialog, Field, Moment, Part } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useWork, WorkNotes } from '../../parts/work.tsx';

/** Deletes the own account after 14 days; until then, says when, and undoes it. */
export function DeleteAccount({ person }: { readonly person: Person }) {
  const queries = useQueryClient();
  const work = useWork();
  const [isAsking, setAsking] = useState(false);
  const { deletesAt } = person;
  async function change(action: () => Promise<{ user: Person }>): Promise<void> {
    const { user } = await action();
    forgetBearer();
    queries.setQueryData(['person'], user);
    // What the login is good for has changed; the page shows this only after it has been read again.
    for (const key of ['keys', 'scopes']) void queries.invalidateQueries({ queryKey: [key] });
  }
  return (
    <Part
      title="Delete my account"
      text="Your account, its keys and its logins are deleted after 14 days. Until then you can log in and undo it here."
    >
      {deletesAt === undefined ? (
        <div className="answers">
          <button type="button" className="danger" onClick={() => setAsking(true)}>
            Delete my account …
          </button>
        </div>
      ) : (
        <div className="error" role="alert">
          <p>
            Your account is deleted on <Moment at={deletesAt} />. Your keys have stopped working, and agents take no
            work from you.
          </p>
          <div className="answers">
            <button
              type="button"
              className="primary"
              disabled={work.isBusy}
              onClick={() => work.run(() => change(keepAccount))}
            >
              Keep my account
            </button>
          </div>
          <WorkNotes work={work} />
        </div>
      )}
      {isAsking ? (
        <Confirmation email={person.email} onYes={() => change(deleteAccount)} onClose={() => setAsking(false)} />
      ) : null}
    </Part>
  );
}

interface ConfirmationProps {
  readonly email: string;
  readonly onYes: () => Promise<void>;
  readonly onClose: () => void;
}

/** Nobody deletes an account by a wrong click: the address is typed. */
function Confirmation({ email, onYes, onClose }: ConfirmationProps) {
  const work = useWork();
  const [typed, setTyped] = useState('');
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      await onYes();
      onClose();
    });
  }
  return (
    <Dialog title="Delete your account?" onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <p>
          Your keys stop working immediately. After 14 days, your account and everything that is stored about you are
          deleted, and nothing can bring them back. To keep a copy, close this dialog and download your data first.
        </p>
        <Field
          label={`Type ${visible(email)} to confirm`}
          value={typed}
          onChange={setTyped}
          autoComplete="off"
          autoFocus
        />
        <div className="answers">
          <button type="submit" className="danger" disabled={work.isBusy || typed.trim() !== email}>
            Delete my account
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
      <WorkNotes work={work} />
    </Dialog>
  );
}
