import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { readMatrix, replaceMatrix } from '../../data/administration.ts';
import { Problem } from '../../data/request.ts';
import { ErrorBox, Field, Part } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { ROLES } from './invitations.tsx';
import { cellOf, differences, type Edits, type Matrix, modulesOf, PERMISSIONS, withEdits } from './permission-table.ts';

/** Who may do what: the permissions of this program, and those that apps ask for. */
export default function Roles() {
  const { person } = useConsole();
  const queries = useQueryClient();
  const work = useWork();
  const { data, error } = useQuery({ queryKey: ['matrix'], queryFn: readMatrix, staleTime: Number.POSITIVE_INFINITY });
  const [edits, setEdits] = useState<Edits>({});
  /** What someone else has saved while this page was open. */
  const [others, setOthers] = useState<readonly string[]>();
  const mayChange = person?.permissions.includes('admin.settings.write') === true;
  if (data === undefined) {
    return error === null ? <p className="quiet loading">Loading …</p> : <ErrorBox error={error} />;
  }
  const { matrix: stored, version } = data;
  const matrix = withEdits(stored, edits);
  const changes = differences(stored, matrix, ROLES);
  const change = (module: string, role: string, isGranted: boolean) =>
    setEdits({ ...edits, [module]: { ...edits[module], [role]: isGranted } });
  const save = () =>
    work.run(async () => {
      try {
        queries.setQueryData(['matrix'], await replaceMatrix({ version, matrix }));
        setEdits({});
        setOthers(undefined);
      } catch (problem) {
        if (!(problem instanceof Problem) || problem.status !== 409) throw problem;
        const newest = await readMatrix();
        setOthers(differences(stored, newest.matrix, ROLES));
        queries.setQueryData(['matrix'], newest);
      }
    });
  return (
    <>
      <header className="bar">
        <h1>Roles</h1>
        <span className="quiet">version {version}</span>
      </header>
      <p className="quiet more">
        Agents work on this machine as the user of the server. The roles root, admin and operator may use them; other
        people may where their plan has <code>bridge: true</code>.
      </p>
      <Table caption="Permissions here" rows={PERMISSIONS} matrix={matrix} onChange={mayChange ? change : undefined} />
      <div className="page settings">
        <Part
          title="Modules of apps"
          text="Apps ask for these by name. Administrators have all of them unless you remove one."
        >
          {modulesOf(matrix).length === 0 ? (
            <p className="quiet">No app has asked for one.</p>
          ) : (
            <Table
              caption="Modules"
              rows={modulesOf(matrix).map((key) => ({ key, text: '' }))}
              matrix={matrix}
              onChange={mayChange ? change : undefined}
              onRemove={mayChange ? (module) => setEdits({ ...edits, [module]: null }) : undefined}
            />
          )}
          {mayChange ? (
            <NewModule known={Object.keys(matrix)} onAdd={(module) => change(module, 'admin', true)} />
          ) : null}
        </Part>
        {changes.length === 0 && others === undefined ? null : (
          <Part title="Not saved yet">
            {others === undefined ? null : (
              <p className="notice" role="status">
                Someone else has saved version {version}: {others.map(visible).join(', ')}. Your changes are below; save
                them again, or discard them.
              </p>
            )}
            <ul>
              {changes.map((text) => (
                <li key={text}>{visible(text)}</li>
              ))}
            </ul>
            <div className="answers">
              <button type="button" className="primary" disabled={work.isBusy || changes.length === 0} onClick={save}>
                Save
              </button>
              <button
                type="button"
                disabled={work.isBusy}
                onClick={() => {
                  setEdits({});
                  setOthers(undefined);
                  work.forget();
                }}
              >
                Discard
              </button>
            </div>
          </Part>
        )}
        <WorkNotes work={work} />
      </div>
    </>
  );
}

interface TableProps {
  readonly caption: string;
  readonly rows: readonly { readonly key: string; readonly text: string }[];
  readonly matrix: Matrix;
  /** Undefined for those who may only look. */
  readonly onChange: ((module: string, role: string, isGranted: boolean) => void) | undefined;
  readonly onRemove?: ((module: string) => void) | undefined;
}

function Table({ caption, rows, matrix, onChange, onRemove }: TableProps) {
  return (
    <div className="scrolls">
      <table className="list matrix">
        <caption className="hidden-label">{caption}</caption>
        <thead>
          <tr>
            <th>{caption}</th>
            {ROLES.map((role) => (
              <th key={role}>{role}</th>
            ))}
            {onRemove === undefined ? null : <th>Action</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, text }) => (
            <tr key={key}>
              <th scope="row">
                {text === '' ? visible(key) : text} {text === '' ? null : <code className="quiet">{key}</code>}
              </th>
              {ROLES.map((role) => {
                const { isGranted, isFixed } = cellOf(matrix, key, role);
                return (
                  <td key={role}>
                    {isFixed || onChange === undefined ? (
                      <span title={isFixed ? 'Cannot be changed' : undefined}>{isGranted ? 'yes' : 'no'}</span>
                    ) : (
                      <input
                        type="checkbox"
                        aria-label={`${visible(key)} for ${role}`}
                        checked={isGranted}
                        onChange={({ target }) => onChange(key, role, target.checked)}
                      />
                    )}
                  </td>
                );
              })}
              {onRemove === undefined ? null : (
                <td>
                  <button type="button" onClick={() => onRemove(key)}>
                    Remove
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function NewModule({ known, onAdd }: { readonly known: readonly string[]; readonly onAdd: (module: string) => void }) {
  const [name, setName] = useState('');
  const isKnown = known.includes(name.trim());
  function submit(event: FormEvent): void {
    event.preventDefault();
    if (isKnown) return;
    onAdd(name.trim());
    setName('');
  }
  return (
    <form className="line" onSubmit={submit}>
      <Field
        label="New module"
        value={name}
        onChange={setName}
        required
        maxLength={128}
        autoComplete="off"
        hint={isKnown ? 'This module exists already.' : 'Letters, digits, “.”, “_” and “-”, such as reports.'}
      />
      <button type="submit" disabled={isKnown}>
        Add
      </button>
    </form>
  );
}
