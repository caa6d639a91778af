import { type FormEvent, useId, useState } from 'react';
import type { NewTeam, Team, TeamBudget } from '../../../accounts/contract/teams.ts';
import { PERIODS } from '../../parts/budget-bar.tsx';
import { Dialog, Field } from '../../parts/parts.tsx';
import { useWork, WorkNotes } from '../../parts/work.tsx';

interface TeamFormProps {
  readonly title: string;
  readonly action: string;
  /** The team that is changed; undefined for a new one. */
  readonly team?: Team;
  readonly onClose: () => void;
  readonly onSave: (given: NewTeam) => Promise<void>;
}

/** Name, plan and budget of a team. A field that is left empty removes what it was. */
export function TeamForm({ title, action, team, onClose, onSave }: TeamFormProps) {
  const id = useId();
  const work = useWork();
  const [name, setName] = useState(team?.name ?? '');
  const [plan, setPlan] = useState(team?.plan ?? '');
  const [usd, setUsd] = useState(team?.budget === undefined || team.budget === null ? '' : `${team.budget.usd}`);
  const [period, setPeriod] = useState<TeamBudget['period']>(team?.budget?.period ?? 'month');
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      const budget = usd === '' ? null : { usd: Number(usd), period };
      await onSave({ name: name.trim(), plan: plan.trim() === '' ? null : plan.trim(), budget });
    });
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <Field label="Name" value={name} onChange={setName} required maxLength={64} autoComplete="off" autoFocus />
        <Field
          label="Plan"
          value={plan}
          onChange={setPlan}
          maxLength={64}
          autoComplete="off"
          hint="A plan of the settings, whose limits apply to the team. Leave empty to apply only the plans of its members."
        />
        <div className="line">
          <div className="field">
            <label htmlFor={`${id}-usd`}>Budget in US dollars</label>
            <input
              id={`${id}-usd`}
              type="number"
              min={0}
              max={1_000_000_000}
              step="any"
              value={usd}
              placeholder="No limit"
              onChange={(event) => setUsd(event.target.value)}
            />
          </div>
          <div className="field">
            <label htmlFor={`${id}-period`}>Period</label>
            <select
              id={`${id}-period`}
              value={period}
              onChange={(event) => setPeriod(event.target.value as TeamBudget['period'])}
            >
              {Object.entries(PERIODS).map(([value, label]) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          </div>
        </div>
        <button type="submit" className="primary" disabled={work.isBusy}>
          {action}
        </button>
      </form>
      <WorkNotes work={work} />
    </Dialog>
  );
}
