import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import type { ModelEntry } from '../../../completions/contract/keys.ts';
import { listModels } from '../../data/completions.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { countText, moneyText, visible } from '../../parts/text.ts';

/** Servers may offer thousands of models: only so many rows are drawn until more are wanted. */
const PAGE = 100;
const MILLION = 1_000_000;

/** The models that the person may call, with what is known of each. The search is in the address. */
export default function Models() {
  const [given, setGiven] = useSearchParams();
  const [shown, setShown] = useState(PAGE);
  const models = useQuery({ queryKey: ['models'], queryFn: listModels });
  const search = given.get('search') ?? '';
  const wanted = search.toLowerCase();
  const found = (models.data ?? []).filter(({ id, owned_by: api }) => `${id} ${api}`.toLowerCase().includes(wanted));
  return (
    <>
      <header className="bar">
        <h1>Models</h1>
        <span className="quiet">
          {models.data === undefined ? '' : `${countText(found.length)} of ${countText(models.data.length)}`} · prices
          in USD per million tokens
        </span>
        <input
          type="search"
          aria-label="Search models"
          placeholder="Search"
          maxLength={200}
          value={search}
          onChange={({ target }) => {
            setGiven(target.value === '' ? {} : { search: target.value }, { replace: true });
            setShown(PAGE);
          }}
        />
      </header>
      <ErrorBox error={models.error} />
      {models.data === undefined && models.error === null ? <p className="quiet loading">Loading …</p> : null}
      {models.data !== undefined && found.length === 0 ? <p className="empty">No model matches.</p> : null}
      {found.length === 0 ? null : <Table models={found.slice(0, shown)} />}
      {found.length > shown ? (
        <p className="more">
          <button type="button" onClick={() => setShown(shown + PAGE)}>
            More models
          </button>
        </p>
      ) : null}
    </>
  );
}

const NAMES = ['Model', 'From', 'Context', 'Longest answer', 'Input', 'Output', 'Reads', ''] as const;

function Table({ models }: { readonly models: readonly ModelEntry[] }) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {NAMES.map((name) => (
              <th key={name}>{name === '' ? <span className="hidden-label">Calls</span> : name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {models.map((model) => (
            <tr key={model.id}>
              <td>
                <code>{visible(model.id)}</code>
              </td>
              <td data-name="From">{visible(model.owned_by)}</td>
              <td data-name="Context">{tokensText(model.context_window)}</td>
              <td data-name="Longest answer">{tokensText(model.max_output_tokens)}</td>
              <td data-name="Input">{priceText(model.pricing?.input)}</td>
              <td data-name="Output">{priceText(model.pricing?.output)}</td>
              <td data-name="Reads">{(model.input_modalities ?? []).join(', ')}</td>
              <td>
                <Link href={`/console/calls?model=${encodeURIComponent(model.id)}`}>Calls</Link>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function tokensText(count: number | undefined): string {
  return count === undefined ? '' : countText(count);
}

function priceText(perToken: number | undefined): string {
  return perToken === undefined ? 'unknown' : moneyText(perToken * MILLION);
}
