import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import type { OwnedSubscription, PlanView, SubscriptionStatus } from '../../../accounts/contract/own-data.ts';
import { listAllSubscriptions, listPlans, setSubscriptionStatus } from '../../data/administration.ts';
import { Dialog, ErrorBox, Moment, More, Part, useFilters } from '../../parts/parts.tsx';
import { countOf, countText, visible } from '../../parts/text.ts';
import { useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';

const STATUSES: readonly SubscriptionStatus[] = ['pending', 'trialing', 'active', 'past_due', 'cancelled', 'expired'];
const LOOKS: Readonly<Record<string, string>> = {
  active: 'running',
  trialing: 'running',
  pending: 'needs_you',
  past_due: 'failed',
};

const inWords = (status: string) => status.replace('_', ' ');

/** Who has bought what, and the plans that purchases give. The filters are in the address. */
export default function Subscriptions() {
  const [given, change] = useFilters();
  const [chosen, setChosen] = useState<string>();
  const status = STATUSES.find((one) => one === given.get('status'));
  const plan = given.get('plan') ?? '';
  const plans = useQuery({ queryKey: ['plans'], queryFn: listPlans });
  const pages = useInfiniteQuery({
    queryKey: ['all-subscriptions', status, plan],
    queryFn: ({ pageParam }) =>
      listAllSubscriptions({
        ...(status !== undefined && { status }),
        ...(plan !== '' && { plan }),
        ...(pageParam !== '' && { cursor: pageParam }),
      }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
  });
  const { data, error } = pages;
  const rows = data?.pages.flatMap((page) => page.subscriptions) ?? [];
  const subscription = rows.find(({ id }) => id === chosen);
  return (
    <>
      <header className="bar">
        <h1>Subscriptions</h1>
        <select aria-label="Status" value={status ?? ''} onChange={(event) => change('status', event.target.value)}>
          <option value="">every status</option>
          {STATUSES.map((one) => (
            <option key={one} value={one}>
              {inWords(one)}
            </option>
          ))}
        </select>
        <select aria-label="Plan" value={plan} onChange={(event) => change('plan', event.target.value)}>
          <option value="">every plan</option>
          {plans.data?.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && rows.length === 0 ? <p className="empty">No subscription matches.</p> : null}
      {rows.length === 0 ? null : <Table rows={rows} onChoose={setChosen} />}
      <More of={pages}>Older subscriptions</More>
      <ErrorBox error={plans.error} />
      {plans.data === undefined ? null : <Plans plans={plans.data} onShow={(name) => change('plan', name)} />}
      {subscription === undefined ? null : (
        <Decision
          key={subscription.id}
          subscription={subscription}
          plans={plans.data ?? []}
          onClose={() => setChosen(undefined)}
        />
      )}
    </>
  );
}

interface TableProps {
  readonly rows: readonly OwnedSubscription[];
  readonly onChoose: (id: string) => void;
}

function Table({ rows, onChoose }: TableProps) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Subscription', 'Person', 'Status', 'Plan', 'Requested plan', 'Changed'].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ id, externalId, user, status, plan, planId, updatedAt }) => (
            <tr key={id}>
              <td>
                <button type="button" className="link" onClick={() => onChoose(id)}>
                  {visible(externalId)}
                </button>
              </td>
              <td title={user.id}>
                {visible(user.name)} <span className="quiet">{visible(user.email)}</span>
              </td>
              <td>
                <span className={`chip ${LOOKS[status] ?? ''}`}>{inWords(status)}</span>
              </td>
              <td data-name="Plan">{plan === '' ? 'none' : visible(plan)}</td>
              <td data-name="Requested plan">{planId === '' ? '–' : visible(planId)}</td>
              <td data-name="Changed">
                <Moment at={updatedAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface DecisionProps {
  readonly subscription: OwnedSubscription;
  readonly plans: readonly PlanView[];
  readonly onClose: () => void;
}

/** An administrator decides about one: approves, cancels, gives another plan. */
function Decision({ subscription, plans, onClose }: DecisionProps) {
  const { person } = useConsole();
  const queries = useQueryClient();
  const id = useId();
  const work = useWork();
  const [status, setStatus] = useState<string>(subscription.status);
  const [plan, setPlan] = useState('');
  const mayDecide = person?.role === 'root' || person?.role === 'admin';
  function submit(event: FormEvent): void {
    event.preventDefault();
    const decided = STATUSES.find((one) => one === status);
    if (decided === undefined) return;
    work.run(async () => {
      await setSubscriptionStatus(subscription.id, { status: decided, ...(plan !== '' && { planId: plan }) });
      await queries.invalidateQueries({ queryKey: ['all-subscriptions'] });
      onClose();
    });
  }
  const { externalId, provider, paymentMethod, kind, createdAt, expiresAt, user } = subscription;
  const facts = [provider, paymentMethod, kind].filter((fact) => fact !== '');
  return (
    <Dialog title={visible(externalId)} onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <p>
          {visible(user.name)} <span className="quiet">{visible(user.email)}</span>
        </p>
        <p className="quiet">
          <code>{subscription.id}</code> · since <Moment at={createdAt} />
          {expiresAt === undefined ? null : (
            <>
              {' '}
              · until <Moment at={expiresAt} />
            </>
          )}
          {facts.length === 0 ? '' : ` · ${visible(facts.join(' · '))}`}
        </p>
        {mayDecide ? (
          <>
            <div className="field">
              <label htmlFor={`${id}-status`}>Status</label>
              <select id={`${id}-status`} value={status} onChange={(event) => setStatus(event.target.value)}>
                {STATUSES.map((one) => (
                  <option key={one} value={one}>
                    {inWords(one)}
                  </option>
                ))}
              </select>
            </div>
            <div className="field">
              <label htmlFor={`${id}-plan`}>Plan of the subscription</label>
              <select id={`${id}-plan`} value={plan} onChange={(event) => setPlan(event.target.value)}>
                <option value="">as before ({subscription.plan === '' ? 'none' : visible(subscription.plan)})</option>
                {plans.map(({ name }) => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </div>
            <div className="answers">
              <button type="submit" className="primary" disabled={work.isBusy}>
                Save
              </button>
            </div>
          </>
        ) : (
          <p>Only administrators change subscriptions.</p>
        )}
        <WorkNotes work={work} />
      </form>
    </Dialog>
  );
}

interface PlansProps {
  readonly plans: readonly PlanView[];
  readonly onShow: (name: string) => void;
}

const limitText = (limit: number, unit: string) =>
  limit === 0 ? `no limit of ${unit}` : `${countText(limit)} ${unit}`;

/** The plans of the settings: they are changed there, under `plans`. */
function Plans({ plans, onShow }: PlansProps) {
  return (
    <Part title="Plans">
      <p className="quiet">
        The settings define them, under <code>plans</code>; a change there counts from the next request.
      </p>
      <ul className="rows">
        {plans.map((plan) => (
          <li key={plan.name}>
            <div>
              <b>{visible(plan.name)}</b> {plan.isDefault ? <span className="chip">default</span> : null}
              <p className="quiet">
                {[
                  plan.models.length === 0 ? 'no models' : `models ${visible(plan.models.join(', '))}`,
                  limitText(plan.requestsPerMinute, 'requests a minute'),
                  limitText(plan.tokensPerMinute, 'tokens a minute'),
                  `${plan.budget.usd} USD ${plan.budget.period === 'total' ? 'in total' : `a ${plan.budget.period}`}`,
                  countOf(plan.keys, 'key'),
                  plan.bridge ? 'agents' : 'without agents',
                ].join(' · ')}
              </p>
            </div>
            <button type="button" onClick={() => onShow(plan.name)}>
              Who has it
            </button>
          </li>
        ))}
      </ul>
    </Part>
  );
}
