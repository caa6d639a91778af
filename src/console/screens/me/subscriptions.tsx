import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import type { Subscription } from '../../../accounts/contract/own-data.ts';
import { cancelSubscription, listSubscriptions } from '../../data/own-account.ts';
import { ErrorBox, Part } from '../../parts/parts.tsx';
import { momentText, visible } from '../../parts/text.ts';
import { Confirm, useWork, WorkNotes } from '../../parts/work.tsx';

const OVER: ReadonlySet<string> = new Set(['cancelled', 'expired']);
const LOOKS: Readonly<Record<string, string>> = {
  active: 'running',
  trialing: 'running',
  pending: 'needs_you',
  past_due: 'failed',
};

const nameOf = ({ planId, kind, externalId }: Subscription) =>
  visible([planId, kind, externalId].find((name) => name !== '') ?? '');

/** What the person has subscribed to; absent where that is nothing. A payment or an administrator makes it count. */
export function Subscriptions() {
  const queries = useQueryClient();
  const work = useWork();
  const [ending, setEnding] = useState<Subscription>();
  const { data = [], error } = useQuery({ queryKey: ['subscriptions'], queryFn: listSubscriptions });
  if (data.length === 0 && error === null) return null;
  return (
    <Part title="Subscriptions">
      <ErrorBox error={error} />
      <ul className="rows">
        {data.map((subscription) => (
          <li key={subscription.id}>
            <div>
              <b>{nameOf(subscription)}</b>{' '}
              <span className={`chip ${LOOKS[subscription.status] ?? ''}`}>
                {subscription.status.replace('_', ' ')}
              </span>
              <p className="quiet">{timesOf(subscription)}</p>
            </div>
            {OVER.has(subscription.status) ? null : (
              <button type="button" disabled={work.isBusy} onClick={() => setEnding(subscription)}>
                Cancel …
              </button>
            )}
          </li>
        ))}
      </ul>
      <WorkNotes work={work} />
      {ending === undefined ? null : (
        <Confirm
          title={`Cancel ${nameOf(ending)}?`}
          text="You lose what the subscription includes."
          action="Cancel it"
          onClose={() => setEnding(undefined)}
          onYes={() =>
            work.run(async () => {
              await cancelSubscription(ending.externalId);
              await queries.invalidateQueries({ queryKey: ['subscriptions'] });
            })
          }
        />
      )}
    </Part>
  );
}

function timesOf({ createdAt, expiresAt, cancelledAt }: Subscription): string {
  const day = (time: string) => momentText(time, 'day');
  return [
    `since ${day(createdAt)}`,
    ...(expiresAt === undefined ? [] : [`until ${day(expiresAt)}`]),
    ...(cancelledAt === undefined ? [] : [`cancelled on ${day(cancelledAt)}`]),
  ].join(' · ');
}
